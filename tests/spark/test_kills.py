"""The flights pipeline, killed at random, ends with the output of an undisturbed run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import barnabas
from examples.flights_pipeline import data, feeder
from examples.flights_pipeline.job import Job, run_through
from tests.spark.kills import outputs, plan
from tests.spark.kills.outputs import PARTITIONS, difference
from tests.spark.kills.supervisor import Supervisor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY = 40
MAX_OFFSETS = 1_200
OF_EACH = 3
SEED = 1


def feed(bootstrap: str) -> None:
    feeder.create_topics(bootstrap, ["flights", "flights-enriched", "flights-delays"], PARTITIONS)
    feeder.feed(bootstrap, "flights", data.flights(EVERY), PARTITIONS)


@pytest.mark.timeout(600)
def test_a_pipeline_whose_workers_driver_and_broker_are_killed_writes_what_an_undisturbed_one_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    begun: list[str] = []
    with barnabas.Broker() as broker:
        feed(broker.bootstrap)
        folder = data.tables(tmp_path / "undisturbed")
        job = Job(
            broker.bootstrap, folder, folder / "checkpoints", max_offsets=MAX_OFFSETS, told=begun.append
        )
        run_through(job, spark)
        expected = outputs.read(broker.bootstrap, "flights")
    assert expected.enriched.total() == data.FLIGHTS // EVERY + 1 + PARTITIONS
    batches = [line.split()[1] for line in begun if line.startswith("batch ")]

    with barnabas.Broker() as broker:
        feed(broker.bootstrap)
        folder = data.tables(tmp_path / "killed")
        supervisor = Supervisor(broker, folder, ["--max-offsets", str(MAX_OFFSETS)])
        kills = plan.draw(SEED, len(batches), OF_EACH)
        run = supervisor.run_through(kills, batches.count("enriched"), SEED)
        found = outputs.read(broker.bootstrap, "flights")

    assert run.kills == dict.fromkeys(plan.VICTIMS, OF_EACH)
    assert difference(found.enriched, expected.enriched) == (0, 0)
    assert difference(found.delays, expected.delays) == (0, 0)
