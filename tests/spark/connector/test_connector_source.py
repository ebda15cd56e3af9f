"""Spark's own `kafka` source, unchanged, in batch queries."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import spark_partition_id

from tests.spark.topics import Transactions, create_topic, delete_records, offsets_json, produce

HOUR_MS = 3_600_000
DAY_MS = 1_400_000_000_000  # so long ago that retention would take it when it looks, each five minutes


def read(spark: SparkSession, bootstrap: str, **options: object) -> DataFrame:
    """A batch read; a dot in an option's name is written as `__`."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load()


def values(frame: DataFrame) -> list[str]:
    rows = frame.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value").collect()
    return [row.value for row in sorted(rows)]


def test_a_record_is_read_with_all_its_parts(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2, retention_ms="-1")
    headers = [("a", b"1"), ("b", None), ("a", b"2")]
    produce(bootstrap, topic, ["v"], partition=1, key="k", headers=headers, timestamp_ms=DAY_MS)

    (row,) = read(spark, bootstrap, subscribe=topic, includeHeaders="true").collect()

    assert row == Row(
        key=bytearray(b"k"),
        value=bytearray(b"v"),
        topic=topic,
        partition=1,
        offset=0,
        timestamp=datetime.fromtimestamp(DAY_MS / 1000),
        timestampType=0,
        headers=[Row("a", bytearray(b"1")), Row("b", None), Row("a", bytearray(b"2"))],
    )


def test_records_without_key_or_value_are_read_as_null(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [""])
    produce(bootstrap, topic, [None], key="k")

    rows = read(spark, bootstrap, subscribe=topic).orderBy("offset").collect()

    assert [(row.key, row.value) for row in rows] == [(None, bytearray()), (bytearray(b"k"), None)]


@pytest.mark.parametrize(
    ("isolation_level", "expected"),
    [
        ("read_committed", ["plain", "committed 1", "committed 2"]),
        ("read_uncommitted", ["plain", "aborted 1", "committed 1", "aborted 2", "committed 2", "aborted 3"]),
    ],
)
def test_aborted_records_are_read_only_under_read_uncommitted(
    spark: SparkSession, bootstrap: str, topic: str, isolation_level: str, expected: list[str]
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, ["plain"])
    transactions = Transactions(bootstrap, topic)
    for number in (1, 2):
        transactions.aborted(topic, [f"aborted {number}"])
        transactions.committed(topic, [f"committed {number}"])
    transactions.aborted(topic, ["aborted 3"])

    frame = read(spark, bootstrap, subscribe=topic, kafka__isolation__level=isolation_level)

    assert values(frame) == expected


