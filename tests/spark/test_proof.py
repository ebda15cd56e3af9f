"""`barnabas prove` finds what is wrong with a job of examples/prove."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")
pytest.importorskip("confluent_kafka", reason="needs confluent-kafka")

from barnabas.proving.hazards import Hazard, Strike
from barnabas.spark import connector
from examples.prove.__main__ import EXAMPLES, proof_of
from tests.support.requirements import need_program

ROOT = Path(__file__).parents[2]


@pytest.mark.one_run_in(3)
def test_sparks_own_sink_is_found_and_named() -> None:
    need_program("java")
    if not connector.is_fetched():
        pytest.skip("needs Spark's Kafka connector")
    hazard = Hazard("Produce", 2, Strike.PROGRAM_KILLED_AFTER)
    environment = {"PYTHONPATH": str(ROOT)}
    [trial] = proof_of(EXAMPLES["pyspark"], "own-sink", hazards=[hazard], environment=environment).failures
    assert trial.difference.doubled
    assert not trial.difference.lost
    assert ["without a transaction" in each for each in trial.reasons] == [True]
