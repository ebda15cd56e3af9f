"""Spark's own `kafka` sink, unchanged: at least once, by idempotent producers without transactions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.connector.test_connector_source import read, values
from tests.spark.topics import committed_messages, create_topic, produce

PATIENCE_S = 240.0


def write(frame: DataFrame, bootstrap: str, **options: str) -> None:
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def test_each_column_of_a_row_becomes_its_part_of_the_record(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, partitions=3)
    frame = spark.sql(
        "SELECT 'k' AS key, 'v' AS value, 2 AS partition, "
        f"array(struct('h' AS key, CAST('x' AS BINARY) AS value)) AS headers, '{topic}' AS topic"
    )

    write(frame, bootstrap, includeHeaders="true")

    (message,) = committed_messages(bootstrap, topic, partitions=3)
    assert (message.partition(), message.key(), message.value()) == (2, b"k", b"v")
    assert message.headers() == [("h", b"x")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_written_once_each_with_every_codec(
    spark: SparkSession, bootstrap: str, topic: str, codec: str
) -> None:
    create_topic(bootstrap, topic, partitions=3)
    rows = spark.range(0, 1000, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS key", "repeat(CAST(id AS STRING), 20) AS value"
    )

    write(rows, bootstrap, topic=topic, kafka__compression__type=codec)

    assert sorted(values(read(spark, bootstrap, subscribe=topic))) == sorted(
        str(row) * 20 for row in range(1000)
    )


def test_a_stream_is_written_and_goes_on_where_it_left_off(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic)
    create_topic(bootstrap, f"{topic}-out", partitions=2)

    for run in range(2):
        produce(bootstrap, topic, [f"{run}/{row}" for row in range(50)])
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest")
        sink = source.load().select("value").writeStream.format("kafka").option("topic", f"{topic}-out")
        sink = sink.option("kafka.bootstrap.servers", bootstrap).trigger(availableNow=True)
        assert sink.option("checkpointLocation", str(tmp_path)).start().awaitTermination(PATIENCE_S)

    came = [message.value().decode() for message in committed_messages(bootstrap, f"{topic}-out", 2)]
    assert sorted(came) == sorted(f"{run}/{row}" for run in range(2) for row in range(50))
