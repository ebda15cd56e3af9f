"""The golden vectors of messages against Apache Kafka's own classes of today."""

from __future__ import annotations

import json

import pytest

from tests.golden.remake import remade, stored
from tests.support.requirements import need_apache_kafka, need_program


@pytest.fixture(autouse=True)
def _java() -> None:
    need_program("javac")
    need_apache_kafka()


def of(lines: list[str]) -> set[tuple[str, int]]:
    return {(vector["message"], vector["version"]) for vector in map(json.loads, lines)}


def test_kafka_writes_every_vector_as_it_is_kept_and_there_is_no_message_without_one() -> None:
    assert remade(stored()) == stored()


def test_a_message_without_vectors_gets_some() -> None:
    kept = [line for line in stored() if json.loads(line)["message"] != "CreateTopicsRequest"]
    made = remade(kept)
    assert made[: len(kept)] == kept
    assert of(made) == of(stored())
    full = json.loads(made[-1])
    assert full["message"] == "CreateTopicsRequest"
    [topic] = full["json"]["topics"]
    assert topic["configs"] == [{"name": "name", "value": "value"}]
    assert topic["assignments"] == [{"partitionIndex": 3, "brokerIds": [3]}]
