"""The PySpark job: two streaming queries, one behind the other.

`python -m examples.flights_pipeline.job` runs it by itself, over all that the topics hold, and goes on where an earlier
run was killed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn
from pyspark.sql.types import StringType

from barnabas.spark import ExactlyOnceKafkaSink, connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

FLIGHT = (
    "id int, year int, month int, day int, hour int, minute int, dep_delay int, arr_delay int, "
    "carrier string, flight int, origin string, dest string, distance int, time_hour timestamp"
)
ENRICHED = (
    "id int, at timestamp, carrier string, airline string, flight int, origin string, dest string, dep_delay int, "
    "arr_delay int, weather string, temp double, wind_speed double, visib double, precip double"
)
# A year goes by within seconds, and partitions don't hold the same share of each month.
LATEST_FLIGHT = "60 days"


@dataclass(frozen=True, slots=True)
class Job:
    """What to run on what.

    prefix: of topics and queries: `flights` reads `flights`, writes `flights-enriched` and `flights-delays`.
    tables: the folder with weather.csv and airlines.csv.
    max_offsets: how many offsets a micro-batch takes at most; 0 takes all there are.
    exactly_once: else Spark's own sink writes.
    told: hears of each micro-batch: `batch enriched 7` when it begins, `wrote enriched 7 2` when it was written, in as
        many tries.
    """

    bootstrap: str
    tables: Path
    checkpoints: Path
    prefix: str = "flights"
    max_offsets: int = 0
    exactly_once: bool = True
    told: Callable[[str], None] = lambda what: None

    def enrich(self, spark: SparkSession, **trigger: Any) -> StreamingQuery:
        """Begin to join flights with the weather at their hour and the name of their airline."""
        weather = spark.read.csv(str(self.tables / "weather.csv"), header=True, nullValue="NA").selectExpr(
            "origin",
            "CAST(time_hour AS TIMESTAMP) AS time_hour",
            *(f"CAST({name} AS DOUBLE) AS {name}" for name in WEATHER),
        )
        weather = weather.dropDuplicates(["origin", "time_hour"])
        airlines = spark.read.csv(str(self.tables / "airlines.csv"), header=True)
        airlines = airlines.withColumnRenamed("name", "airline")
        kind = fn.udf(kind_of_weather, StringType(), useArrow=False)
        flights = self._read(spark, self.prefix, FLIGHT).withColumn(
            "at", fn.expr("make_timestamp(year, month, day, hour, minute, 0)")
        )
        joined = (
            flights.join(fn.broadcast(weather), ["origin", "time_hour"], "left")
            .join(fn.broadcast(airlines), "carrier", "left")
            .withColumn("weather", kind(*WEATHER))
        )
        columns = [column.split()[0] for column in ENRICHED.split(", ")]
        records = joined.select(
            fn.col("carrier").alias("key"), fn.to_json(fn.struct(*columns)).alias("value")
        )
        return self._write(records, "enriched", **trigger)

    def aggregate(self, spark: SparkSession, **trigger: Any) -> StreamingQuery:
        """Begin to sum up delays by day and airline; a day comes out once, when it is over."""
        flights = self._read(spark, f"{self.prefix}-enriched", ENRICHED)
        late = fn.when(fn.col("dep_delay") > 0, fn.col("dep_delay")).otherwise(0)
        foul = fn.col("weather") != "fair"
        days = (
            flights.withWatermark("at", LATEST_FLIGHT)
            .groupBy(fn.window("at", "1 day").alias("day"), "carrier", "airline")
            .agg(
                fn.count("*").alias("flights"),
                fn.count("dep_delay").alias("flown"),
                fn.sum(late).alias("minutes_late"),
                fn.count_if(foul).alias("in_foul_weather"),
                fn.sum(fn.when(foul, late).otherwise(0)).alias("minutes_late_in_foul_weather"),
            )
            .withColumn("day", fn.to_date("day.start"))
        )
        records = days.select(
            fn.concat_ws("/", "day", "carrier").alias("key"), fn.to_json(fn.struct("*")).alias("value")
        )
        return self._write(records, "delays", **trigger)

    def _read(self, spark: SparkSession, topic: str, schema: str) -> DataFrame:
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        source = source.option("kafka.isolation.level", "read_committed").option("subscribe", topic)
        source = source.option("startingOffsets", "earliest")
        if self.max_offsets:
            source = source.option("maxOffsetsPerTrigger", self.max_offsets)
        parsed = fn.from_json(fn.col("value").cast("string"), schema)
        return source.load().select(parsed.alias("record")).select("record.*")

    def _write(self, records: DataFrame, name: str, **trigger: Any) -> StreamingQuery:
        query, checkpoint = f"{self.prefix}-{name}", self.checkpoints / name
        writer = records.writeStream.queryName(query).option("checkpointLocation", str(checkpoint))
        sink = ExactlyOnceKafkaSink(self.bootstrap, query=query, topic=query, compression="lz4")

        def write(batch: DataFrame, batch_id: int) -> None:
            self.told(f"batch {name} {batch_id}")
            if self.exactly_once:
                tries = sink.write(batch, batch_id).tries
            else:
                self._write_at_least_once(batch, query)
                tries = 1
            self.told(f"wrote {name} {batch_id} {tries}")

        return writer.foreachBatch(write).trigger(**trigger).start()

    def _write_at_least_once(self, batch: DataFrame, topic: str) -> None:
        writer = batch.write.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        writer.option("topic", topic).option("kafka.compression.type", "lz4").save()


WEATHER = ("temp", "precip", "visib", "wind_speed")


def kind_of_weather(
    temp: float | None, precip: float | None, visib: float | None, wind_speed: float | None
) -> str:
    """One word for it. temp: °F; precip: inches in the hour; visib: miles; wind_speed: miles an hour."""
    if precip:
        return "snow" if temp is not None and temp < 34 else "rain"
    if visib is not None and visib < 3:
        return "fog"
    return "wind" if wind_speed is not None and wind_speed > 25 else "fair"


def session(name: str, folder: Path, **settings: Any) -> SparkSession:
    """A session for the job. Raises connector.MissingError."""
    spark = connector.session(
        name,
        # A task that fails is tried again, as on a cluster.
        "local[2,4]",
        **{
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.streaming.metricsEnabled": "false",
            "spark.sql.streaming.minBatchesToRetain": "5",
            "spark.driver.memory": "1g",
            # For a job of half a minute the second compiler costs more than it gains.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.local.dir": str(folder),
            **settings,
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def run_through(job: Job, spark: SparkSession) -> None:
    """Both queries one after the other, over all that is there now. Raises what fails them."""
    for begin in (job.enrich, job.aggregate):
        begin(spark, availableNow=True).awaitTermination()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.flights_pipeline.job", description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("folder", type=Path, help="checkpoints, and the tables weather.csv and airlines.csv")
    parser.add_argument("--prefix", default="flights")
    parser.add_argument("--max-offsets", type=int, default=0)
    parser.add_argument("--at-least-once", action="store_true", help="with Spark's own sink")
    options = parser.parse_args()
    job = Job(
        options.bootstrap,
        options.folder,
        options.folder / "checkpoints",
        options.prefix,
        options.max_offsets,
        not options.at_least_once,
        lambda what: print(what, flush=True),
    )
    run_through(job, session("flights", options.folder / "spark"))
    print("done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
