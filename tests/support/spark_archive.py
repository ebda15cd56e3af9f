"""An archive of the classes that Spark loads, from which the tests' JVMs start in half of the time.

`python -m tests.support.spark_archive` makes it, once: class data sharing, as Java calls it, of what a short job loads.
A JVM that can't use it (another version of Java, other jars) says nothing and loads its classes as ever.
"""

from __future__ import annotations

import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A second compiler costs a short session more than it gains.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SILENT = "-Xlog:cds*=off"

ROWS = 200
ENDS_WITHIN_S = 120.0
"""Writing the archive, some 170 MB, takes the JVM ten seconds at its end."""


def path() -> Path:
    """Beside what is installed, since it is of the very jars that are."""
    return Path(sys.prefix) / f"spark-{metadata.version('pyspark')}-classes.jsa"


def jvm_options() -> str:
    """For Spark's JVMs in tests, as SPARK_SUBMIT_OPTS takes them."""
    try:
        archive = path()
    except metadata.PackageNotFoundError:
        return QUICK_JVM
    return f"{QUICK_JVM} -XX:SharedArchiveFile={archive} {SILENT}" if archive.exists() else QUICK_JVM


def make(archive: Path) -> None:
    """Raises barnabas.spark.connector.MissingError, and OSError where there is no room for it."""
    import barnabas
    from tests.support.spark_session import make_session

    with tempfile.TemporaryDirectory(prefix="spark-classes-") as name:
        folder = Path(name)
        # In the folder where it will be: a move must not fail halfway.
        made = archive.with_name(f".{archive.name}.{os.getpid()}")
        os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JVM} -XX:ArchiveClassesAtExit={made} {SILENT}"
        try:
            with barnabas.Broker() as broker:
                session = make_session(folder)
                session.sparkContext.setLogLevel("OFF")
                _run_job(session, broker.bootstrap, folder)
                _end(session)
            if made.exists():
                made.replace(archive)
        finally:
            made.unlink(missing_ok=True)


def _run_job(session: SparkSession, bootstrap: str, folder: Path) -> None:
    """What the tests do, in little: the example's two queries over a few rows, through the sink."""
    from pyspark.sql import functions as fn

    from barnabas.spark import ExactlyOnceKafkaSink
    from examples.flights_pipeline import feeder
    from examples.flights_pipeline.job import FLIGHT, WEATHER, Job, run_through

    feeder.create_topics(bootstrap, ["flights", "flights-enriched", "flights-delays"], 2)
    fields = [field.split() for field in FLIGHT.split(", ")]
    values = [f"CAST(id AS {type}) AS {name}" for name, type in fields if type in ("int", "string")]
    # Numbers that do for a month and for an hour.
    rows = session.range(ROWS).selectExpr("id % 12 + 1 AS id", "TIMESTAMP '2013-01-01' AS hour")
    texts = fn.to_json(fn.struct(*(fn.expr(value) for value in values), fn.col("hour").alias("time_hour")))
    flights = rows.select(fn.lit("AA").alias("key"), texts.alias("value"))
    ExactlyOnceKafkaSink(bootstrap, query="flights", topic="flights").write(flights, 0)
    weather = ",".join(["origin", "time_hour", *WEATHER])
    (folder / "weather.csv").write_text(f"{weather}\n1,2013-01-01T00:00:00Z,1,1,1,1\n")
    (folder / "airlines.csv").write_text("carrier,name\n1,American\n")
    run_through(Job(bootstrap, folder, folder / "checkpoints"), session)
    written = session.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    assert written.option("subscribe", "flights-enriched").load().count() >= ROWS


def _end(session: SparkSession) -> None:
    """Until the JVM has written the archive."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # which is what it waits for
    gateway.proc.wait(ENDS_WITHIN_S)


def main() -> int:
    """0 where it is there now, 2 where it can't be made."""
    from barnabas.spark.connector import MissingError

    try:
        if not path().exists():
            make(path())
    except (MissingError, OSError) as error:
        print(error, file=sys.stderr)
    return 0 if path().exists() else 2


if __name__ == "__main__":
    sys.exit(main())
