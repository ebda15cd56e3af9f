"""Records that should be the only ones of their key, found with Spark's own Kafka source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn
from pyspark.sql.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_key(spark: SparkSession, bootstrap: str, key: Sequence[str]) -> None:
    """Raises AnalysisException for an expression that Spark can't make sense of, before anything is read."""
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    _keyed(source.option("subscribe", "any").option("includeHeaders", "true").load(), key)


def count(
    spark: SparkSession,
    bootstrap: str,
    table: Sequence[Mapping[str, Any]],
    key: Sequence[str],
    options: Mapping[str, str],
) -> dict[tuple[str, int], int]:
    """(topic, partition) → how many records have a key that came before, there or in a lower partition.

    table: says what to read of each partition: start_offset up to stable_end_offset.
    """
    rows = [row for row in table if row["stable_end_offset"] > row["start_offset"]]
    if not rows:
        return {}
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    for name, value in {"isolation.level": "read_committed", **options}.items():
        source = source.option(f"kafka.{name}", value)
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for row in rows:
        starts.setdefault(row["topic"], {})[str(row["partition"])] = row["start_offset"]
        ends.setdefault(row["topic"], {})[str(row["partition"])] = row["stable_end_offset"]
    assigned = {topic: [int(partition) for partition in partitions] for topic, partitions in starts.items()}
    source = source.option("assign", json.dumps(assigned)).option("includeHeaders", "true")
    source = source.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))

    names = _names(key)
    keyed = _keyed(source.load(), key).where(" OR ".join(f"{name} IS NOT NULL" for name in names))
    in_partitions = keyed.groupBy("topic", "partition", *names).agg(fn.count("*").alias("records"))
    first = fn.row_number().over(Window.partitionBy("topic", *names).orderBy("partition")) == 1
    counted = (
        in_partitions.withColumn("first", first)
        .groupBy("topic", "partition")
        .agg(fn.sum(fn.col("records") - fn.when(fn.col("first"), 1).otherwise(0)).alias("duplicates"))
    )
    return {(row.topic, row.partition): row.duplicates for row in counted.collect()}


def _keyed(records: DataFrame, key: Sequence[str]) -> DataFrame:
    columns = [fn.expr(expression).alias(name) for name, expression in zip(_names(key), key, strict=True)]
    return records.select("topic", "partition", *columns)


def _names(key: Sequence[str]) -> list[str]:
    return [f"key_{number}" for number in range(len(key))]
