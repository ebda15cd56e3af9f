"""barnabas answers as Kafka does, script by script, and the recordings are Kafka's answers."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import HANDLERS

from . import recordings
from .cluster_properties import is_cluster
from .conftest import Transcribe
from .diff import differences
from .known_differences import compared, expected_of_barnabas
from .play import STUCK, Script, load_scripts

# One worker plays all scripts for one broker, so that each broker is started once. Another one plays those for
# clusters, which wait longer.
ONE_BROKER, CLUSTERS = pytest.mark.xdist_group("compare"), pytest.mark.xdist_group("compare-clusters")


def _grouped(scripts: list[Script]) -> list[Any]:
    return [
        pytest.param(script, id=script.key, marks=CLUSTERS if is_cluster(script.properties) else ONE_BROKER)
        for script in scripts
    ]


SCRIPTS = sorted(load_scripts().values(), key=lambda script: script.key)
SERVED = [script for script in SCRIPTS if script.served_by(HANDLERS)]


@pytest.mark.parametrize("script", _grouped(SERVED))
def test_barnabas_answers_as_kafka_does(
    script: Script, reference_answers: Transcribe, barnabas_answers: Transcribe
) -> None:
    theirs = expected_of_barnabas(script.name, reference_answers(script))
    found = differences(compared(script.name, theirs), compared(script.name, barnabas_answers(script)))
    assert not found, f"{script.key}: {len(found)} cases differ\n" + "\n".join(found)


@pytest.mark.parametrize("script", _grouped(SCRIPTS))
def test_the_recording_matches_kafkas_answers(script: Script, kafka_answers: Transcribe) -> None:
    recorded = recordings.read(script.key)
    assert recorded is not None, f"nothing recorded for {script.key}; `python -m tests.compare record` does"
    found = differences(recorded, kafka_answers(script), names=("recorded", "Kafka"))
    assert not found, f"{script.key}: {len(found)} cases differ\n" + "\n".join(found)


@pytest.mark.parametrize("script", _grouped(SCRIPTS))
def test_kafka_lets_every_script_go_through(script: Script) -> None:
    recorded = recordings.read(script.key)
    assert recorded is not None
    assert STUCK not in {entry["case"] for entry in recorded}
