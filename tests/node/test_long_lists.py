"""Requests that list everything of a kind that a node knows are served in turns of the loop."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from broker.controller.image import GROUP_RESOURCE, TopicChanges
from broker.handlers import (
    delete_groups,
    describe_transactions,
    list_config_resources,
    metadata,
    offset_fetch,
)
from broker.network import turns
from broker.network.dispatch import with_ports
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from coordinator.group.offsets import store
from coordinator.group.records import CommittedOffset, OffsetKey, OffsetRecord
from coordinator.group.shard import GroupShard
from protocol.errors import Error
from protocol.messages import metadata_records as records
from protocol.messages.configs import ListConfigResourcesRequest
from protocol.messages.groups import (
    DeleteGroupsRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.topics import CreatableTopic
from protocol.messages.transactions import DescribeTransactionsRequest
from protocol.waiting import PER_STEP, Later
from tests.node.transactional import Producer, ask, coordinating
from tests.support.topics import topics_of
from tests.support.whole_server import started, take_turns
from tests.support.wishes import wishes


def begun(node: Server, handler: ModuleType, version: int, request: Any) -> Any:
    """Return the handler's answer, or a `Later` whose turns are still to come."""
    context = SimpleNamespace(api_version=version, listener_name="PLAINTEXT", principal=ANONYMOUS)
    return with_ports(handler.handle, node)(context, request)


def commit(shard: GroupShard, keys: Iterable[OffsetKey]) -> None:
    shard.journal.write_in_parts(OffsetRecord(key, CommittedOffset(0, -1, "", 0)) for key in keys)


def turns_until_answered(node: Server, later: Later[Any]) -> int:
    """Take turns until the answer has come. Returns how many that took."""
    taken = 0
    while later.answer() is later:
        node.turns._take_turn()
        taken += 1
    return taken


async def test_config_resources_are_listed_in_turns_where_there_are_many(tmp_path: Path) -> None:
    node = await started(tmp_path)
    names = [f"group-{number}" for number in range(2 * PER_STEP)]
    node.metadata.append(
        [
            records.ConfigRecord(
                resource_type=GROUP_RESOURCE,
                resource_name=name,
                name="consumer.session.timeout.ms",
                value="50000",
            )
            for name in names
        ]
    )
    request = ListConfigResourcesRequest(resource_types=[GROUP_RESOURCE])
    later = begun(node, list_config_resources, 1, request)
    assert isinstance(later, Later)
    assert turns_until_answered(node, later) >= 3
    take_turns(node)
    assert [each.resource_name for each in later.answer().config_resources] == names


