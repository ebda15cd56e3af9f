"""The sink as users have it: record form, partitions, the marker, streaming queries, and errors to act on."""

from __future__ import annotations

import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import ExactlyOnceKafkaSink
from barnabas.spark.errors import (
    BatchFailedError,
    ColumnsError,
    InvalidTimeoutError,
    MarkerError,
    QueryFencedError,
    RecordTooLargeError,
    RowError,
    SourceOffsetsError,
    TopicRefusedError,
    UnknownTopicError,
)
from tests.spark.outputs import committed_offsets, create, read, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Name = Callable[[str], str]
ROWS = 1000
KEYED = ["cast(id % 97 as string) key", "cast(id as string) value"]


def numbers(spark: SparkSession, *columns: str, rows: int = ROWS) -> DataFrame:
    return spark.range(0, rows, 1, 3).selectExpr(*(columns or ["cast(id as string) value"]))


def as_text(count: int) -> list[str]:
    return sorted(map(str, range(count)))


def test_a_batch_without_keys_is_written_once(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 4)
    report = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(numbers(spark), 0)
    assert values(bootstrap, topic) == as_text(ROWS)
    assert (report.records, report.tries, report.skipped) == (ROWS, 1, False)


def test_consecutive_batches_reach_every_partition(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 4)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)
    reports = [sink.write(numbers(spark), batch_id) for batch_id in range(4)]
    assert {one.partition for report in reports for one in report.partitions} == {0, 1, 2, 3}


def test_a_batch_that_is_done_is_skipped(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic, query = create(bootstrap, name("out"), 2), name("q")
    ExactlyOnceKafkaSink(bootstrap, query=query, topic=topic).write(numbers(spark), 7)
    again = ExactlyOnceKafkaSink(bootstrap, query=query, topic=topic).write(numbers(spark), 7)
    assert again.skipped
    assert values(bootstrap, topic) == as_text(ROWS)


def test_keys_go_where_javas_default_partitioner_sends_them(
    spark: SparkSession, bootstrap: str, name: Name
) -> None:
    topic, reference = create(bootstrap, name("out"), 5), create(bootstrap, name("java"), 5)
    ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(numbers(spark, *KEYED), 0)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for number in range(97):
        producer.produce(reference, key=str(number), value=b"")
    producer.flush()
    wanted = {one.key: one.partition for one in read(bootstrap, reference)}
    seen = read(bootstrap, topic)
    assert {one.key: one.partition for one in seen} == wanted
    assert len({(one.key, one.partition) for one in seen}) == 97
    assert sorted((one.value or b"").decode() for one in seen) == as_text(ROWS)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read_by_another_client(
    spark: SparkSession, bootstrap: str, name: Name, compression: str
) -> None:
    topic = create(bootstrap, name("out"), 3)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic, compression=compression)
    sink.write(numbers(spark, *KEYED), 0)
    assert values(bootstrap, topic) == as_text(ROWS)


def test_headers_nulls_and_binaries_arrive_as_they_are(
    spark: SparkSession, bootstrap: str, name: Name
) -> None:
    topic = create(bootstrap, name("out"), 1)
    rows: list[Any] = [
        (b"k\0", b"\xff\x00", [("h", b"1"), ("h", None)]),
        (None, None, None),
        (b"", b"", []),
        ("ü".encode(), "😀".encode(), [("ключ", b"")]),
    ]
    schema = "key binary, value binary, headers array<struct<key:string,value:binary>>"
    batch = spark.createDataFrame(rows, schema).coalesce(1)
    ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(batch, 0)
    seen = [(one.key, one.value, one.headers) for one in read(bootstrap, topic)]
    assert seen == [(key, value, headers or []) for key, value, headers in rows]


def test_a_rows_partition_wins_over_its_key(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 4)
    batch = numbers(spark, *KEYED, "if(id % 2 = 0, 3, 1) partition")
    ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(batch, 0)
    assert Counter(one.partition for one in read(bootstrap, topic)) == {3: ROWS // 2, 1: ROWS // 2}


def test_rows_without_key_among_keyed_ones_are_written_too(
    spark: SparkSession, bootstrap: str, name: Name
) -> None:
    topic = create(bootstrap, name("out"), 3)
    batch = numbers(spark, "if(id % 3 = 0, null, cast(id as string)) key", "cast(id as string) value")
    ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(batch, 0)
    assert values(bootstrap, topic) == as_text(ROWS)


@pytest.mark.parametrize("columns", [["cast(id as string) value"], KEYED], ids=["without keys", "by key"])
@pytest.mark.parametrize("named", [True, False], ids=["topics named", "topics found"])
def test_a_topic_column_says_where_each_row_goes(
    spark: SparkSession, bootstrap: str, name: Name, columns: list[str], named: bool
) -> None:
    even, odd = create(bootstrap, name("even"), 2), create(bootstrap, name("odd"), 3)
    batch = numbers(spark, *columns, f"if(id % 2 = 0, '{even}', '{odd}') topic")
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topics=[even, odd] if named else None)
    sink.write(batch, 0)
    assert values(bootstrap, even) == sorted(map(str, range(0, ROWS, 2)))
    assert values(bootstrap, odd) == sorted(map(str, range(1, ROWS, 2)))


