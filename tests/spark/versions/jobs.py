"""The three jobs, run as a file by the Python and PySpark that are tried; all it needs is the extra `spark`.

`jobs.py BOOTSTRAP FOLDER PREFIX [MASTER [NAME=VALUE…]]` reads `PREFIX-in` and writes `PREFIX-keyed`, `PREFIX-unkeyed`
and `PREFIX-killed`, with Spark's settings of these names. It prints the versions, and a line for each batch:
`wrote KIND TRIES ROWS`.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

KINDS = ("keyed", "unkeyed", "killed")
OFFSETS = 200  # in a micro-batch
# A task that is killed has written some of its rows by then.
ROWS_OF_ARROW = 10
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS_OF_ARROW),
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def main(bootstrap: str, folder: str, prefix: str, master: str = "local[2]", *given: str) -> None:
    import kafka
    import pyspark

    from barnabas.spark import connector

    print("versions", pyspark.__version__, platform.python_version(), kafka.__version__, flush=True)
    settings = {"spark.local.dir": f"{folder}/local", **SETTINGS, **dict(one.split("=", 1) for one in given)}
    spark = connector.session("versions", master, **settings)
    spark.sparkContext.setLogLevel("OFF")
    for kind in KINDS:
        run(spark, bootstrap, Path(folder), prefix, kind, kill_executor=not master.startswith("local["))
    spark.stop()


def run(
    spark: SparkSession, bootstrap: str, folder: Path, prefix: str, kind: str, *, kill_executor: bool
) -> None:
    """One query over all that is there. kill_executor: else it is a Python worker that dies."""
    from barnabas.spark import ExactlyOnceKafkaSink

    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    stream = stream.option("subscribe", f"{prefix}-in").option("startingOffsets", "earliest")
    rows = stream.option("maxOffsetsPerTrigger", OFFSETS).load()
    rows = rows.select("value") if kind == "unkeyed" else rows.select("key", "value")
    if kind == "killed":
        # Without a key, so that the task that dies is the one that writes.
        rows = rows.select("value").mapInArrow(
            kill_once(folder / "killed-once", kill_executor), "value binary"
        )
    sink = ExactlyOnceKafkaSink(bootstrap, query=f"{prefix}-{kind}", topic=f"{prefix}-{kind}")

    def write(batch: DataFrame, batch_id: int) -> None:
        report = sink.write(batch, batch_id)
        print("wrote", kind, report.tries, report.records, flush=True)

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / kind))
    writer.trigger(availableNow=True).start().awaitTermination()
    sink.close()


def kill_once(
    mark: Path, kill_executor: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Passes rows on, and kills its process amid them, or the executor's; the first to make the mark alone."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 3:
                try:
                    mark.touch(exist_ok=False)
                except FileExistsError:
                    pass
                else:
                    if kill_executor:
                        # Its JVM started the daemon that forked this worker.
                        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
                        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
                    os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    return task


if __name__ == "__main__":
    main(*sys.argv[1:])
