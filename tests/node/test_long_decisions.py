"""Decisions that take long, and changes that take long to follow: others are served meanwhile, and wait their turn."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from broker.controller import topic_requests
from broker.controller.controller import Controller, ControllerResult
from broker.controller.image import BROKER_RESOURCE, ClusterImage
from broker.controller.metadata_log import MetadataLog
from broker.disks.failures import RecordedLosses
from broker.handlers import allocate_producer_ids, unregister_broker
from broker.handlers import metadata as metadata_handler
from broker.server import Server
from protocol.errors import BrokenInvariantError, Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import Waiting, at_once, turn
from protocol.wire.schema import Message
from tests.node.metadata_logs import begin
from tests.node.metadata_requests import Request, asked
from tests.support.submitting import drive, submit_to, unexpected
from tests.support.whole_server import take_turns


@pytest.fixture
def metadata(tmp_path: Path) -> MetadataLog:
    return begin(tmp_path)


def setting(name: str) -> Message:
    return records.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value="1")


def unexpected_reply(reply: object) -> None:
    raise AssertionError(reply)


def settings(metadata: MetadataLog) -> set[str]:
    return set(metadata.image.configs.get((BROKER_RESOURCE, ""), {}))


def test_decisions_requested_during_a_long_one_wait_and_see_its_outcome(
    metadata: MetadataLog,
) -> None:
    long: list[Waiting[None]] = []
    metadata.carry_out = long.append
    controller = Controller(metadata)
    replies: list[object] = []

    async def decide(image: ClusterImage) -> ControllerResult[str]:
        assert "a" not in settings(metadata)
        await turn()
        return ControllerResult([setting("a")], lambda failure: "first")

    def second(image: ClusterImage) -> ControllerResult[str]:
        assert "a" in settings(metadata)
        return ControllerResult([], lambda failure: "second")

    submit_to(controller, decide, replies.append, unexpected)
    submit_to(controller, second, replies.append, unexpected)
    metadata.carry_out = at_once
    steps, behind = long
    steps.send(None)
    drive(behind)
    assert replies == []
    drive(steps)
    assert replies == ["first", "second"]


def test_a_long_decision_that_fails_is_reported_to_its_requester_and_the_next_ones_follow(
    metadata: MetadataLog,
) -> None:
    long: list[Waiting[None]] = []
    metadata.carry_out = long.append
    controller = Controller(metadata)
    told: list[object] = []
    failure = RuntimeError("ours")

    async def decide(image: ClusterImage) -> ControllerResult[str]:
        await turn()
        raise failure

    async def refused(image: ClusterImage) -> ControllerResult[str]:
        raise KafkaError(Error.INVALID_REQUEST)
        await turn()

    submit_to(controller, decide, told.append, told.append)
    submit_to(controller, refused, told.append, told.append)
    submit_to(controller, lambda image: ControllerResult([], lambda _: "third"), told.append, unexpected)
    first, *others = long
    first.send(None)
    metadata.carry_out = at_once
    for other in others:
        drive(other)
    drive(first)
    assert told[0] is failure
    assert isinstance(told[1], KafkaError)
    assert told[2] == "third"


def test_a_node_that_stops_gives_up_its_pending_decisions(metadata: MetadataLog) -> None:
    begun: list[Waiting[None]] = []

    def begin(steps: Waiting[None]) -> None:
        with suppress(StopIteration):
            steps.send(None)
            begun.append(steps)

    metadata.carry_out = begin
    controller = Controller(metadata)
    replies: list[object] = []

    async def decide(image: ClusterImage) -> ControllerResult[str]:
        await turn()
        return ControllerResult([setting("a")], lambda failure: "never")

    submit_to(controller, decide, replies.append, unexpected)
    submit_to(controller, decide, replies.append, unexpected)
    controller.stop()
    submit_to(controller, lambda image: ControllerResult([], lambda _: "last"), replies.append, unexpected)
    assert replies == ["last"]
    for steps in begun:
        steps.close()


def test_records_committed_while_a_change_is_followed_are_followed_and_reported_next(
    metadata: MetadataLog,
) -> None:
    long: list[Waiting[None]] = []
    events: list[str] = []

    async def follow() -> None:
        events.append("begun")
        await turn()
        events.append("followed")

    metadata.on_change = follow
    metadata.carry_out = long.append
    for name in ("a", "b"):
        end = metadata.append([setting(name)])
        later = metadata.committed(end)
        later.when_answered(lambda name=name, later=later: events.append(f"{name} {later.result()}"))
        if name == "a":
            (steps,) = long
            steps.send(None)
    at_once(steps)
    assert events == ["begun", "followed", "a None", "begun", "followed", "b None"]


@pytest.mark.parametrize("is_long", [False, True])
async def test_an_error_of_ours_in_a_waiting_decision_reaches_its_requester_and_harms_no_later_one(
    node: Server, is_long: bool
) -> None:
    told: list[object] = []
    failure = KeyError("ours")

    async def decide(image: ClusterImage) -> ControllerResult[str]:
        await turn()
        return ControllerResult([], lambda _: "first")

    def stumbles(image: ClusterImage) -> ControllerResult[str]:
        raise failure

    async def stumbles_later(image: ClusterImage) -> ControllerResult[str]:
        await turn()
        raise failure

    submit_to(node.controller, decide, told.append, unexpected)
    submit_to(node.controller, stumbles_later if is_long else stumbles, unexpected_reply, told.append)
    submit_to(node.controller, lambda image: ControllerResult([], lambda _: "third"), told.append, unexpected)
    take_turns(node)
    assert told == ["first", failure, "third"]
    assert node.failure is None


async def test_a_broken_invariant_in_a_waiting_decision_stops_the_node_whoever_asked(node: Server) -> None:
    told: list[object] = []

    async def decide(image: ClusterImage) -> ControllerResult[str]:
        await turn()
        return ControllerResult([], lambda _: "first")

    def breaks(image: ClusterImage) -> ControllerResult[str]:
        raise BrokenInvariantError("what can't be")

    submit_to(node.controller, decide, told.append, unexpected)
    submit_to(node.controller, breaks, unexpected_reply, told.append)
    take_turns(node)
    assert told == ["first", node.failure]
    assert isinstance(node.failure, BrokenInvariantError)
    node.faults.failure = None


@pytest.mark.parametrize("who", ["producer ids", "failed directories", "automatic topics", "an admin"])
async def test_no_requester_can_end_the_node_by_an_error_of_ours_in_a_waiting_decision(
    node: Server, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []

    async def decide(image: ClusterImage) -> ControllerResult[str]:
        await turn()
        return ControllerResult([], lambda _: "long")

    def stumble(*_: object, **__: object) -> NoReturn:
        raise KeyError("ours")

    submit_to(node.controller, decide, told.append, unexpected)
    if who == "producer ids":
        monkeypatch.setattr(allocate_producer_ids, "allocate_producer_ids", stumble)
        with suppress(KafkaError):
            node.producer_ids.next()
    elif who == "failed directories":
        monkeypatch.setattr(RecordedLosses, "_decide", stumble)
        node.log_dir_failures.losses.is_recorded = False
        node.log_dir_failures.record()
    elif who == "automatic topics":
        monkeypatch.setattr(topic_requests, "new_topic", stumble)
        with suppress(KeyError):
            asked(
                node,
                Request(
                    metadata_handler, 3, 9, {"topics": [{"name": "t"}], "allow_auto_topic_creation": True}
                ),
            )
    else:
        monkeypatch.setattr(unregister_broker, "unregister", stumble)
        node.metadata.append([records.RegisterBrokerRecord(broker_id=7, broker_epoch=3, fenced=True)])
        with suppress(KeyError):
            asked(node, Request(unregister_broker, 64, 0, {"broker_id": 7}))
    submit_to(
        node.controller, lambda image: ControllerResult([], lambda _: "behind"), told.append, unexpected
    )
    take_turns(node)
    assert told[0] == "long"
    assert told[-1] == "behind"
    assert node.failure is None
    assert not node.producer_ids._is_asked
    if who == "failed directories":  # it is tried again
        assert not node.log_dir_failures.losses.is_recorded
