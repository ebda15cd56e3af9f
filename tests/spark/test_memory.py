"""What is held at a time is bounded by bytes, however large rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import pyarrow as pa

from barnabas.spark import ExactlyOnceKafkaSink, arrow_batches, job, tasks
from barnabas.spark.errors import RowError
from barnabas.spark.plan import Blob, Plan
from barnabas.spark.tasks import Here
from tests.spark.outputs import create, read
from tests.spark.plans import plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name = Callable[[str], str]
ROW_BYTES = 500_000
ROWS = 60


@pytest.fixture
def sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the bytes of each batch that a task was given, a line each."""
    file = tmp_path / "sizes"
    write_rows = tasks.write_rows

    def measured(plan: Plan, gathered_bytes: int = 1) -> Any:
        write = write_rows(plan, gathered_bytes)

        def task(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            def told() -> Iterator[pa.RecordBatch]:
                for batch in rows:
                    with file.open("a") as lines:
                        lines.write(f"{batch.nbytes}\n")
                    yield batch

            yield from write(told())

        return task

    monkeypatch.setattr(tasks, "write_rows", measured)
    return file


@pytest.mark.parametrize("columns", [[], ["cast(id as string) key"]], ids=["without keys", "by key"])
def test_a_task_is_given_a_bounded_number_of_bytes_at_a_time(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, sizes: Path, columns: list[str]
) -> None:
    topic = create(barnabas_bootstrap, name("out"), 2)
    batch = spark.range(0, ROWS, 1, 1).selectExpr(*columns, f"repeat('x', {ROW_BYTES}) value")
    sink = ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topic=topic)
    assert sink.write(batch, 0).records == ROWS
    sink.close()
    assert len(read(barnabas_bootstrap, topic)) == ROWS
    given = [int(line) for line in sizes.read_text().splitlines()]
    assert sum(given) > ROWS * ROW_BYTES
    assert max(given) < job.ARROW_BYTES + 2 * ROW_BYTES


@pytest.mark.parametrize(("owners", "most", "enough"), [(1, 1 << 30, 8), (2, 1 << 30, 4), (1, 500_000, 2)])
def test_a_task_gathers_half_a_batch_for_each_of_its_partitions(
    monkeypatch: pytest.MonkeyPatch, owners: int, most: int, enough: int
) -> None:
    taken, at_first, pools = [0], [], []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            taken[0] += 1
            pools.append(pa.default_memory_pool().backend_name)
            value = arrow_batches.from_bytes([b"x" * 25_000] * 10)
            yield pa.record_batch({"key": arrow_batches.from_bytes([b"%03d" % number] * 10), "value": value})

    def report(plan: Plan, here: Here, blobs: Iterable[Blob]) -> Iterator[Blob]:
        for blob in blobs:
            at_first.append(taken[0])
            yield blob

    monkeypatch.setattr(tasks, "report", report)
    monkeypatch.setattr(Here, "of_this_task", lambda: Here(0, 0, is_again=False))
    told = plan(owners, batch_bytes=1_000_000, t=4)
    before = pa.default_memory_pool().backend_name
    list(tasks.write_rows(told, most)(rows()))
    assert at_first[0] == enough
    assert (set(pools), pa.default_memory_pool().backend_name) == ({"system"}, before)


@pytest.mark.parametrize(("partitions", "copies"), [([2], 0), ([0, 0, 1, 3], 0), ([1, 0], 1)])
def test_rows_that_lie_in_their_partitions_order_are_not_copied_for_it(
    monkeypatch: pytest.MonkeyPatch, partitions: list[int], copies: int
) -> None:
    """As a record of 10 MB, which comes alone."""
    taken: list[int] = []
    take = arrow_batches.Columns.take
    monkeypatch.setattr(
        arrow_batches.Columns, "take", lambda columns, rows: taken.append(len(rows)) or take(columns, rows)
    )
    values = arrow_batches.from_bytes([b"%d" % number for number in range(len(partitions))])
    rows = pa.record_batch({"value": values, "partition": pa.array(partitions, pa.int32())})
    told = plan(1, batch_bytes=1000, t=4)
    blobs = list(tasks.build(told, [rows], [0, 1, 2, 3], 1))
    assert [blob.target for blob in blobs] == sorted(set(partitions))
    assert len(taken) == copies


def test_a_session_keeps_its_own_bound_and_the_thread_its_properties(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, sizes: Path
) -> None:
    topic = create(barnabas_bootstrap, name("out"), 2)
    batch = spark.range(0, 20, 1, 1).selectExpr(f"repeat('x', {ROW_BYTES}) value")
    sink = ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topic=topic)
    spark.conf.set(job.ARROW_SETTING, str(2 * ROW_BYTES))
    try:
        sink.write(batch, 0)
    finally:
        spark.conf.unset(job.ARROW_SETTING)
    sink.close()
    assert max(int(line) for line in sizes.read_text().splitlines()) < 4 * ROW_BYTES
    assert spark.sparkContext.getLocalProperty(job.ARROW_SETTING) is None


def test_a_batch_that_names_topics_without_end_is_refused(
    spark: SparkSession, barnabas_bootstrap: str, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "MOST_TOPICS", 10)
    batch = spark.range(0, 100, 1, 1).selectExpr("'x' value", "concat('topic', id) topic")
    sink = ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"))
    with pytest.raises(RowError, match="holds over 10 names, such as 'topic"):
        sink.write(batch, 0)
    sink.close()
