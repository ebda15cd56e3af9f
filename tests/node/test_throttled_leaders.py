"""A leader whose followers are throttled: what they are given, who is not held up, and what counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, UNASSIGNED
from broker.network import turns
from broker.quotas import LEADER_RATE, LEADER_REPLICAS
from broker.replicas.fetching import FetchParameters
from broker.server import Server
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from protocol.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    PartitionRecord,
    RegisterBrokerRecord,
)
from protocol.wire.codec import encode
from tests.node.replicated import ME, OTHER, TOPIC_ID, change, fetch, fetched, leader_of, produce, replicated
from tests.node.transactional import ask
from tests.support.answers import answered
from tests.support.whole_server import clock_of, crash

EPOCH = 7
VERSION = 17


async def leading(folder: Path, *, rate: int = 100, replicas: str | None = "0:1") -> Server:
    """Start a node that leads a partition with a record and a follower that isn't in sync."""
    node = await replicated(folder)
    node.metadata.append([RegisterBrokerRecord(broker_id=OTHER, broker_epoch=EPOCH, fenced=False)])
    change(node, isr=[ME])
    limit(node, rate)
    if replicas is not None:
        throttle(node, replicas)
    produce(node)
    return node


def limit(node: Server, rate: int | None) -> None:
    text = None if rate is None else str(rate)
    config = ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="1", name=LEADER_RATE, value=text)
    node.metadata.append([config])


def throttle(node: Server, replicas: str | None) -> None:
    config = ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name=LEADER_REPLICAS, value=replicas
    )
    node.metadata.append([config])


def exhaust(node: Server) -> None:
    """Use up the quota, so that followers get nothing more for as long as all its windows last."""
    node.replication_quotas.leader.record(10_000_000)


def follow(node: Server, offset: int = 0, **given: Any) -> Any:
    return fetch(node, offset, version=VERSION, replica_id=OTHER, replica_epoch=EPOCH, **given)


def given_to_follower(node: Server, offset: int = 0) -> int:
    """Return how many bytes of records the follower is given."""
    answer = fetched(follow(node, offset))
    assert answer.error_code == Error.NONE
    return len(answer.records)


def recorded(node: Server) -> float:
    """Return the recorded rate in bytes a second. It equals the bytes, because they came within one second."""
    return node.replication_quotas.leader._rate.per_second(node.replication_quotas.leader._now_ms())


async def test_a_throttled_follower_is_given_nothing_until_the_rate_is_back(tmp_path: Path) -> None:
    node = await leading(tmp_path)
    assert given_to_follower(node) > 0, "nothing was taken before"
    assert given_to_follower(node) == 0
    answer = fetched(follow(node))
    assert (answer.error_code, answer.high_watermark) == (Error.NONE, 1)
    clock_of(node).advance_ms(11_000)
    assert given_to_follower(node) > 0
    crash(node)


@pytest.mark.parametrize(
    ("replicas", "rate"), [("0:2", 1), ("1:1", 1), (None, 1), ("", 1), ("*", None), ("0:1", None)]
)
async def test_a_follower_that_no_quota_is_for_is_not_throttled(
    tmp_path: Path, replicas: str | None, rate: int | None
) -> None:
    node = await leading(tmp_path, replicas=replicas)
    limit(node, rate)
    exhaust(node)
    assert given_to_follower(node) > 0
    crash(node)


@pytest.mark.parametrize("is_named", [False, True])
async def test_a_fetch_is_throttled_by_the_quota_that_it_names(tmp_path: Path, is_named: bool) -> None:
    node = await leading(tmp_path)
    exhaust(node)
    parameters = FetchParameters(
        api_version=VERSION,
        replica_id=OTHER,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1_000_000,
        read_committed=False,
        leader_quota=node.replication_quotas.leader if is_named else None,
    )
    assert parameters.bound(node.partitions.get("t", 0)) == (0 if is_named else 1)
    crash(node)


async def test_a_follower_in_sync_is_never_throttled_and_counts(tmp_path: Path) -> None:
    node = await leading(tmp_path)
    exhaust(node)
    assert given_to_follower(node) == 0
    change(node, isr=[ME, OTHER])
    before = recorded(node)
    assert given_to_follower(node) > 0
    assert recorded(node) > before
    crash(node)


async def test_consumers_are_neither_throttled_nor_counted(tmp_path: Path) -> None:
    node = await leading(tmp_path)
    exhaust(node)
    before = recorded(node)
    assert len(fetched(fetch(node, 0)).records) > 0
    assert recorded(node) == before
    crash(node)


