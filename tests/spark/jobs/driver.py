"""`python -m tests.spark.jobs.driver`: runs one of the jobs until it has written its complete output.

The driver reports its batches in the form that `tests.spark.kills.supervisor` expects, and continues from its
checkpoint. A file `fed` in its folder says that the input is complete.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.spark import BatchReport, ExactlyOnceKafkaSink, connector
from tests.spark.jobs.queries import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FED = "fed"
POLL_S = 0.2
PREFIX = "jobs"
GROUP = f"{PREFIX}-group"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    # Executors are killed repeatedly, and one always runs.
    "spark.deploy.maxExecutorRetries": "-1",
    # A task must not wait for an executor that is gone.
    "spark.locality.wait": "0",
    # In such a short run the second compiler costs more than it gains.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.daemon.module": "tests.support.spark_workers",
}


def query_name(kind: str) -> str:
    """The sink's name of the job's query."""
    return f"{PREFIX}-{kind}"


def start(spark: SparkSession, bootstrap: str, folder: Path, name: str, max_offsets: int) -> StreamingQuery:
    """Start the job of this name, with a limit of offsets that a batch takes from each topic."""
    kind = KINDS[name]
    sources = {one: _source(spark, bootstrap, f"{PREFIX}-{one}", max_offsets) for one in kind.inputs}

    def say_written(report: BatchReport) -> None:
        print(f"wrote {name} {report.batch_id} {report.tries}", flush=True)

    sink = ExactlyOnceKafkaSink(
        bootstrap,
        query=query_name(name),
        topic=f"{PREFIX}-{kind.outputs[0]}" if len(kind.outputs) == 1 else None,
        group=GROUP,
        on_report=say_written,
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        print(f"batch {name} {batch_id}", flush=True)
        sink.write(batch, batch_id)

    writer = kind.query(sources, PREFIX).writeStream.queryName(name).foreachBatch(write)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _source(spark: SparkSession, bootstrap: str, topic: str, max_offsets: int) -> DataFrame:
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("kafka.isolation.level", "read_committed").option("subscribe", topic)
    source = source.option("startingOffsets", "earliest").option("includeHeaders", True)
    return source.option("maxOffsetsPerTrigger", max_offsets).load()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.jobs.driver", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--max-offsets", type=int, required=True)
    parser.add_argument("--master", required=True)
    options = parser.parse_args()
    local = options.folder / "spark"
    spark = connector.session("jobs", options.master, **{**SETTINGS, "spark.local.dir": str(local)})
    spark.sparkContext.setLogLevel("ERROR")
    query = start(spark, options.bootstrap, options.folder, options.kind, options.max_offsets)
    while not (options.folder / FED).exists():
        query.awaitTermination(POLL_S)  # raises the query's failure
    query.processAllAvailable()
    for progress in query.recentProgress:
        late = sum(operator.numRowsDroppedByWatermark for operator in progress.stateOperators)
        if late:
            raise AssertionError(f"{late} rows came late in batch {progress.batchId}")
    query.stop()
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    # The JVM ends with this process, so its executors need not be stopped first.
    os._exit(status)
