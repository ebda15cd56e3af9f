"""A row for each partition, summed up from what the tasks found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from barnabas.spark.audit import scan
from barnabas.spark.audit.refusals import check_topics
from barnabas.spark.plan import arrow_schema
from barnabas.spark.wire_log import Bounds, RawLog

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession


# --- Duplicate keys, found with Spark's own Kafka source ----------------------------------------------------


def check_key(spark: SparkSession, bootstrap: str, key: Sequence[str]) -> None:
    """Raise AnalysisException for an expression that Spark doesn't understand, before anything is read."""
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    _keyed(source.option("subscribe", "any").option("includeHeaders", "true").load(), key)


def count(
    spark: SparkSession,
    bootstrap: str,
    table: Sequence[Mapping[str, Any]],
    key: Sequence[str],
    options: Mapping[str, str],
) -> dict[tuple[str, int], int]:
    """Return for each (topic, partition) how many records have a key that came before, there or in a lower partition.

    table: what to read of each partition: start_offset up to stable_end_offset.
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


# --- The rows -----------------------------------------------------------------------------------------------

ATTEMPTS = 3
SCHEMA = (
    "topic string, partition int, start_offset long, end_offset long, stable_end_offset long, records long, "
    "transactions_committed long, transactions_aborted long, transactions_open long, marker_offsets long, "
    "aborted_records long, open_records long, compacted_offsets long, unexplained_offsets long, "
    "first_unexplained_offset long, duplicates long"
)

COUNTS = (
    "records",
    "transactions_committed",
    "transactions_aborted",
    "transactions_open",
    "marker_offsets",
    "aborted_records",
    "open_records",
    "compacted_offsets",
    "unexplained_offsets",
    "expired",
)


class RetentionError(RuntimeError):
    """Retention deleted records while they were being counted, again and again."""


def audit(
    spark: SparkSession,
    bootstrap: str,
    topics: Sequence[str],
    *,
    key: Sequence[str] = (),
    client: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    largest_range: int | None = None,
    timeout_ms: int = 30_000,
) -> DataFrame:
    """Count what the topics' partitions held at one moment. Return a row for each, sorted.

    key: expressions over the columns of Spark's Kafka source. No two records should have the same values of them. For
        example `key`, or `get_json_object(CAST(value AS STRING), '$.id')`. Needs Spark's Kafka connector.
    client, options: security settings, by kafka-python's names for the audit itself, and by Kafka's own
        (`security.protocol`) for the connector.
    largest_range: the largest number of offsets that one task reads in one go.

    The columns of a row:

    - topic, partition.
    - start_offset, end_offset (the first offset after the range), and stable_end_offset, where read_committed stops.
    - records: those outside of transactions, and the committed ones.
    - transactions_committed and transactions_aborted, counted by their markers in the log; transactions_open.
    - The other offsets: marker_offsets, aborted_records, open_records, compacted_offsets, and unexplained_offsets,
      which should hold a record and don't. With `records` they add up to end_offset - start_offset.
    - first_unexplained_offset.
    - duplicates: how many records that read_committed sees have the key of an earlier record in the topic; null if no
      key was given. Records whose key is null in all columns aren't compared.

    Raises ValueError for arguments that can't be used, AnalysisException for a key that Spark doesn't understand,
    RetentionError, scan.UnreadableBatchError (inside of Spark's own error), ResponseError, NoAnswerError.
    """
    if key:
        check_key(spark, bootstrap, key)
        check_topics(bootstrap, topics, keyed=True, client=client or {}, timeout_ms=timeout_ms)
    for _ in range(ATTEMPTS):
        log = RawLog(bootstrap, client or {}, timeout_ms)
        try:
            bounds = log.bounds(topics)
        finally:
            log.close()
        rows = _scanned(spark, bounds, bootstrap, dict(client or {}), largest_range, timeout_ms)
        table, expired = _summed(bounds, rows)
        if not expired:
            if key:
                found = count(spark, bootstrap, table, key, options or {})
                for row in table:
                    row["duplicates"] = found.get((row["topic"], row["partition"]), 0)
            names = [column.split()[0] for column in SCHEMA.split(", ")]
            return spark.createDataFrame([tuple(row[name] for name in names) for row in table], SCHEMA)
    raise RetentionError(f"retention deleted records while they were counted, {ATTEMPTS} times in a row")


def _scanned(
    spark: SparkSession,
    bounds: Sequence[Bounds],
    bootstrap: str,
    client: Mapping[str, Any],
    largest_range: int | None,
    timeout_ms: int,
) -> DataFrame:
    """Return the rows of all ranges (`scan.SCHEMA`)."""
    slots = spark.sparkContext.defaultParallelism
    shares = scan.split(bounds, slots, largest_range)

    def scanned(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow

        numbers = [number.as_py() for batch in batches for number in batch.column(0)]
        rows = list(scan.scan([shares[number] for number in numbers], bootstrap, client, timeout_ms))
        yield from pyarrow.Table.from_pylist(rows, arrow_schema(scan.SCHEMA)).to_batches()

    tasks = max(1, min(len(shares), slots * scan.RANGES_PER_SLOT))
    return spark.range(0, len(shares), 1, tasks).mapInArrow(scanned, scan.SCHEMA)


def _summed(bounds: Sequence[Bounds], rows: DataFrame) -> tuple[list[dict[str, Any]], bool]:
    """Return a row for each partition, and True if retention deleted something meanwhile."""
    # Within a range, the row with a producer's first marker comes before the row with its open records.
    in_order = Window.partitionBy("topic", "partition", "producer_id").orderBy(
        "range_start", fn.col("open_offset").asc_nulls_first()
    )
    ended = fn.first("commits_first", ignorenulls=True).over(
        in_order.rowsBetween(1, Window.unboundedFollowing)
    )
    commits, is_open = fn.col("ended_by_commit"), fn.col("ended_by_commit").isNull()
    left_open = fn.col("open_offset").isNotNull()
    begun_before = fn.col("producer_id").isin(
        sorted({producer_id for one in bounds for producer_id in one.begun_before})
    )
    sums = (
        rows.withColumn("ended_by_commit", fn.when(left_open, ended))
        .groupBy("topic", "partition")
        .agg(
            _sum("records", also=commits),
            _sum("commits", "transactions_committed"),
            _sum("aborts", "transactions_aborted"),
            _sum("markers", "marker_offsets"),
            _sum("aborted_records", also=~commits),
            _sum("compacted", "compacted_offsets"),
            _sum("unexplained", "unexplained_offsets"),
            fn.min("first_unexplained").alias("first_unexplained_offset"),
            _sum("expired"),
            fn.sum(fn.when(left_open & is_open, fn.col("open_records")).otherwise(0)).alias("open_records"),
            fn.count_distinct(fn.when(left_open & is_open, fn.col("producer_id"))).alias("transactions_open"),
            fn.min(fn.when(is_open, fn.col("open_offset"))).alias("stable_end_offset"),
            _producers(fn.col("commits_first").isNotNull() & begun_before).alias("ended"),
            _producers(left_open & is_open & begun_before).alias("counted"),
        )
    )
    found = {(row.topic, row.partition): row.asDict() for row in sums.collect()}
    table = []
    for one in sorted(bounds, key=lambda each: (each.topic, each.partition)):
        row = dict.fromkeys(COUNTS, 0) | found.get((one.topic, one.partition), {})
        # These transactions began before the log start, and have no marker yet. So read_committed reads nothing,
        # as in Kafka's UnifiedLog. If none of their records are left, only the broker knows of them.
        still_open = set(one.begun_before) - set(row.get("ended", ()))
        if still_open:
            row["stable_end_offset"] = one.start_offset
            row["transactions_open"] += len(still_open - set(row.get("counted", ())))
        stable_end = row.get("stable_end_offset")
        table.append(
            {
                "first_unexplained_offset": None,
                "duplicates": None,
                **row,
                "topic": one.topic,
                "partition": one.partition,
                "start_offset": one.start_offset,
                "end_offset": one.end_offset,
                "stable_end_offset": one.end_offset if stable_end is None else stable_end,
            }
        )
    return table, any(row["expired"] for row in table)


def _producers(where: Column) -> Column:
    return fn.collect_set(fn.when(where, fn.col("producer_id")))


def _sum(column: str, name: str | None = None, *, also: Column | None = None) -> Column:
    """Return the column's sum. With `also`, add `open_records` where that holds."""
    value = fn.coalesce(column, fn.lit(0))
    if also is not None:
        value += fn.when(also, fn.col("open_records")).otherwise(0)
    return fn.sum(value).alias(name or column)
