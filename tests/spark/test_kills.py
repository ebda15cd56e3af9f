"""The flights pipeline, killed at random, ends with the output of an undisturbed run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import barnabas
from examples.flights_pipeline import data, feeder
from tests.spark.kills import flights, outputs, plan
from tests.spark.kills.outputs import PARTITIONS, difference

# A taste of it: `make pipeline-kills` kills each victim 15 times over the whole year, and each driver is a JVM.
EVERY = 200
MAX_OFFSETS = 500
COUNTS = dict.fromkeys(plan.VICTIMS, 1)
SEED = 1


def feed(bootstrap: str) -> None:
    feeder.create_topics(bootstrap, ["flights", "flights-enriched", "flights-delays"], PARTITIONS)
    feeder.feed(bootstrap, "flights", data.flights(EVERY), PARTITIONS)


@pytest.mark.timeout(1800)
@pytest.mark.one_run_in(2)
def test_a_pipeline_with_killed_workers_driver_and_broker_writes_the_same_as_an_undisturbed_one(
    needs_spark: None, tmp_path: Path
) -> None:
    with barnabas.Broker() as broker:
        feed(broker.bootstrap)
        # In larger batches: how the input is cut up is not to be seen in the output.
        flights.supervisor(broker, data.tables(tmp_path / "undisturbed")).run_through([], SEED)
        expected = outputs.read(broker.bootstrap, "flights")
    assert expected.enriched.total() == data.FLIGHTS // EVERY + 1 + PARTITIONS
    of_each_query = expected.enriched.total() // MAX_OFFSETS

    with barnabas.Broker() as broker:
        feed(broker.bootstrap)
        folder = data.tables(tmp_path / "killed")
        kills = plan.draw(SEED, 2 * of_each_query, COUNTS)
        supervisor = flights.supervisor(broker, folder, ["--max-offsets", str(MAX_OFFSETS)], of_each_query)
        run = supervisor.run_through(kills, SEED)
        found = outputs.read(broker.bootstrap, "flights")

    assert run.kills == COUNTS
    assert difference(found.enriched, expected.enriched) == (0, 0)
    assert difference(found.delays, expected.delays) == (0, 0)
