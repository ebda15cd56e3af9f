"""What a stage was made of gets lost while it runs, and Spark repeats it for the tasks that have not ended."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import pyarrow as pa

from barnabas.spark import ExactlyOnceKafkaSink, tasks, transaction
from barnabas.spark import catalyst as stages
from barnabas.spark.plan import Plan
from tests.spark.outputs import create, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Name = Callable[[str], str]
ROWS = 1000
OWNERS = 4  # on two cores: half of them begin when the others are done


@pytest.fixture
def lost(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Once, when the first task has written, a map output that it read is deleted; then this file is there."""
    flag = tmp_path / "lost"
    files = Path(spark.conf.get("spark.local.dir") or "")
    write_rows, plan_of = tasks.write_rows, transaction._plan

    def lose() -> None:
        outputs = [(*map(int, file.name.split("_")[1:3]), file) for file in files.rglob("shuffle_*_0.*")]
        last = max(shuffle for shuffle, _, _ in outputs)
        first = min(task for shuffle, task, _ in outputs if shuffle == last)
        for shuffle, task, file in outputs:
            if (shuffle, task) == (last, first):
                file.unlink()
        flag.touch()

    def write_and_lose(plan: Plan, gathered_bytes: int = 1) -> Any:
        write = write_rows(plan, gathered_bytes)

        def task(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            yield from write(rows)
            context = TaskContext.get()
            assert context is not None
            if context.partitionId() == 0 and not flag.exists():
                lose()
            deadline_s = time.monotonic() + 60
            while not flag.exists() and time.monotonic() < deadline_s:
                time.sleep(0.01)

        return task

    monkeypatch.setattr(tasks, "write_rows", write_and_lose)
    monkeypatch.setattr(transaction, "_plan", lambda *given: replace(plan_of(*given), owners=OWNERS))
    return flag


def other_keys_each_time(spark: SparkSession) -> DataFrame:
    """The sink shuffles these by keys that are others when they are computed again."""

    def keyed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from uuid import uuid4

        for batch in batches:
            keys = pa.array([uuid4().hex for _ in range(len(batch))], pa.string())
            yield pa.RecordBatch.from_arrays([keys, batch.column(0)], ["key", "value"])

    rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) value")
    return rows.mapInArrow(keyed, "key string, value string")


def other_tasks_each_time(spark: SparkSession) -> DataFrame:
    """The sink doesn't shuffle these, which come from a shuffle by what is another number each time."""

    def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from random import getrandbits

        for batch in batches:
            numbers = pa.array([getrandbits(31) for _ in range(len(batch))], pa.int32())
            yield pa.RecordBatch.from_arrays([numbers, batch.column(0)], ["number", "value"])

    rows = spark.range(0, ROWS, 1, 2).selectExpr("cast(id as string) value")
    return rows.mapInArrow(numbered, "number int, value string").repartition(OWNERS, "number").select("value")


@pytest.mark.parametrize(
    ("batch", "told"),
    [
        (other_keys_each_time, rf"the Spark job failed: \[USER_RAISED_EXCEPTION\] {stages.REPEATED}"),
        # A later Spark, such as 4.3, sees by itself that it can't take back what tasks of the stage have ended with.
        (other_tasks_each_time, rf"batch 0 failed: ({stages.REPEATED}|the Spark job failed: )"),
    ],
)
def test_map_output_that_is_lost_while_it_is_written_costs_a_try_and_no_record(
    spark: SparkSession,
    barnabas_bootstrap: str,
    name: Name,
    lost: Path,
    batch: Callable[[SparkSession], DataFrame],
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = create(barnabas_bootstrap, name("out"), OWNERS)
    report = ExactlyOnceKafkaSink(barnabas_bootstrap, query=name("q"), topic=topic).write(batch(spark), 0)
    assert lost.exists()
    assert values(barnabas_bootstrap, topic) == sorted(map(str, range(ROWS)))
    assert report.tries == 2
    assert re.search(told, caplog.text)


def test_a_stage_that_is_not_repeated_says_so(spark: SparkSession) -> None:
    rows = stages.only_first(spark.range(0, 6, 1, 2)).select("id", stages.attempt(spark).alias("attempt"))
    assert [(row.id, row.attempt) for row in rows.collect()] == [(number, 0) for number in range(6)]


FORGET = "m\n"
"""How the commands begin by which the JVM is told that an object is garbage here, whenever that is collected."""


def test_the_values_common_to_all_batches_are_asked_of_the_jvm_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by another session, of which each batch of a streaming query has one."""
    stages.only_first(spark.range(1))
    rows = spark.newSession().range(1)
    client = type(spark.sparkContext._jvm._gateway_client)  # type: ignore[union-attr]
    send, asked = client.send_command, []

    def counted(*arguments: Any, **named: Any) -> Any:
        if not arguments[1].startswith(FORGET):
            asked.append(arguments[1])
        return send(*arguments, **named)

    monkeypatch.setattr(client, "send_command", counted)
    stages.only_first(rows)
    assert len(asked) <= 3
