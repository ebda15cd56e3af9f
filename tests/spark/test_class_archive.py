"""The tests' JVMs take Spark's classes from the archive that was made of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import spark_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has mapped is asked of Linux")
def test_the_shared_session_starts_from_the_archive(spark: SparkSession) -> None:
    from pyspark import SparkContext

    archive = spark_archive.path().resolve()
    if not archive.exists():
        pytest.skip("needs the archive of Spark's classes, which `make reference` makes")
    assert SparkContext._gateway is not None
    mapped = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
    assert str(archive) in mapped
