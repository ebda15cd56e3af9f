"""Requests of clients that come while the controller is amid a long decision."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.controller import topic_requests
from broker.controller.controller import ControllerResult
from broker.controller.image import ClusterImage
from broker.handlers import find_coordinator, metadata
from broker.server import Server
from protocol.waiting import Later, turn
from tests.node.metadata_requests import Request, Requests, asked, begun, told
from tests.support.submitting import submit_to, unexpected
from tests.support.whole_server import take_turns


def begin_long_decision(node: Server, steps: int = 5) -> None:
    async def decide(image: ClusterImage) -> ControllerResult[None]:
        for _ in range(steps):
            await turn()
        return ControllerResult([], lambda failure: None)

    submit_to(node.controller, decide, lambda reply: None, unexpected)


def begin(node: Server, request: Request) -> Later[Any]:
    """Begin the request, and return its answer as it is before any turn is taken: it is still to come."""
    answer = begun(node, request)
    assert isinstance(answer, Later), answer
    assert answer.answer() is answer
    return answer


def waiting(node: Server) -> int:
    return max(0, len(node.controller._line) - 1)


def topics(*names: str, version: int = 9) -> Request:
    wanted = [{"name": name} for name in names]
    return Request(metadata, 3, version, {"topics": wanted, "allow_auto_topic_creation": True})


def coordinator(key_type: int) -> Request:
    return Request(find_coordinator, 10, 4, {"key_type": key_type, "coordinator_keys": ["g", "h"]})


def errors(request: Request, answer: Later[Any]) -> dict[str, str]:
    return {topic["name"]: topic["error_code"] for topic in told(request, answer)["topics"]}


NO_LEADER = "5 LEADER_NOT_AVAILABLE"


async def test_a_topic_requested_by_several_is_created_once_and_reported_when_it_exists(node: Server) -> None:
    begin_long_decision(node)
    request = topics("a")
    answers = [begin(node, request) for _ in range(3)]
    assert waiting(node) == 1
    take_turns(node)
    assert [errors(request, answer) for answer in answers] == [{"a": NO_LEADER}] * 3
    assert "a" in node.metadata.image.topics


async def test_a_request_for_topics_partly_in_creation_waits_for_all(node: Server) -> None:
    begin_long_decision(node)
    request = topics("b", "c", "a", "d", "e/f")
    first, second = begin(node, topics("a")), begin(node, topics("b"))
    answer = begin(node, request)
    assert waiting(node) == 3
    take_turns(node)
    assert errors(request, answer) == dict.fromkeys("bcad", NO_LEADER) | {"e/f": "17 INVALID_TOPIC_EXCEPTION"}
    assert {*"abcd"} == node.metadata.image.topics.keys()
    for each in (first, second):
        assert each.answer() is not each


@pytest.mark.parametrize("key_type", [find_coordinator.GROUP, find_coordinator.TRANSACTION])
async def test_a_coordinator_is_found_once_its_topic_exists(node: Server, key_type: int) -> None:
    begin_long_decision(node)
    request = coordinator(key_type)
    answers = [begin(node, request) for _ in range(3)]
    assert waiting(node) == 1
    take_turns(node)
    for answer in answers:
        assert [each["error_code"] for each in told(request, answer)["coordinators"]] == ["0 NONE"] * 2


@pytest.mark.parametrize(
    "request_", [topics("a"), coordinator(find_coordinator.GROUP)], ids=["topic", "group"]
)
async def test_an_error_of_ours_in_an_automatic_creation_reaches_all_waiters(
    node: Server, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_long_decision(node)
    answers = [begin(node, request_) for _ in range(2)]

    def stumble(*_: object, **__: object) -> None:
        raise KeyError("ours")

    with monkeypatch.context() as patched:
        patched.setattr(topic_requests, "new_topic", stumble)
        take_turns(node)
    for answer in answers:
        with pytest.raises(KeyError, match="ours"):
            answer.result()
    assert told(request_, asked(node, request_)) is not None
    assert node.metadata.image.topics
    assert node.failure is None


async def test_a_creation_that_all_have_given_up_is_taken_back(node: Server) -> None:
    begin_long_decision(node)
    for _ in range(3):
        for request in (topics("a"), coordinator(find_coordinator.GROUP)):
            begin(node, request).abandon()
        assert waiting(node) == 0
    given_up, kept = begin(node, topics("b", "c")), begin(node, topics("c"))
    given_up.abandon()
    take_turns(node)
    assert errors(topics("c"), kept) == {"c": NO_LEADER}
    assert {"b", "c"} == node.metadata.image.topics.keys()


async def test_a_client_that_hangs_up_leaves_nothing_waiting_for_the_controller(node: Server) -> None:
    """So at most one request of each connection waits."""
    for name in ("a", "b", "c"):
        asked(node, topics(name))
    seen = {*map(str, node.metadata.image.topics.values())}
    requests = Requests(Random(1))
    kinds = set()
    begin_long_decision(node, 10_000)
    for _ in range(200):
        request = requests.draw()
        answer = begun(node, request)
        if isinstance(answer, Later) and waiting(node):
            kinds.add(request.key)
            answer.abandon()
        if request.key != 22:  # the node itself asks for blocks of producer ids, one at a time
            assert waiting(node) <= 1, request
    assert len(kinds) >= 10
    take_turns(node)
    assert {*map(str, node.metadata.image.topics.values())} == seen
    assert node.failure is None