async def test_a_throttled_follower_that_has_all_may_come_in(tmp_path: Path) -> None:
    node = await leading(tmp_path)
    exhaust(node)
    assert given_to_follower(node, 1) == 0
    for _ in range(10):
        await asyncio.sleep(0)
    assert leader_of(node).isr == {ME, OTHER}
    crash(node)


async def test_only_the_answers_of_throttled_partitions_count(tmp_path: Path) -> None:
    """Kafka's `FetchResponse.sizeOf` counts so: with the size of the frame, but without the header."""
    node = await leading(tmp_path, rate=1_000_000)
    response = follow(node)
    assert recorded(node) == 4 + len(encode(FetchResponse(responses=response.responses), VERSION))
    clock_of(node).advance_ms(20_000)
    throttle(node, "1:1")
    follow(node)
    assert recorded(node) == 4 + len(encode(FetchResponse(responses=[]), VERSION))
    clock_of(node).advance_ms(20_000)
    throttle(node, None)
    follow(node)
    assert recorded(node) == 0, "where nothing is throttled nothing is measured"
    crash(node)


async def test_a_follower_in_error_learns_it_however_throttled(tmp_path: Path) -> None:
    node = await leading(tmp_path)
    exhaust(node)
    assert fetched(follow(node, 5)).error_code == Error.OFFSET_OUT_OF_RANGE
    assert fetched(follow(node, 0, epoch=9)).error_code == Error.UNKNOWN_LEADER_EPOCH
    produce(node)
    assert fetched(follow(node, 2, last_fetched_epoch=0)).error_code == Error.NONE
    crash(node)


# --- fetches that wait --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rolls", [False, True])
async def test_a_fetch_that_is_throttled_waits_and_is_not_ended_by_more_records(
    tmp_path: Path, rolls: bool
) -> None:
    """Records of an older segment don't end it either."""
    node = await leading(tmp_path)
    if rolls:
        leader_of(node).log.roll(node.clock.now_ms())
        produce(node)
    exhaust(node)
    waiting = follow(node, max_wait_ms=60_000)
    produce(node)
    assert waiting.answer() is waiting, "it waits"
    clock_of(node).advance_ms(11_000)
    produce(node)
    assert len(fetched(await answered(waiting)).records) > 0
    crash(node)


async def test_a_throttled_fetch_is_answered_with_nothing_when_its_time_is_over(tmp_path: Path) -> None:
    node = await leading(tmp_path)
    exhaust(node)
    answer = fetched(await answered(follow(node, max_wait_ms=10)))
    assert (answer.error_code, len(answer.records)) == (Error.NONE, 0)
    crash(node)


# --- many partitions ----------------------------------------------------------------------------------------


async def test_throttled_ones_of_many_partitions_are_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = turns.PER_TURN + 20
    node = await leading(tmp_path, rate=1_000_000, replicas=None)
    more = [
        PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=[ME, OTHER],
            isr=[ME],
            leader=ME,
            leader_epoch=0,
            partition_epoch=0,
            directories=[UNASSIGNED, UNASSIGNED],
        )
        for index in range(1, count)
    ]
    node.metadata.append(more)
    throttle(node, f"0:1,{count - 1}:1")
    wanted = [FetchPartition(partition=index, partition_max_bytes=1_000) for index in range(count)]
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=OTHER, replica_epoch=EPOCH),
        max_bytes=1_000_000,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=wanted)],
    )

    async def asked() -> FetchResponse:
        response = await answered(ask(node, request, VERSION))
        assert isinstance(response, FetchResponse)
        return response

    response = await asked()
    [topic] = response.responses
    throttled = [topic.partitions[0], topic.partitions[count - 1]]
    assert [len(each.records or b"") > 0 for each in throttled] == [True, False]
    topic.partitions[:] = throttled
    assert recorded(node) == 4 + len(encode(FetchResponse(responses=[topic]), VERSION))
    exhaust(node)
    response = await asked()
    assert not response.responses[0].partitions[0].records
    crash(node)


# --- quotas of clients --------------------------------------------------------------------------------------


async def test_a_follower_has_no_quota_of_a_client(tmp_path: Path) -> None:
    node = await leading(tmp_path, replicas=None)
    entity = [EntityData(entity_type="user", entity_name=None)]
    node.metadata.append([ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=0.001)])
    produce(node)
    assert fetch(node, 0).throttle_time_ms > 0
    for _ in range(3):
        answer = follow(node)
        assert answer.throttle_time_ms == 0
        assert len(fetched(answer).records) == leader_of(node).log.size, "all that it asks for"
    crash(node)
