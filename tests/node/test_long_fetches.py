"""A Fetch of many partitions is served in turns of the loop, with the same answer as in one."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from broker.handlers import fetch
from broker.network import turns
from broker.quotas import RateQuota
from broker.replicas import fetching
from broker.replicas.fetching import Reading
from broker.server import Server
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.metadata_records import ClientQuotaRecord, EntityData
from protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from protocol.wire import codec
from protocol.wire import codec as compile_encoder
from tests.node.admin_requests import create
from tests.node.computing import SHORT, produce, told
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome

PARTITIONS = 7


@pytest.fixture
def few_at_a_time(node: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every Fetch of more than two partitions count as one of many."""
    create(node, ("t", PARTITIONS))
    for module in (fetch, fetching, turns):
        monkeypatch.setattr(module, "PER_TURN", 2)
    few = fetch.FETCHED_PARTITIONS._replace(at_once=2)
    monkeypatch.setattr(fetch, "FETCHED_PARTITIONS", few)


def wanted(*partitions: tuple[int, int], topic: str = "t", **more: Any) -> FetchRequest:
    """Return a Fetch of these (partition, offset)."""
    asked = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000)
        for index, offset in partitions
    ]
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1000, "session_epoch": -1}
    return FetchRequest(
        **(fields | {"replica_id": -1, "forgotten_topics_data": []} | more),
        topics=[FetchTopic(topic=topic, partitions=asked)],
    )


def shown(answer: Any) -> Any:
    return [
        (
            topic.topic or topic.topic_id,
            each.partition_index,
            each.error_code,
            each.high_watermark,
            bytes(each.records),
        )
        for topic in answer.responses
        for each in topic.partitions
    ]


def all_of(offset: int) -> list[tuple[int, int]]:
    return [(index, offset) for index in range(PARTITIONS)]


