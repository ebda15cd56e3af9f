"""Spark's own `kafka` source, unchanged, in streaming queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.spark.topics import Transactions, create_topic, delete_records, produce

PATIENCE_S = 240.0


def read_stream(spark: SparkSession, bootstrap: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    for name, value in {"startingOffsets": "earliest", **options}.items():
        reader = reader.option(name.replace("__", "."), str(value))
    return reader.load().selectExpr("CAST(value AS STRING) AS value")


def to_files(frame: DataFrame, folder: Path, **trigger: object) -> StreamingQuery:
    """Start a query that writes each record once into the folder, also over restarts."""
    writer = frame.writeStream.format("text").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(folder / "out"))  # type: ignore[arg-type]


def run_once(frame: DataFrame, folder: Path) -> StreamingQuery:
    query = to_files(frame, folder, availableNow=True)
    assert query.awaitTermination(PATIENCE_S)
    return query


def written(spark: SparkSession, folder: Path) -> list[str]:
    return sorted(row.value for row in spark.read.text(str(folder / "out")).collect())


def test_available_now_reads_all_there_is_in_batches_and_goes_on_where_it_left_off(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, topic, partitions=2)
    for partition in range(2):
        produce(bootstrap, topic, [f"{partition}/{row}" for row in range(10)], partition=partition)
    frame = read_stream(spark, bootstrap, subscribe=topic, maxOffsetsPerTrigger=8)

    query = run_once(frame, tmp_path)

    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [8, 8, 4]
    assert written(spark, tmp_path) == [f"{partition}/{row}" for partition in range(2) for row in range(10)]
    produce(bootstrap, topic, ["later"])
    run_once(frame, tmp_path)
    assert written(spark, tmp_path)[-1] == "later"
    assert len(written(spark, tmp_path)) == 21


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_batches_that_end_inside_transactions_neither_lose_nor_double_a_record(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, isolation_level: str
) -> None:
    create_topic(bootstrap, topic)
    transactions = Transactions(bootstrap, topic)
    for number in range(4):
        transactions.committed(topic, [f"committed {number}{row}" for row in range(5)])
        transactions.aborted(topic, [f"aborted {number}{row}" for row in range(3)])
    options = {"maxOffsetsPerTrigger": 9, "kafka__isolation__level": isolation_level}

    run_once(read_stream(spark, bootstrap, subscribe=topic, **options), tmp_path)

    committed = [f"committed {number}{row}" for number in range(4) for row in range(5)]
    aborted = [f"aborted {number}{row}" for number in range(4) for row in range(3)]
    expected = committed if isolation_level == "read_committed" else aborted + committed
    assert written(spark, tmp_path) == expected


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_a_running_query_reads_new_records_and_waits_for_open_transactions_if_asked(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, isolation_level: str
) -> None:
    create_topic(bootstrap, topic)
    transactions = Transactions(bootstrap, topic)
    frame = read_stream(spark, bootstrap, subscribe=topic, kafka__isolation__level=isolation_level)
    query = to_files(frame, tmp_path, processingTime="100 milliseconds")
    try:
        produce(bootstrap, topic, ["1"])
        transactions.begin(topic, ["2"])
        produce(bootstrap, topic, ["3"])
        query.processAllAvailable()
        assert written(spark, tmp_path) == (["1"] if isolation_level == "read_committed" else ["1", "2", "3"])
        transactions.commit()
        transactions.aborted(topic, ["4"])
        query.processAllAvailable()
        everything = ["1", "2", "3", "4"]
        committed = ["1", "2", "3"]
        assert written(spark, tmp_path) == (committed if isolation_level == "read_committed" else everything)
    finally:
        query.stop()


def test_a_pattern_takes_up_topics_and_partitions_that_are_made_later(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    create_topic(bootstrap, f"{topic}-1")
    produce(bootstrap, f"{topic}-1", ["first"])
    frame = read_stream(spark, bootstrap, subscribePattern=f"{topic}-.*")
    run_once(frame, tmp_path)

    create_topic(bootstrap, f"{topic}-2", partitions=2)
    produce(bootstrap, f"{topic}-2", ["second"], partition=1)
    run_once(frame, tmp_path)

    assert written(spark, tmp_path) == ["first", "second"]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_records_that_retention_took_unread_fail_a_query_or_are_skipped_as_asked(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, fail_on_data_loss: bool
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, ["1", "2"])
    frame = read_stream(spark, bootstrap, subscribe=topic, failOnDataLoss=str(fail_on_data_loss).lower())
    run_once(frame, tmp_path)
    produce(bootstrap, topic, ["3", "4", "5"])
    delete_records(bootstrap, topic, {0: 4})

    if fail_on_data_loss:
        with pytest.raises(StreamingQueryException, match="data may have been lost"):
            run_once(frame, tmp_path)
        assert written(spark, tmp_path) == ["1", "2"]
    else:
        run_once(frame, tmp_path)
        assert written(spark, tmp_path) == ["1", "2", "5"]
