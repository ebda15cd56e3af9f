"""The sink in a streaming query: which batch it is given, by whom, and what a skipped one leaves behind."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from barnabas.spark import ExactlyOnceKafkaSink
from barnabas.spark.errors import SecondFrameError
from tests.spark.outputs import create, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Name = Callable[[str], str]
Each = Callable[[Any, int], None]


@pytest.fixture
def sink(barnabas_bootstrap: str, name: Name) -> ExactlyOnceKafkaSink:
    topic = create(barnabas_bootstrap, name("out"), 2)
    return ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topic=topic)


def written(sink: ExactlyOnceKafkaSink) -> list[str]:
    assert sink.settings.topic is not None
    return values(sink.settings.bootstrap, sink.settings.topic)


def run(stream: DataFrame, each: Each, checkpoint: Path) -> None:
    writer = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def words(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of one batch."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "words.txt").write_text("one\ntwo\n")
    return spark.readStream.text(str(tmp_path / "in"))


def test_a_thread_that_is_not_the_querys_is_refused(
    sink: ExactlyOnceKafkaSink, words: DataFrame, tmp_path: Path
) -> None:
    def each(batch: DataFrame, batch_id: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(sink.write, batch, batch_id).result()

    with pytest.raises(Exception, match="its foreachBatch function was called in another thread"):
        run(words, each, tmp_path / "checkpoint")


def test_a_thread_that_inherits_from_the_querys_writes_for_it(
    sink: ExactlyOnceKafkaSink, words: DataFrame, tmp_path: Path
) -> None:
    from pyspark import InheritableThread

    def each(batch: DataFrame, batch_id: int) -> None:
        thread = InheritableThread(target=sink.write, args=(batch, batch_id))
        thread.start()
        thread.join()

    for checkpoint in ("first", "second"):
        run(words, each, tmp_path / checkpoint)
    assert written(sink) == ["one", "one", "two", "two"]


def test_a_batch_by_hand_beside_a_query_is_written_where_it_is_called_one(
    sink: ExactlyOnceKafkaSink, words: DataFrame, tmp_path: Path
) -> None:
    def each(batch: DataFrame, batch_id: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(sink.write, batch, 7, by_hand=True).result()

    run(words, each, tmp_path / "checkpoint")
    assert written(sink) == ["one", "two"]


def test_a_second_frame_of_one_batch_is_refused(
    sink: ExactlyOnceKafkaSink, words: DataFrame, tmp_path: Path
) -> None:
    def each(batch: DataFrame, batch_id: int) -> None:
        for word in ("one", "two"):
            sink.write(batch.where(f"value = '{word}'"), batch_id)

    with pytest.raises(Exception, match="several frames joined by unionByName"):
        run(words, each, tmp_path / "checkpoint")
    assert written(sink) == ["one"]


def test_the_same_frame_again_is_skipped_and_that_is_logged(
    sink: ExactlyOnceKafkaSink, words: DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    skipped: list[bool] = []

    def each(batch: DataFrame, batch_id: int) -> None:
        for _ in range(3):
            skipped.append(sink.write(batch.where("value <> 'two'"), batch_id).skipped)

    with caplog.at_level(logging.WARNING):
        run(words, each, tmp_path / "checkpoint")
    assert skipped == [False, True, True]
    assert written(sink) == ["one"]
    assert caplog.text.count("batch 0 is already committed; skipping it") == 2


def test_a_second_frame_by_hand_is_refused_too(spark: SparkSession, sink: ExactlyOnceKafkaSink) -> None:
    rows = spark.range(3).selectExpr("cast(id as string) value")
    sink.write(rows.where("value = '0'"), 5)
    with pytest.raises(SecondFrameError, match="already wrote batch 5"):
        sink.write(rows.where("value = '1'"), 5)
    assert not sink.write(rows.where("value = '1'"), 6).skipped
    assert written(sink) == ["0", "1"]


def test_a_worker_killed_while_topics_are_found_costs_a_try(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, tmp_path: Path
) -> None:
    topic, once = create(barnabas_bootstrap, name("out"), 2), tmp_path / "killed"

    def die_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not once.exists():
            once.touch()
            os._exit(1)
        yield from batches

    rows = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) value", f"'{topic}' topic")
    sink = ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"))
    report = sink.write(rows.mapInArrow(die_once, "value string, topic string"), 0)
    assert once.exists()
    assert report.tries == 2
    assert values(barnabas_bootstrap, topic) == sorted(map(str, range(10)))


def test_a_jobs_failure_names_the_users_own_error(spark: SparkSession, sink: ExactlyOnceKafkaSink) -> None:
    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise RuntimeError("the user's own mistake")

    rows = spark.range(0, 10, 1, 1).selectExpr("cast(id as string) value").mapInArrow(fail, "value string")
    sink.settings = replace(sink.settings, max_tries=1)
    with pytest.raises(Exception, match="RuntimeError: the user's own mistake"):
        sink.write(rows, 0)


@pytest.fixture
def without_batches_of_no_data(spark: SparkSession) -> Iterator[None]:
    setting = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(setting, "false")
    yield
    spark.conf.unset(setting)


@pytest.mark.usefixtures("without_batches_of_no_data")
@pytest.mark.parametrize("disturbed", [False, True])
def test_a_query_with_a_watermark_goes_on_from_a_skipped_batch_as_if_undisturbed(
    spark: SparkSession, sink: ExactlyOnceKafkaSink, tmp_path: Path, disturbed: bool
) -> None:
    arrivals, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    arrivals.mkdir()
    events = spark.readStream.schema("at timestamp").json(str(arrivals)).withWatermark("at", "0 seconds")
    counts = events.groupBy(F.window("at", "10 seconds")).count()
    lines = counts.selectExpr("concat(date_format(window.start, 'ss'), ':', count) value")
    skipped: list[bool] = []

    def each(batch: DataFrame, batch_id: int) -> None:
        skipped.append(sink.write(batch, batch_id).skipped)

    for number, second in enumerate((1, 25, 47)):
        (arrivals / f"{number}.json").write_text(f'{{"at": "2026-01-01T00:00:{second:02}Z"}}\n')
        run(lines, each, checkpoint)
        if disturbed and number == 1:
            # As if the driver had died between EndTxn and Spark's own commit of the batch.
            for file in (checkpoint / "commits").glob("*1*"):
                file.unlink()
    assert skipped == ([False, False, True, False] if disturbed else [False] * 3)
    # The first window is written for the watermark that the second batch had moved past it.
    assert written(sink) == ["00:1"]


# A source of files counts its batches in `sources`: put back as well, it counts on from there.
@pytest.mark.parametrize("logs", [["offsets", "commits"], ["offsets", "commits", "sources/0"]])
def test_a_checkpoint_that_was_put_back_fails_the_query_where_its_batch_would_be_skipped(
    spark: SparkSession, sink: ExactlyOnceKafkaSink, tmp_path: Path, logs: list[str]
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    stream = spark.readStream.text(str(folder))
    for word in ("one", "two"):
        (folder / word).write_text(word)
        run(stream, sink, checkpoint)
    for log in logs:
        (checkpoint / log / "1").unlink()
        (checkpoint / log / ".1.crc").unlink(missing_ok=True)
    (folder / "three").write_text("three")
    with pytest.raises(StreamingQueryException, match="the checkpoint was put back to an earlier state"):
        run(stream, sink, checkpoint)
    assert written(sink) == ["one", "two"]
    sink.close()