@pytest.mark.parametrize("version", [12, 13])
@pytest.mark.parametrize("seed", range(20))
async def test_a_long_fetch_is_answered_as_if_read_at_once(
    node: Server, few_at_a_time: None, seed: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    luck = random.Random(seed)
    client = Client(Straight(node))
    for _ in range(10):
        client.ask(produce((luck.randrange(PARTITIONS), SHORT)), 9)
    create(node, ("u", 3))
    topics = []
    for _ in range(luck.randrange(1, 4)):
        name = luck.choice(["t", "u", "nowhere"])
        asked = [
            FetchPartition(
                partition=luck.randrange(PARTITIONS + 1),
                fetch_offset=luck.randrange(4),
                partition_max_bytes=luck.choice([1, 80, 1000]),
                current_leader_epoch=luck.choice([-1, 0, 5]),
            )
            for _ in range(luck.randrange(3, 9))
        ]
        topic_id = node.partitions.by_name[name].topic_id if name != "nowhere" else b"nobody's topic i"
        topics.append(FetchTopic(topic=name, topic_id=topic_id, partitions=asked))
    request = FetchRequest(
        replica_id=-1,
        max_bytes=luck.choice([1, 100, 10_000]),
        isolation_level=luck.choice([0, 0, 1, 7]),
        session_epoch=-1,
        topics=topics,
        forgotten_topics_data=[],
    )
    in_turns = shown(await client.answer(request, version))
    for module in (fetch, fetching, turns):
        monkeypatch.setattr(module, "PER_TURN", 1_000)
    assert shown(await client.answer(request, version)) == in_turns


@pytest.mark.usefixtures("few_at_a_time")
async def test_other_clients_are_served_during_a_long_fetch(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    read_some = Reading.read

    def counted(self: Any, targets: Any) -> None:
        read.append(len(targets))
        read_some(self, targets)

    monkeypatch.setattr(Reading, "read", counted)
    many, other = Client(Straight(node)), Client(Straight(node))
    sent = many.send(wanted(*all_of(0)), 12)
    served = 0
    while (answer := many.receive(sent, within_s=0)) is Outcome.SILENCE:
        other.ask(MetadataRequest(topics=[]), 12)
        await asyncio.sleep(0)
        served += 1
    assert not isinstance(answer, Outcome)
    assert [count for count in read if count] == [2, 2, 2, 1]
    assert served >= 4


@pytest.mark.parametrize("how", ["fails as a whole", "names one again and again", "is of no follower"])
async def test_a_fetch_answered_with_nothing_but_errors_is_answered_in_turns(
    node: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    create(node, ("t", PARTITIONS), ("u", 1))
    asked = [(0, 0)] * PARTITIONS if how == "names one again and again" else all_of(0)
    why: dict[str, Any] = {"replica_id": 2} if how == "is of no follower" else {"isolation_level": 7}
    many = wanted(*asked, **why)
    many.topics = [*many.topics, FetchTopic(topic="u", partitions=many.topics[0].partitions[:1])]
    if how == "is of no follower":
        monkeypatch.setattr(type(node.authorizer), "allows", lambda *_of, **_how: False)
    client = Client(Straight(node))
    at_once = await client.answer(many, 12)
    assert len(shown(at_once)) == PARTITIONS + 1
    denied = how == "is of no follower"
    error = Error.TOPIC_AUTHORIZATION_FAILED if denied else Error.UNKNOWN_SERVER_ERROR
    assert {row[2] for row in shown(at_once)} == {error}
    request.getfixturevalue("few_at_a_time")
    made: list[int] = []
    monkeypatch.setattr(fetch, "refusal", counting(fetch.refusal, made, lambda _target: 1))
    failed: Any = fetch._failed
    monkeypatch.setattr(fetch, "_failed", counting(failed, made, lambda topic: len(topic.partitions)))
    sent = client.send(many, 12)
    in_turns = [sum(made)]
    while (answer := client.receive(sent, within_s=0)) is Outcome.SILENCE:
        made.clear()
        await asyncio.sleep(0)
        in_turns.append(sum(made))
    assert max(in_turns) == 2
    assert not isinstance(answer, Outcome)
    assert answer.message == at_once


def counting(make: Any, made: list[int], size: Any) -> Any:
    def counted(entry: Any, *more: Any) -> Any:
        made.append(size(entry))
        return make(entry, *more)

    return counted


@pytest.mark.usefixtures("few_at_a_time")
async def test_a_waiting_fetch_is_answered_once_there_is_enough_and_costs_producers_no_look(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    measure = fetching.bytes_to_read

    def counted(parameters: Any, target: Any, partition: Any) -> int:
        looked_at.append(partition.index)
        return measure(parameters, target, partition)

    monkeypatch.setattr(fetching, "bytes_to_read", counted)
    many, producer = Client(Straight(node)), Client(Straight(node))
    sent = many.send(wanted(*all_of(0), max_wait_ms=1000, min_bytes=2 * len(SHORT)), 12)
    for _ in range(30):
        await asyncio.sleep(0)
    assert looked_at == [*range(PARTITIONS)]
    looked_at.clear()
    assert told(producer.receive(producer.send(produce((3, SHORT)), 9))) == [(3, Error.NONE, 0)]
    assert looked_at == []
    for _ in range(30):
        await asyncio.sleep(0)
    assert looked_at == [3]
    assert many.receive(sent, within_s=0) is Outcome.SILENCE
    producer.ask(produce((6, SHORT)), 9)
    answer = await settled(many, sent)
    assert [row[1] for row in shown(answer) if row[4]] == [3, 6]
    assert not any(each.waiting for each in node.partitions.by_name["t"].partitions.values())


async def settled(client: Client, sent: Any) -> Any:
    for _ in range(50):
        answer = client.receive(sent, within_s=0)
        if not isinstance(answer, Outcome):
            return answer.message
        await asyncio.sleep(0)
    raise AssertionError("no answer")


@pytest.mark.usefixtures("few_at_a_time")
async def test_a_waiting_fetch_is_answered_when_its_time_is_over_or_a_partition_is_deleted(
    node: Server,
) -> None:
    many = Client(Straight(node))
    answer = await many.answer(wanted(*all_of(0), max_wait_ms=5), 12)
    assert [row[2] for row in shown(answer)] == [Error.NONE] * PARTITIONS
    sent = many.send(wanted(*all_of(0), max_wait_ms=1000), 12)
    for _ in range(30):
        await asyncio.sleep(0)
    other = Client(Straight(node))
    other.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000), 6)
    errors = {row[2] for row in shown(await settled(many, sent))}
    assert errors == {Error.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("turns_taken", range(12))
async def test_nothing_waits_for_a_client_that_hung_up(node: Server, turns_taken: int) -> None:
    many = Client(Straight(node))
    many.send(wanted(*all_of(0), max_wait_ms=1000), 12)
    for _ in range(turns_taken):
        await asyncio.sleep(0)
    many.close()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not any(each.waiting for each in node.partitions.by_name["t"].partitions.values())
    create(node, ("after", 1))


@pytest.mark.usefixtures("few_at_a_time")
async def test_a_session_of_many_partitions_reports_each_change_once(node: Server) -> None:
    client = Client(Straight(node))
    client.ask(produce((1, SHORT)), 9)
    first = await client.answer(wanted(*all_of(0), session_epoch=0), 12)
    assert len(shown(first)) == PARTITIONS
    grown = wanted((1, 1), session_id=first.session_id, session_epoch=1)
    assert shown(await client.answer(grown, 12)) == []
    client.ask(produce((5, SHORT)), 9)
    more = wanted(session_id=first.session_id, session_epoch=2)
    assert [row[1] for row in shown(await client.answer(more, 12))] == [5]
    gone = [ForgottenTopic(topic="t", partitions=[0, 1, 2, 3])]
    last = wanted(session_id=first.session_id, session_epoch=3, forgotten_topics_data=gone)
    assert [row[1] for row in shown(await client.answer(last, 12))] == [5]


@pytest.mark.usefixtures("few_at_a_time")
async def test_a_session_of_many_partitions_is_held_to_the_quota(node: Server) -> None:
    client = Client(Straight(node))
    first = await client.answer(wanted(*all_of(0), session_epoch=0), 12)
    client.ask(produce((5, SHORT)), 9)
    anybody = [EntityData(entity_type="client-id", entity_name=None)]
    node.metadata.append([ClientQuotaRecord(entity=anybody, key="consumer_byte_rate", value=1.0)])
    withheld = await client.answer(wanted(session_id=first.session_id, session_epoch=1), 12)
    assert withheld.throttle_time_ms > 0
    assert (withheld.session_id, shown(withheld)) == (first.session_id, [])


async def test_an_answers_share_of_the_quota_is_computed_in_turns(
    node: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[float] = []
    charge = RateQuota.charge

    def noted(quota: RateQuota, user: str, client_id: str, size: float, now_ms: int) -> int:
        if quota is node.quotas.fetch:
            charged.append(size)
        return charge(quota, user, client_id, size, now_ms)

    client = Client(Straight(node))
    create(node, ("t", PARTITIONS))
    client.ask(produce((5, SHORT)), 9)
    anybody = [EntityData(entity_type="client-id", entity_name=None)]
    node.metadata.append([ClientQuotaRecord(entity=anybody, key="consumer_byte_rate", value=1e9)])
    monkeypatch.setattr(RateQuota, "charge", noted)
    at_once = await client.answer(wanted(*all_of(0)), 12)
    assert len(charged) == 1
    request.getfixturevalue("few_at_a_time")
    monkeypatch.setattr(compile_encoder, "ENTRIES_PER_STEP", 2)
    monkeypatch.setattr(codec, "_encoders_in_steps", {})
    made: list[int] = []
    monkeypatch.setattr(fetch, "_by_topic", counting(fetch._by_topic, made, len))
    turns_taken = []
    for is_over in (False, True):
        monkeypatch.setattr(turns.Turns, "is_over", is_over)
        before, taken = len(charged), 0
        sent = client.send(wanted(*all_of(0)), 12)
        while len(charged) == before:
            await asyncio.sleep(0)
            taken += 1
        turns_taken.append(taken)
        assert await settled(client, sent) == at_once
    assert max(made) == 2
    assert turns_taken[1] >= turns_taken[0] + PARTITIONS // 2
    assert len({*charged}) == 1
    assert charged[0] > PARTITIONS


@pytest.mark.parametrize("partitions", [1, 2, 3])
async def test_a_waiting_fetch_is_read_in_its_own_turn(
    node: Server, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    create(node, ("t", PARTITIONS))
    read: list[int] = []
    answer_of = Reading._read

    def counted(self: Any, partition: Any, target: Any) -> Any:
        read.append(target.index)
        return answer_of(self, partition, target)

    waiting, producer = Client(Straight(node)), Client(Straight(node))
    sent = waiting.send(wanted(*all_of(0)[:partitions], max_wait_ms=1000), 12)
    for _ in range(5):
        await asyncio.sleep(0)
    monkeypatch.setattr(Reading, "_read", counted)
    producer.ask(produce((partitions - 1, SHORT)), 9)
    assert read == []
    assert [row[1] for row in shown(await settled(waiting, sent)) if row[4]] == [partitions - 1]
    assert read == [*range(partitions)]


@pytest.mark.parametrize("per_turn", [3, 1_000])
@pytest.mark.parametrize("seed", range(10))
async def test_the_readable_bytes_of_all_partitions_are_summed_up_as_they_move(
    node: Server, monkeypatch: pytest.MonkeyPatch, seed: int, per_turn: int
) -> None:
    """Whatever moves a partition, the sum is the same as if all partitions were measured again."""
    for module in (fetch, fetching, turns):
        monkeypatch.setattr(module, "PER_TURN", per_turn)
    create(node, ("t", PARTITIONS))
    luck = random.Random(seed)
    waiting, producer = Client(Straight(node)), Client(Straight(node))
    offsets = [0] * PARTITIONS
    for _ in range(5):
        least = luck.randrange(1, 6)
        asked = [(index, offset) for index, offset in enumerate(offsets)]
        sent = waiting.send(
            wanted(*asked, max_wait_ms=1000, min_bytes=least * len(SHORT), max_bytes=10_000), 12
        )
        for number in range(least):
            assert waiting.receive(sent, within_s=0) is Outcome.SILENCE, number
            index = luck.randrange(PARTITIONS)
            producer.ask(produce((index, SHORT)), 9)
            offsets[index] += 1
            for _ in range(6):
                await asyncio.sleep(0)
        answer = await settled(waiting, sent)
        assert sum(len(row[4]) for row in shown(answer)) == least * len(SHORT)


@pytest.mark.parametrize("per_turn", [3, 1_000])
async def test_records_that_were_deleted_while_a_fetch_waits_dont_count(
    node: Server, monkeypatch: pytest.MonkeyPatch, per_turn: int
) -> None:
    for module in (fetch, fetching, turns):
        monkeypatch.setattr(module, "PER_TURN", per_turn)
    create(node, ("t", PARTITIONS))
    waiting, other = Client(Straight(node)), Client(Straight(node))
    sent = waiting.send(wanted(*all_of(0), max_wait_ms=1000, min_bytes=2 * len(SHORT)), 12)
    other.ask(produce((0, SHORT)), 9)
    for _ in range(6):
        await asyncio.sleep(0)
    node.partitions.get("t", 0).log.delete_records_before(1)
    other.ask(produce((1, SHORT)), 9)
    for _ in range(6):
        await asyncio.sleep(0)
    assert waiting.receive(sent, within_s=0) is Outcome.SILENCE
    other.ask(produce((1, SHORT)), 9)
    rows = shown(await settled(waiting, sent))
    assert [row[1] for row in rows if row[4]] == [1]
    assert rows[0][2] == Error.OFFSET_OUT_OF_RANGE
