"""Decisions that are long, and changes that are long to follow: others are served meanwhile, and wait their turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.controller.controller import Controller
from broker.controller.controller_result import ControllerResult
from broker.controller.image import BROKER_RESOURCE, ClusterImage
from broker.controller.metadata_log import MetadataLog
from broker.controller.steps import Steps, at_once
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message
from tests.node.metadata_logs import begin


@pytest.fixture
def metadata(tmp_path: Path) -> MetadataLog:
    return begin(tmp_path)


def setting(name: str) -> Message:
    return records.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value="1")


def settings(metadata: MetadataLog) -> set[str]:
    return set(metadata.image.configs.get((BROKER_RESOURCE, ""), {}))


def test_decisions_that_are_asked_for_amid_a_long_one_wait_for_it_and_see_what_it_decided(
    metadata: MetadataLog,
) -> None:
    long: list[Steps[None]] = []
    metadata.carry_out = long.append
    controller = Controller(metadata)
    replies: list[object] = []

    def decide(image: ClusterImage) -> Steps[ControllerResult[str]]:
        assert "a" not in settings(metadata)
        yield
        return ControllerResult([setting("a")], lambda failure: "first")

    def second(image: ClusterImage) -> ControllerResult[str]:
        assert "a" in settings(metadata)
        return ControllerResult([], lambda failure: "second")

    controller.submit(decide, replies.append)
    controller.submit(second, replies.append)
    (steps,) = long
    next(steps)
    assert replies == []
    metadata.carry_out = at_once
    at_once(steps)
    assert replies == ["first", "second"]


def test_a_long_decision_that_fails_is_told_to_who_asked_and_the_next_ones_are_taken(
    metadata: MetadataLog,
) -> None:
    long: list[Steps[None]] = []
    metadata.carry_out = long.append
    controller = Controller(metadata)
    told: list[object] = []
    failure = RuntimeError("ours")

    def decide(image: ClusterImage) -> Steps[ControllerResult[str]]:
        yield
        raise failure

    def refused(image: ClusterImage) -> Steps[ControllerResult[str]]:
        raise KafkaError(Error.INVALID_REQUEST)
        yield

    controller.submit(decide, told.append, told.append)
    controller.submit(refused, told.append, told.append)
    controller.submit(lambda image: ControllerResult([], lambda _: "third"), told.append)
    while long:
        at_once(long.pop())
    assert told[0] is failure
    assert isinstance(told[1], KafkaError)
    assert told[2] == "third"


def test_what_a_node_that_stops_was_deciding_is_given_up(metadata: MetadataLog) -> None:
    metadata.carry_out = [].append
    controller = Controller(metadata)
    replies: list[object] = []

    def decide(image: ClusterImage) -> Steps[ControllerResult[str]]:
        yield
        return ControllerResult([setting("a")], lambda failure: "never")

    controller.submit(decide, replies.append)
    controller.submit(decide, replies.append)
    controller.stop()
    controller.submit(lambda image: ControllerResult([], lambda _: "last"), replies.append)
    assert replies == ["last"]


def test_what_is_committed_while_a_change_is_followed_is_followed_and_told_then(
    metadata: MetadataLog,
) -> None:
    long: list[Steps[None]] = []
    events: list[str] = []

    def follow() -> Steps[None]:
        events.append("begun")
        yield
        events.append("followed")

    metadata.on_change = follow
    metadata.carry_out = long.append
    for name in ("a", "b"):
        end = metadata.append([setting(name)])
        metadata.when_committed(end, lambda error, name=name: events.append(f"{name} {error}"))
        if name == "a":
            (steps,) = long
            next(steps)
    at_once(steps)
    assert events == ["begun", "followed", "a None", "begun", "followed", "b None"]