@pytest.mark.limit("broker.handlers.delete_groups.MOST_DELETED_OFFSETS")
async def test_groups_with_many_offsets_are_deleted_in_turns(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    ids = [f"g{number}" for number in range(5)]
    shard = node.groups.shard_of("g0")
    for group_id in ids:
        count = delete_groups.MOST_DELETED_OFFSETS // 2
        commit(node.groups.shard_of(group_id), (OffsetKey(group_id, "t", index) for index in range(count)))
    assert shard.offsets.keys_held("g0") == count
    later = begun(node, delete_groups, 2, DeleteGroupsRequest(groups_names=[*ids, "none"]))
    assert isinstance(later, Later)
    left = [sum(node.groups.shard_of(each).offsets.held(each) for each in ids)]
    while later.answer() is later:
        node.turns._take_turn()
        left.append(sum(node.groups.shard_of(each).offsets.held(each) for each in ids))
    assert len({*left}) >= 3, "some go in each turn"
    assert left[-1] == 0
    errors = {each.group_id: each.error_code for each in later.answer().results}
    assert errors == {**dict.fromkeys(ids, Error.NONE), "none": Error.GROUP_ID_NOT_FOUND}


async def test_groups_whose_deletion_has_begun_go_though_the_client_has_hung_up(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    ids = [f"g{number}" for number in range(3)]
    for group_id in ids:
        keys = (OffsetKey(group_id, "t", index) for index in range(delete_groups.MOST_DELETED_OFFSETS))
        commit(node.groups.shard_of(group_id), keys)
    later = begun(node, delete_groups, 2, DeleteGroupsRequest(groups_names=ids))
    later.abandon()
    take_turns(node)
    assert [node.groups.shard_of(each).offsets.held(each) for each in ids] == [0, 0, 0]


async def test_a_transaction_of_many_partitions_is_described_in_turns(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, partitions=2 * turns.PER_TURN)
    producer = Producer(node).begin()
    partitions = [("t", index) for index in range(2 * turns.PER_TURN)]
    producer.add(*partitions)
    request = DescribeTransactionsRequest(transactional_ids=[producer.transactional_id])
    later = begun(node, describe_transactions, 0, request)
    assert isinstance(later, Later)
    assert turns_until_answered(node, later) >= 2
    [described] = later.answer().transaction_states
    [topic] = described.topics
    assert {("t", index) for index in topic.partitions} == {*partitions}


@pytest.mark.limit("broker.handlers.metadata.PARTITIONS_PER_TURN")
@pytest.mark.parametrize("named", ["all", "by name", "by id"])
async def test_a_turn_of_metadata_ends_by_the_partitions_that_it_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setattr(metadata, "PARTITIONS_PER_TURN", 50)
    node = await started(tmp_path)
    for name in ("a", "b", "c"):
        topics_of(node).create([CreatableTopic(name=name, num_partitions=40, replication_factor=1)])
    known = node.metadata.image.topics
    asked = {
        "all": None,
        "by name": [MetadataRequestTopic(name=name) for name in known],
        "by id": [MetadataRequestTopic(name=None, topic_id=topic.topic_id) for topic in known.values()],
    }[named]
    later = begun(node, metadata, 12, MetadataRequest(topics=asked))
    assert isinstance(later, Later)
    take_turns(node)
    assert [len(topic.partitions) for topic in later.answer().topics] == [40, 40, 40]


async def test_the_offsets_of_a_deleted_topic_go_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEYS_AT_ONCE", 10)
    node = await coordinating(tmp_path)
    [shard] = node.groups.all_shards()
    keys = [OffsetKey(f"g{number}", "t", 0) for number in range(4 * PER_STEP)]
    commit(shard, keys)
    left: list[int] = []
    gone = TopicChanges({}, [node.metadata.image.topics["t"]], [])
    for _ in wishes(node.groups.follow(gone)):
        left.append(len(shard.offsets.committed))
    assert left == [3 * PER_STEP, 2 * PER_STEP, PER_STEP, 0]


@pytest.mark.parametrize("version", [7, 9, 10])
async def test_all_offsets_of_a_group_are_the_same_in_many_turns_as_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    node = await coordinating(tmp_path, partitions=150)
    producer = Producer(node).begin()
    assert producer.commit_offsets(7) == [Error.NONE]  # in an open transaction
    [shard] = node.groups.all_shards()
    keys = [OffsetKey("g", topic, index) for topic in ("t", "elsewhere") for index in range(150)]
    shard.journal.write_in_parts(
        OffsetRecord(key, CommittedOffset(number, -1, "", 0)) for number, key in enumerate(keys)
    )
    fields = {"require_stable": True}
    if version < 8:
        request = OffsetFetchRequest(group_id="g", topics=None, **fields)
    else:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], **fields)
    later = begun(node, offset_fetch, version, request)
    assert isinstance(later, Later)
    take_turns(node)
    with monkeypatch.context() as patch:
        patch.setattr(offset_fetch, "MOST_OF_PIECE", 10_000)
        at_once = begun(node, offset_fetch, version, request)
    assert not isinstance(at_once, Later)
    assert later.answer() == at_once
    topics = at_once.topics if version < 8 else at_once.groups[0].topics
    assert [len(topic.partitions) for topic in topics] == [150] * (1 if version == 10 else 2)
    errors = {each.error_code for topic in topics for each in topic.partitions}
    assert errors == {Error.NONE, Error.UNSTABLE_OFFSET_COMMIT}


async def test_the_groups_of_one_shard_are_listed_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PER_TURN", 10)
    node = await coordinating(tmp_path)
    [shard] = node.groups.all_shards()
    names = [f"g{number}" for number in range(25)]
    commit(shard, [OffsetKey(name, "t", 0) for name in names])
    for name in names:
        ask(node, JoinGroupRequest(group_id=name, session_timeout_ms=10_000, protocol_type="consumer"), 3)
    asked: list[int] = []
    list_groups = shard.list_groups

    def counted(states: Any, types: Any, group_ids: Any = None) -> Any:
        asked.append(len(group_ids))
        return list_groups(states, types, group_ids)

    monkeypatch.setattr(shard, "list_groups", counted)
    answer = ask(node, ListGroupsRequest(), 4)
    assert sorted(group.group_id for group in answer.groups) == sorted(names)
    assert asked == [10, 10, 5]


async def test_no_offset_of_a_deleted_topic_stays_though_its_transaction_ends_later(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    [shard] = node.groups.all_shards()
    producer = Producer(node).begin()
    assert producer.commit_offsets(42) == [Error.NONE]
    keys = [OffsetKey(f"g{number}", "t", 0) for number in range(2 * PER_STEP)]
    commit(shard, keys)
    steps = node.groups.follow(TopicChanges({}, [node.metadata.image.topics["t"]], []))
    steps.send(None)
    assert producer.end() is Error.NONE
    for _ in wishes(steps):
        pass
    assert shard.offsets.committed == {}


async def test_the_groups_of_many_shards_are_looked_through_in_turns(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    [shard] = node.groups.all_shards()
    keys = [OffsetKey(f"g{number}", "elsewhere", 0) for number in range(store.GROUPS_AT_ONCE - 1)]
    commit(shard, keys)
    gone = [("t", bytes(16))]
    assert sum(shard.forget_topics(gone, ["t"])) == PER_STEP - 1
