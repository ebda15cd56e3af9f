"""A Spark session for tests and measurements. Its workers run this Python and find this checkout."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def make_session(folder: Path, master: str = "local[2]", **settings: Any) -> SparkSession:
    """Make a session with two cores and its files in the folder. Raises barnabas.spark.connector.MissingError.

    settings: Spark's own, by name; they win over those made here.
    """
    from barnabas.spark import connector

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), *paths]))
    ours = {
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    return connector.session("barnabas-tests", master, **{**ours, **settings})
