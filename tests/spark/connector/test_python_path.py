"""The connector's jars are Java's alone: Python would read the directory of each one with every task."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_no_jar_of_the_connectors_is_where_python_looks_for_modules(spark: SparkSession) -> None:
    def jars(_number: int) -> list[str]:
        return [path for path in sys.path if path.endswith(".jar") and "spark-core" not in path]

    assert jars(0) == []
    assert spark.sparkContext.parallelize([0], 1).map(jars).collect() == [[]]


def test_no_archive_is_where_the_tests_workers_look(spark: SparkSession) -> None:
    def archives(_number: int) -> list[str]:
        return [path for path in sys.path_importer_cache if ".zip" in path or ".jar" in path]

    assert spark.sparkContext.parallelize([0], 1).map(archives).collect() == [[]]