def test_the_sinks_topic_wins_over_the_column(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 2)
    batch = numbers(spark, "cast(id as string) value", "'elsewhere' topic", "id other")
    ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(batch, 0)
    assert values(bootstrap, topic) == as_text(ROWS)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("columns", [["cast(id as string) value"], KEYED], ids=["without keys", "by key"])
def test_batches_of_no_row_and_of_one_are_committed(
    spark: SparkSession, bootstrap: str, name: Name, columns: list[str], rows: int
) -> None:
    topic = create(bootstrap, name("out"), 3)
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)
    assert sink.write(numbers(spark, *columns, rows=rows), 0).records == rows
    assert sink.write(numbers(spark, *columns, rows=rows), 0).skipped
    assert values(bootstrap, topic) == as_text(rows)


@pytest.mark.parametrize("columns", [["repeat(cast(id % 10 as string), 100) value"], KEYED])
def test_batches_are_split_to_fit_the_topics_limit(
    spark: SparkSession, bootstrap: str, name: Name, columns: list[str]
) -> None:
    topic = create(bootstrap, name("out"), 1, max_message_bytes=2000)
    report = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(numbers(spark, *columns), 0)
    assert report.partitions[0].batches > 5
    assert len(read(bootstrap, topic)) == ROWS


def test_a_streaming_query_writes_each_record_once_though_its_last_batch_comes_again(
    spark: SparkSession, bootstrap: str, name: Name, tmp_path: Path
) -> None:
    source, topic, query = create(bootstrap, name("in"), 2), create(bootstrap, name("out"), 3), name("q")
    fill(bootstrap, source, 0, 200)
    group = name("group")
    run(spark, bootstrap, source, sink(bootstrap, query, topic, group), tmp_path)
    assert committed_offsets(bootstrap, group) == {(source, 0): 100, (source, 1): 100}
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    shutil.move(last, tmp_path / "lost")  # as if the driver had died between EndTxn and Spark's own commit
    crc = last.with_name(f".{last.name}.crc")
    crc.unlink()
    fill(bootstrap, source, 200, 300)
    reports = run(spark, bootstrap, source, sink(bootstrap, query, topic, group), tmp_path)
    assert [report.skipped for report in reports] == [True, False]
    assert values(bootstrap, topic) == as_text(300)
    assert committed_offsets(bootstrap, group) == {(source, 0): 150, (source, 1): 150}


def test_a_new_checkpoint_under_the_same_name_begins_again(
    spark: SparkSession, bootstrap: str, name: Name, tmp_path: Path
) -> None:
    source, topic, query = create(bootstrap, name("in"), 2), create(bootstrap, name("out"), 3), name("q")
    fill(bootstrap, source, 0, 50)
    for checkpoint in ("first", "second"):
        run(spark, bootstrap, source, sink(bootstrap, query, topic), tmp_path / checkpoint)
    assert values(bootstrap, topic) == sorted([*map(str, range(50))] * 2)


def test_two_checkpoints_side_by_side_under_one_name_are_distinguished(
    spark: SparkSession, bootstrap: str, name: Name, tmp_path: Path
) -> None:
    source, topic, query = create(bootstrap, name("in"), 2), create(bootstrap, name("out"), 3), name("q")
    fill(bootstrap, source, 0, 50)
    for checkpoint in ("first", "second"):
        run(spark, bootstrap, source, sink(bootstrap, query, topic), tmp_path / checkpoint)
    fill(bootstrap, source, 50, 60)
    with pytest.raises(Exception, match="is used by another query, with the checkpoint"):
        run(spark, bootstrap, source, sink(bootstrap, query, topic), tmp_path / "first")


def test_a_query_that_fails_names_the_sinks_reason(
    spark: SparkSession, bootstrap: str, name: Name, tmp_path: Path
) -> None:
    source = create(bootstrap, name("in"), 1)
    fill(bootstrap, source, 0, 5)
    with pytest.raises(Exception, match="the topic nowhere doesn't exist"):
        run(spark, bootstrap, source, sink(bootstrap, name("q"), "nowhere"), tmp_path)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["id as v"], "needs a column 'value' of string or binary; the batch has: v"),
        (["id as value"], "'value' has the type bigint, and must be string or binary"),
        (["'x' value", "id partition"], "'partition' has the type bigint, and must be int"),
        (["'x' value", "array('h') headers"], "'headers' has the type array<string>"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    spark: SparkSession, bootstrap: str, name: Name, columns: list[str], told: str
) -> None:
    with pytest.raises(ColumnsError, match=told):
        ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic="t").write(numbers(spark, *columns), 0)


def test_a_sink_without_a_topic_asks_for_one(spark: SparkSession, bootstrap: str, name: Name) -> None:
    with pytest.raises(ColumnsError, match=r"Give the sink a topic=\.\.\., or the batch a column 'topic'"):
        ExactlyOnceKafkaSink(bootstrap, query=name("q")).write(numbers(spark), 0)


