"""Brokers for the scripts, started when the first script needs them, and what Kafka answered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from . import recordings
from .brokers import Barnabas, Kafka, barnabas_broker, kafka
from .diff import Entry
from .play import Script, play

Transcribe = Callable[[Script], list[Entry]]


@pytest.fixture(scope="session")
def kafka_answers(needs_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcribe]:
    """What Kafka answers to a script: played once. The test skips where Kafka can't be had."""
    with contextlib.ExitStack() as stack:
        brokers: dict[str, Kafka] = {}
        transcripts: dict[str, list[Entry]] = {}

        def answers(script: Script) -> list[Entry]:
            if script.name not in transcripts:
                broker = brokers.get(script.properties)
                if broker is None:
                    folder = tmp_path_factory.mktemp(f"kafka-{script.properties}")
                    broker = brokers[script.properties] = stack.enter_context(
                        kafka(folder, script.properties)
                    )
                transcripts[script.name] = play(script, broker)
            return transcripts[script.name]

        yield answers


@pytest.fixture(scope="session")
def reference_answers(request: pytest.FixtureRequest) -> Transcribe:
    """What Kafka answers, or where it can't be had, what it answered when it was recorded."""
    live: Transcribe | None
    try:
        live = request.getfixturevalue("kafka_answers")
    except pytest.skip.Exception:
        live = None

    def answers(script: Script) -> list[Entry]:
        if live is not None:
            return live(script)
        recorded = recordings.read(script.name)
        assert recorded is not None, (
            f"nothing recorded for {script.name}; `python -m tests.compare record` does"
        )
        return recorded

    return answers


@pytest.fixture(scope="session")
def barnabas_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcribe]:
    """What barnabas answers to a script."""
    with contextlib.ExitStack() as stack:
        brokers: dict[str, Barnabas] = {}

        def answers(script: Script) -> list[Entry]:
            broker = brokers.get(script.properties)
            if broker is None:
                folder = tmp_path_factory.mktemp(f"barnabas-{script.properties}")
                broker = brokers[script.properties] = stack.enter_context(
                    barnabas_broker(folder, script.properties)
                )
            return play(script, broker)

        yield answers
