"""A worker of Spark that is killed while its task writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import pyarrow as pa

from barnabas.spark import ExactlyOnceKafkaSink
from barnabas.spark import wire as wire_module
from barnabas.spark.wire import Wire
from tests.spark.outputs import create, read, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Name = Callable[[str], str]
ROWS = 300
TIMEOUT_MS = 30_000


def texts(text: str = "", count: int = ROWS) -> list[str]:
    return sorted(f"{text}{number}" for number in range(count))


def test_a_worker_killed_in_the_midst_of_writing_costs_a_try(
    spark: SparkSession, bootstrap: str, name: Name, tmp_path: Path
) -> None:
    topic, once = create(bootstrap, name("out"), 2), tmp_path / "killed"
    sink = ExactlyOnceKafkaSink(bootstrap, query=name("q"), topic=topic)
    count = 100_000  # ten batches of Arrow's, of which buffers on the way hold back two

    def kill_writers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass rows on, and kill the workers that write them, once, when some are in the log."""
        connection = Wire(bootstrap, {}, TIMEOUT_MS)
        for number, batch in enumerate(batches):
            yield batch
            if number == 5 and not once.exists():
                connection.connect()
                leaders = connection.leaders([topic])[topic]
                deadline_s = time.monotonic() + 60
                while time.monotonic() < deadline_s and not any(
                    connection.offset(topic, one, leader, wire_module.LATEST, wire_module.READ_UNCOMMITTED)
                    for one, leader in leaders.items()
                ):
                    time.sleep(0.01)
                once.touch()
                for process in psutil.Process(os.getppid()).children():
                    if process.pid != os.getpid():
                        process.kill()
        connection.close()

    source = spark.range(0, count, 1, 1).selectExpr("cast(id as string) value")
    report = sink.write(source.mapInArrow(kill_writers, "value string"), 0)
    assert once.exists()
    assert report.tries == 2
    assert values(bootstrap, topic) == texts(count=count)
    assert len(read(bootstrap, topic, "read_uncommitted")) > count
