"""Orders in, bills out, exactly once, with PySpark: `python -m examples.prove.with_pyspark [MISTAKE]`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from barnabas.spark import ExactlyOnceKafkaSink
from examples.flights_pipeline.job import session

PER_BATCH = 4


def main(bootstrap: str, folder: Path, mistake: str = "") -> None:
    """One query, over all the orders that there are."""
    spark = session("billing", folder / "spark")
    orders = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", PER_BATCH)
        .load()
    )
    bills = orders.selectExpr("key", "concat('bill for ', CAST(value AS STRING)) AS value").writeStream
    if mistake == "own-sink":
        bills = bills.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", "bills")
    else:
        bills = bills.foreachBatch(ExactlyOnceKafkaSink(bootstrap, query="billing", topic="bills"))
    checkpoint = tempfile.mkdtemp(dir=folder) if mistake == "no-checkpoint" else str(folder / "checkpoint")
    bills.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(os.environ["BARNABAS_BOOTSTRAP"], Path(os.environ["BARNABAS_FOLDER"]), *sys.argv[1:])
