"""Brokers for the scripts, started when the first script needs them, and Kafka's answers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import pytest

from . import recordings
from .clusters import barnabas_for, kafka_for
from .diff import Entry
from .play import Script, load_scripts, play
from .sampling import ALL, WANTED, drawn, drawn_for_barnabas

AnyBroker = TypeVar("AnyBroker")
Transcribe = Callable[[Script], list[Entry]]

FOLDER = Path(__file__).parent


_TO_KAFKA = "test_the_recording_matches_kafkas_answers"
_TO_BARNABAS = "test_barnabas_answers_as_kafka_does"

_played_to_kafka = pytest.StashKey[frozenset[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the scripts of one broker follow each other, otherwise in the drawn order. Deselect tests that only play to
    Apache Kafka, for scripts that this run doesn't play to it; and likewise for a cluster of ours."""
    played = to_barnabas = frozenset(load_scripts())
    if WANTED != ALL and not config.getoption("keyword"):  # who names a script wants it played
        seed = config.getoption("randomly_seed", 0)
        played = drawn(load_scripts().values(), seed)
        to_barnabas = drawn_for_barnabas(load_scripts().values(), seed)
    config.stash[_played_to_kafka] = played
    by_test = {_TO_KAFKA: played, _TO_BARNABAS: to_barnabas}
    left_out = {item for item in items if _is_left_out(item, by_test)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    places = [place for place, item in enumerate(items) if _script_of(item) is not None]
    ordered = sorted((items[place] for place in places), key=_properties_of)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _is_left_out(item: pytest.Item, played: Mapping[str, frozenset[str]]) -> bool:
    script = _script_of(item)
    test = getattr(item, "originalname", "")
    return script is not None and test in played and script.key not in played[test]


def _properties_of(item: pytest.Item) -> str:
    script = _script_of(item)
    return "" if script is None else script.properties


def _script_of(item: pytest.Item) -> Script | None:
    # This is asked for every test, so the folder comes last: few other tests have a parameter of that name.
    script = item.callspec.params.get("script") if hasattr(item, "callspec") else None
    return script if script is not None and FOLDER in item.path.parents else None


class OneAtATime(Generic[AnyBroker]):
    """The broker for a script's properties. An idle broker costs processor time and memory, so another one ends it, and
    so does the last script.

    start: makes a broker in a folder, from properties by their name.
    """

    def __init__(
        self,
        start: Callable[[Path, str], contextlib.AbstractContextManager[AnyBroker]],
        folders: pytest.TempPathFactory,
    ) -> None:
        self._start = start
        self._folders = folders
        self._running = contextlib.ExitStack()
        self._properties = ""
        self._broker: AnyBroker | None = None

    def broker(self, properties: str) -> AnyBroker:
        if self._broker is None or properties != self._properties:
            self.end()
            folder = self._folders.mktemp(f"{self._start.__name__}-{properties}")
            self._broker = self._running.enter_context(self._start(folder, properties))
            self._properties = properties
        return self._broker

    def end(self) -> None:
        self._broker = None
        self._running.close()


@pytest.fixture(scope="package")
def kafka_answers(needs_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcribe]:
    """Kafka's answers to a script, played once. The test skips if Kafka isn't available."""
    brokers = OneAtATime(kafka_for, tmp_path_factory)
    transcripts: dict[str, list[Entry]] = {}

    def answers(script: Script) -> list[Entry]:
        if script.key not in transcripts:
            transcripts[script.key] = play(script, brokers.broker(script.properties))
        return transcripts[script.key]

    yield answers
    brokers.end()


@pytest.fixture(scope="package")
def reference_answers(request: pytest.FixtureRequest) -> Transcribe:
    """Kafka's answers, or the recorded ones if Kafka isn't available or isn't asked."""
    live: Transcribe | None
    try:
        live = request.getfixturevalue("kafka_answers")
    except pytest.skip.Exception:
        live = None

    def answers(script: Script) -> list[Entry]:
        recorded = recordings.read(script.key)
        if live is not None and (recorded is None or script.key in request.config.stash[_played_to_kafka]):
            return live(script)
        assert recorded is not None, (
            f"nothing recorded for {script.key}; `python -m tests.compare record` does"
        )
        return recorded

    return answers


@pytest.fixture(scope="package")
def barnabas_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transcribe]:
    """barnabas's answers to a script."""
    brokers = OneAtATime(barnabas_for, tmp_path_factory)
    yield lambda script: play(script, brokers.broker(script.properties))
    brokers.end()
