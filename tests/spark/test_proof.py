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


FOUND_BY = {
    "own-sink": (Hazard("Produce", 2, Strike.PROGRAM_KILLED_AFTER), "without a transaction"),
    "no-checkpoint": (Hazard("EndTxn", 2, Strike.PROGRAM_KILLED_AFTER), "nothing that it keeps says how far"),
}
"""By which hazard each mistake shows, and what is said of it."""


@pytest.mark.one_run_in(3)
@pytest.mark.parametrize("mistake", FOUND_BY)
def test_each_mistake_with_spark_is_found_and_named(mistake: str) -> None:
    need_program("java")
    if not connector.is_fetched():
        pytest.skip("needs Spark's Kafka connector")
    hazard, why = FOUND_BY[mistake]
    environment = {"PYTHONPATH": str(ROOT)}
    [trial] = proof_of(EXAMPLES["pyspark"], mistake, hazards=[hazard], environment=environment).failures
    assert trial.difference.doubled
    assert not trial.difference.lost
    assert [why in each for each in trial.reasons] == [True]