def test_a_range_of_nothing_but_aborted_records_and_markers_is_empty(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    transactions = Transactions(bootstrap, topic)
    transactions.aborted(topic, ["a", "b"])
    transactions.aborted(topic, ["c"])

    frame = read(spark, bootstrap, subscribe=topic, kafka__isolation__level="read_committed")

    assert frame.count() == 0


def test_an_open_transaction_holds_back_later_records(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, ["before"])
    transactions = Transactions(bootstrap, topic)
    transactions.begin(topic, ["open"])
    produce(bootstrap, topic, ["behind"])
    committed = read(spark, bootstrap, subscribe=topic, kafka__isolation__level="read_committed")
    everything = read(spark, bootstrap, subscribe=topic)

    assert values(committed) == ["before"]
    assert values(everything) == ["before", "open", "behind"]
    transactions.commit()
    assert values(committed) == ["before", "open", "behind"]


def test_many_interleaved_transactions_come_out_each_by_its_own_end(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    writers = [Transactions(bootstrap, f"{topic}-{number}") for number in range(4)]
    for number, writer in enumerate(writers):
        writer.begin(topic, [f"{number}-{row}" for row in range(50)])
    for number, writer in enumerate(writers):
        writer.write(topic, [f"{number}-{row}" for row in range(50, 100)])
    for number, writer in reversed(list(enumerate(writers))):
        if number % 2:
            writer.abort()
        else:
            writer.commit()

    frame = read(spark, bootstrap, subscribe=topic, kafka__isolation__level="read_committed")

    assert sorted(values(frame)) == sorted(f"{number}-{row}" for number in (0, 2) for row in range(100))


def test_topics_are_chosen_by_name_by_pattern_and_by_partition(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    for name in ("one", "two", "other"):
        create_topic(bootstrap, f"{topic}-{name}", partitions=2)
        for partition in range(2):
            produce(bootstrap, f"{topic}-{name}", [f"{name}/{partition}"], partition=partition)

    by_name = read(spark, bootstrap, subscribe=f"{topic}-one, {topic}-other")
    by_pattern = read(spark, bootstrap, subscribePattern=f"{topic}-(one|two)")
    by_partition = read(spark, bootstrap, assign=f'{{"{topic}-one": [1], "{topic}-two": [0]}}')

    assert values(by_name) == ["one/0", "one/1", "other/0", "other/1"]
    assert values(by_pattern) == ["one/0", "one/1", "two/0", "two/1"]
    assert values(by_partition) == ["one/1", "two/0"]


def test_a_pattern_leaves_internal_topics_out(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    Transactions(bootstrap, topic).committed(topic, ["v"])  # makes the transaction coordinator's topic

    frame = read(spark, bootstrap, subscribePattern=f"__transaction_state|{topic}")

    assert values(frame) == ["v"]


def test_offsets_bound_a_read_where_the_first_counts_and_the_last_does_not(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, partitions=2)
    for partition in range(2):
        produce(bootstrap, topic, [f"{partition}/{row}" for row in range(5)], partition=partition)

    frame = read(
        spark,
        bootstrap,
        subscribe=topic,
        startingOffsets=offsets_json(topic, {0: 1, 1: -2}),
        endingOffsets=offsets_json(topic, {0: 3, 1: -1}),
    )

    assert values(frame) == ["0/1", "0/2", "1/0", "1/1", "1/2", "1/3", "1/4"]


def test_times_bound_a_read(spark: SparkSession, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2, retention_ms="-1")
    for hour in range(4):
        for partition in range(2):
            time_ms = DAY_MS + hour * HOUR_MS
            produce(bootstrap, topic, [f"{partition}/{hour}"], partition=partition, timestamp_ms=time_ms)

    by_partition = read(
        spark,
        bootstrap,
        subscribe=topic,
        startingOffsetsByTimestamp=offsets_json(topic, {0: DAY_MS + HOUR_MS, 1: DAY_MS + 2 * HOUR_MS}),
        endingOffsetsByTimestamp=offsets_json(topic, {0: DAY_MS + 2 * HOUR_MS + 1, 1: DAY_MS + 9 * HOUR_MS}),
    )
    for_all = read(spark, bootstrap, subscribe=topic, startingTimestamp=DAY_MS + 3 * HOUR_MS)

    assert values(by_partition) == ["0/1", "0/2", "1/2", "1/3"]
    assert values(for_all) == ["0/3", "1/3"]


def test_a_time_past_every_record_fails_or_reads_from_the_end_as_asked(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, retention_ms="-1")
    produce(bootstrap, topic, ["v"], timestamp_ms=DAY_MS)
    late = {"subscribe": topic, "startingTimestamp": DAY_MS + 1}

    from_the_end = read(spark, bootstrap, **late, startingOffsetsByTimestampStrategy="latest")

    assert values(from_the_end) == []
    with pytest.raises(Exception, match="No offset matched from request of topic-partition"):
        read(spark, bootstrap, **late).collect()


def test_min_partitions_splits_a_partition_among_tasks(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    transactions = Transactions(bootstrap, topic)
    transactions.committed(topic, [f"a {row}" for row in range(100)])
    transactions.aborted(topic, [f"aborted {row}" for row in range(100)])
    transactions.committed(topic, [f"b {row}" for row in range(100)])

    frame = read(
        spark, bootstrap, subscribe=topic, minPartitions=6, kafka__isolation__level="read_committed"
    ).cache()

    assert frame.select(spark_partition_id().alias("task")).distinct().count() >= 4
    assert values(frame) == [f"{name} {row}" for name in "ab" for row in range(100)]
    frame.unpersist()


def test_records_that_retention_took_fail_a_read_or_are_left_out_as_asked(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [str(row) for row in range(10)])
    delete_records(bootstrap, topic, {0: 4})
    from_the_first = {"subscribe": topic, "startingOffsets": offsets_json(topic, {0: 0})}

    tolerant = read(spark, bootstrap, **from_the_first, failOnDataLoss="false")

    assert values(tolerant) == ["4", "5", "6", "7", "8", "9"]
    with pytest.raises(Exception, match="data may have been lost"):
        read(spark, bootstrap, **from_the_first, failOnDataLoss="true").collect()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(spark: SparkSession, bootstrap: str, topic: str, codec: str) -> None:
    create_topic(bootstrap, topic, compression_type=codec)
    produce(bootstrap, topic, [f"{row}" * 100 for row in range(20)])

    assert values(read(spark, bootstrap, subscribe=topic)) == [f"{row}" * 100 for row in range(20)]