def test_an_unknown_topic_is_named(spark: SparkSession, bootstrap: str, name: Name) -> None:
    with pytest.raises(UnknownTopicError, match="the topic nowhere doesn't exist"):
        ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic="nowhere").write(numbers(spark), 0)


def test_a_topic_that_was_not_announced_is_named(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 2)
    batch = numbers(spark, "'x' value", "'elsewhere' topic")
    with pytest.raises(UnknownTopicError, match="a row's topic is 'elsewhere'"):
        ExactlyOnceKafkaSink(bootstrap, query=name("q"), topics=[topic]).write(batch, 0)
    assert read(bootstrap, topic) == []


def test_a_partition_that_is_not_there_is_named(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 2)
    batch = numbers(spark, "'x' value", "cast(id % 3 as int) partition")
    with pytest.raises(RowError, match=r"a row's partition is 2, but .* has the partitions 0 to 1"):
        ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(batch, 0)
    assert read(bootstrap, topic) == []


def test_a_null_topic_is_refused(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 2)
    batch = numbers(spark, "'x' value", f"if(id = 5, null, '{topic}') topic")
    with pytest.raises(RowError, match="a row's topic is null"):
        ExactlyOnceKafkaSink(bootstrap, query=name("q"), topics=[topic]).write(batch, 0)


def test_topics_with_log_append_time_are_refused(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 2, message_timestamp_type="LogAppendTime")
    with pytest.raises(TopicRefusedError, match=r"message\.timestamp\.type=LogAppendTime"):
        ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(numbers(spark), 0)


def test_a_record_that_is_too_large_is_refused_with_both_sizes(
    spark: SparkSession, bootstrap: str, name: Name
) -> None:
    topic = create(bootstrap, name("out"), 2, max_message_bytes=500)
    batch = numbers(spark, "repeat('x', 600) value", rows=3)
    with pytest.raises(RecordTooLargeError, match=r"of 67\d bytes, with 1 record.* max.message.bytes=500"):
        ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic).write(batch, 0)


def test_a_timeout_above_the_brokers_is_refused_with_both(
    spark: SparkSession, bootstrap: str, name: Name
) -> None:
    topic = create(bootstrap, name("out"), 2)
    one = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic, transaction_timeout_ms=900_001)
    with pytest.raises(
        InvalidTimeoutError, match=r"=900001 is more than .*transaction.max.timeout.ms=900000"
    ):
        one.write(numbers(spark), 0)


def test_a_marker_that_would_be_forgotten_is_refused(spark: SparkSession, bootstrap: str, name: Name) -> None:
    one = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=create(bootstrap, name("out"), 2))
    create(bootstrap, one.marker_topic, 1)
    with pytest.raises(MarkerError, match=r"cleanup\.policy=delete"):
        one.write(numbers(spark), 0)


def test_a_group_without_a_streaming_query_is_refused(
    spark: SparkSession, bootstrap: str, name: Name
) -> None:
    with pytest.raises(SourceOffsetsError, match="a batch by hand"):
        sink(bootstrap, name("q"), "t", "group").write(numbers(spark), 0)


def test_a_job_that_fails_always_is_tried_so_often_and_leaves_nothing(
    spark: SparkSession, bootstrap: str, name: Name
) -> None:
    topic = create(bootstrap, name("out"), 2)
    batch = numbers(spark, "if(id = 999, raise_error('no such luck'), cast(id as string)) value")
    one = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic, max_tries=2)
    with pytest.raises(BatchFailedError, match=r"failed 2 time\(s\)"):
        one.write(batch, 0)
    assert read(bootstrap, topic) == []


def test_a_sink_can_be_pickled_and_goes_on(spark: SparkSession, bootstrap: str, name: Name) -> None:
    topic = create(bootstrap, name("out"), 2)
    one = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)
    one(numbers(spark), 0)
    assert pickle.loads(pickle.dumps(one)).write(numbers(spark), 0).skipped


def test_a_fenced_query_is_no_retried_error() -> None:
    assert not QueryFencedError.retried


def sink(bootstrap: str, query: str, topic: str, group: str | None = None) -> ExactlyOnceKafkaSink:
    return ExactlyOnceKafkaSink(bootstrap, query=query, topic=topic, group=group)


def fill(bootstrap: str, topic: str, first: int, end: int) -> None:
    """Numbers in turn to the partitions 0 and 1."""
    producer = Producer({"bootstrap.servers": bootstrap})
    several = len(producer.list_topics(topic, 10).topics[topic].partitions) > 1
    for number in range(first, end):
        producer.produce(topic, value=str(number), partition=number % 2 if several else 0)
    producer.flush()


def run(
    spark: SparkSession, bootstrap: str, source: str, one: ExactlyOnceKafkaSink, checkpoint: Path
) -> list[Any]:
    """A streaming query over what there is; the reports of its batches."""
    reports = []

    def each(batch: DataFrame, batch_id: int) -> None:
        one(batch.selectExpr("key", "value"), batch_id)
        reports.append(one.last_report)

    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    stream = stream.option("subscribe", source).option("startingOffsets", "earliest")
    query = (
        stream.load()
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return reports
