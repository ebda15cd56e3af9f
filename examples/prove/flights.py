"""The two queries of the flights pipeline, over the flights that there are: `python -m examples.prove.flights`."""

from __future__ import annotations

import os
from pathlib import Path

import barnabas
from examples.flights_pipeline import data, feeder

PARTITIONS = 2
EVERY = 2_000
"""Each flight of so many. It is the way that counts, and not how many go it."""
INPUT = "flights"
OUTPUTS = ["flights-enriched", "flights-delays"]


def seed(kafka: barnabas.Broker | barnabas.Cluster) -> None:
    """The topics, and the flights."""
    feeder.create_topics(kafka.bootstrap, [INPUT, *OUTPUTS], PARTITIONS)
    feeder.feed(kafka.bootstrap, INPUT, data.flights(EVERY), PARTITIONS)


def main(bootstrap: str, folder: Path) -> None:
    """One query after the other."""
    # Imported here, since seeding needs no Spark.
    from examples.flights_pipeline.job import Job, run_through, session

    job = Job(bootstrap, data.tables(folder), folder / "checkpoints", max_offsets=60)
    run_through(job, session("flights", folder / "spark"))


if __name__ == "__main__":
    main(os.environ["BARNABAS_BOOTSTRAP"], Path(os.environ["BARNABAS_FOLDER"]))
