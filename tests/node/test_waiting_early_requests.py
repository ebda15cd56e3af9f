"""Requests that wait for what this node is getting ready for: how long, how many, and what happens when their client
hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from broker import early_requests
from broker.coordination.groups import OFFSETS_TOPIC
from broker.early_requests import NEEDS, EarlyRequests, Need
from broker.handlers import HANDLERS
from broker.network.dispatch import ForwardedRoute
from broker.server import Server
from protocol.apis import APIS
from protocol.messages.groups import DescribeGroupsRequest, ListGroupsRequest
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.wire.codec import encode
from tests.node.computing import SHORT
from tests.node.test_early_requests import JOIN, answered, errors
from tests.support.straight import Straight
from tests.support.topics import topics_of
from tests.support.wire import Answer, Client, Outcome


class NeverReady:
    """A node that has a change of the metadata to follow, and isn't ready until the test says so."""

    def __init__(self, node: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        lacking = Need(lambda here, request: None if self.is_ready else "all")
        for api in ("FindCoordinator", "Produce", "InitProducerId"):
            monkeypatch.setitem(NEEDS, api, lacking)
        self.is_ready = False
        self._early = node.early_requests
        self.timers: list[Callable[[], object]] = []
        monkeypatch.setattr(node.early_requests, "_scheduler", self)
        monkeypatch.setattr(node.early_requests, "is_behind", True)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> NeverReady:
        assert delay_s == early_requests.LONGEST_WAIT_S
        self.timers.append(callback)
        return self

    def call_soon(self, callback: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_soon(callback)

    def cancel(self) -> None:
        """Do nothing: only tests call the timers."""

    @property
    def waiting(self) -> int:
        return self._early._count

    def become_ready(self) -> None:
        self.is_ready = True
        self._early._follows()


FIND = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6


@pytest.mark.limit("broker.early_requests.LONGEST_WAIT_S")
async def test_after_a_long_wait_a_request_is_answered_by_the_present_state(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = NeverReady(node, monkeypatch)
    client = Client(Straight(node))
    sent = client.send(*FIND)
    await asyncio.sleep(0)
    assert client.receive(sent, within_s=0) is Outcome.SILENCE
    [timer] = never.timers
    timer()
    assert errors([await answered(client, sent)]) == set()


@pytest.mark.limit("broker.early_requests.MOST_WAITING")
async def test_with_enough_requests_waiting_the_next_is_answered_by_the_present_state(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early_requests, "MOST_WAITING", 2)
    never = NeverReady(node, monkeypatch)
    clients = [Client(Straight(node)) for _ in range(3)]
    sent = [client.send(*FIND) for client in clients]
    await answered(clients[2], sent[2])
    assert [clients[place].receive(sent[place], within_s=0) for place in (0, 1)] == [Outcome.SILENCE] * 2
    never.become_ready()
    for place in (0, 1):
        await answered(clients[place], sent[place])


async def test_requests_after_a_waiting_one_are_answered_after_it(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = NeverReady(node, monkeypatch)
    client = Client(Straight(node))
    first, second = client.send(*FIND), client.send(ListGroupsRequest(), 5)
    await asyncio.sleep(0)
    assert client.receive(first, within_s=0) is Outcome.SILENCE
    never.become_ready()
    ids = []
    for sent in (first, second):
        while not isinstance(answer := client.receive(sent, within_s=0), Answer):
            await asyncio.sleep(0)
        ids.append(answer.correlation_id)
    assert ids == [first.correlation_id, second.correlation_id]
    client.close()


async def test_a_waiting_request_is_never_carried_out_if_its_client_hangs_up(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropping the request does no harm: nobody would know of a producer id or a member that is made for a client that
    has gone."""
    never = NeverReady(node, monkeypatch)
    for _ in range(3):
        client = Client(Straight(node))
        client.send(*FIND)
        client.close()
    await asyncio.sleep(0)
    assert never.waiting == 0
    never.become_ready()
    await asyncio.sleep(0)
    assert OFFSETS_TOPIC not in node.metadata.image.topics


async def test_a_produce_that_waits_is_done_though_its_client_has_hung_up(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer with acks=0 is gone as soon as it has sent."""
    topics_of(node).create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    never = NeverReady(node, monkeypatch)
    client = Client(Straight(node))
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=SHORT)])
    client.send(ProduceRequest(acks=0, timeout_ms=1_000, topic_data=[data]), 9)
    client.close()
    await asyncio.sleep(0)
    log = node.partitions.get("t", 0).log
    assert (never.waiting, log.log_end_offset) == (1, 0)
    never.become_ready()
    assert log.log_end_offset == 0, "nothing is carried out where a node is told that it is ready"
    while not log.log_end_offset:
        await asyncio.sleep(0)


@pytest.mark.limit("broker.early_requests.LONGEST_LAG_S")
async def test_a_request_for_a_topic_that_nobody_has_made_is_answered_soon(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EarlyRequests, "_may_lag", True)
    node.early_requests._look()
    assert not node.early_requests.is_behind
    waits: list[float] = []

    def call_later(delay_s: float, callback: Callable[[], object]) -> Any:
        waits.append(delay_s)
        return node.scheduler.call_later(0, callback)

    monkeypatch.setattr(node.early_requests, "_scheduler", SimpleNamespace(call_later=call_later))
    client = Client(Straight(node))
    assert errors([await answered(client, client.send(*JOIN))]) == {"NOT_COORDINATOR"}
    assert waits == [early_requests.LONGEST_LAG_S]


@pytest.mark.limit("broker.early_requests.MOST_LOOKED_AT")
def test_the_first_entries_of_a_long_list_are_looked_up() -> None:
    asked = []
    here: Any = SimpleNamespace(shard=lambda topic, key: asked.append(key))
    many = [str(number) for number in range(early_requests.MOST_LOOKED_AT * 2)]
    assert NEEDS["DescribeGroups"].lacks(here, DescribeGroupsRequest(groups=many)) is None
    assert asked == many[: early_requests.MOST_LOOKED_AT]


async def test_each_loaded_shard_looks_only_at_requests_that_wait_for_it(node: Server) -> None:
    early = node.early_requests
    looked_at: list[int] = []
    lacking: list[Any] = [(OFFSETS_TOPIC, 0), (OFFSETS_TOPIC, 1)]

    def lacks(place: int, here: Any, request: Any) -> Any:
        looked_at.append(place)
        return lacking[place]

    found = [early.wait(partial(lacks, place), None) for place in range(2)]
    looked_at.clear()
    lacking[0] = None
    early._loaded(OFFSETS_TOPIC, 0)
    assert looked_at == [0]
    assert [later is not None and later.answer() is False for later in found] == [True, False]
    early._loaded(OFFSETS_TOPIC, 1)
    assert looked_at == [0, 1]
    early.stop()


async def test_a_node_stops_while_requests_wait(node: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    never = NeverReady(node, monkeypatch)
    client = Client(Straight(node))
    client.send(*FIND)
    await node.stop()
    never.become_ready()
    assert OFFSETS_TOPIC not in node.metadata.image.topics


async def test_requests_for_the_controller_are_forwarded_while_this_node_is_behind(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = SimpleNamespace(data=b"\0\0\0\7\0" + bytes(encode(CreateTopicsResponse(), 5)))
    route = ForwardedRoute(5, lambda context, request: answer, SimpleNamespace)
    monkeypatch.setitem(node.dispatcher._routes, CreateTopicsRequest.API_KEY << 16 | 5, route)
    monkeypatch.setattr(node.early_requests, "is_behind", True)
    client = Client(Straight(node))
    assert (await answered(client, client.send(CreateTopicsRequest(), 5))).topics == []


def test_every_api_that_may_wait_is_served_and_names_existing_fields() -> None:
    served = {APIS[key].name: APIS[key] for key in HANDLERS}
    asked: set[str] = set()
    here: Any = SimpleNamespace(
        unheard_of=frozenset(),
        shard=lambda topic, key: asked.add("shard"),
        any_shard=lambda topic: asked.add("any shard"),
        topic=lambda name: asked.add("topic"),
        leader=lambda name, topic_id, indexes: asked.add("leader"),
    )
    for name, need in NEEDS.items():
        asked.clear()
        assert need.lacks(here, with_an_entry(served[name].request)) is None
        assert asked, name
        assert bool(need.internal_topic) <= ("shard" in asked)


def with_an_entry(kind: type[Any]) -> Any:
    """Return a message with one entry in each list, and in each of the entry's lists."""
    made = kind()
    for field in kind.FIELDS:
        if field.kind == "array":
            is_struct = isinstance(field.element, type)
            entry = with_an_entry(field.element) if is_struct else {"string": "a"}.get(field.element, 0)
            setattr(made, field.name, [entry])
    return made
