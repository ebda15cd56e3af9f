"""Share groups in a whole broker: members, states, requests about offsets, and restarts."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.environment.threads import ComputingAtOnce
from broker.handlers import HANDLERS
from broker.handlers.alter_share_group_offsets import MOST_ALTERED_PARTITIONS
from broker.handlers.delete_groups import MOST_SHARE_GROUPS
from broker.handlers.delete_share_group_offsets import MOST_FORGOTTEN_TOPICS
from broker.handlers.share_group_heartbeat import LONGEST_MEMBER_ID, MOST_NAMES
from broker.network.context import RequestContext
from broker.security.authorizer import Operation, ResourceType
from broker.server import Server
from coordinator.persister import ShareStateSummary
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import Error
from protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from protocol.messages.groups_share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.waiting import Later
from tests.node.transactional import CLIENT, create, delete
from tests.node.transactional import ask as ask_served
from tests.support.denying import Asked, DenyingAuthorizer
from tests.support.whole_server import handled, started, take_turns

VERSIONS = {76: 1, 77: 1, 90: 1, 91: 0, 92: 0}
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC


def ask(node: Server, request: Any) -> Any:
    """Return the response of one of the APIs of share groups."""
    api_key = type(request).API_KEY
    context = RequestContext(CLIENT, api_key, VERSIONS[api_key], 1, "client")  # type: ignore[arg-type]
    handler = importlib.import_module(f"broker.handlers.{HANDLERS[api_key]}")
    return handled(node, handler, context, request)


async def sharing(folder: Path, *settings: str) -> Server:
    """Start a broker that coordinates share groups, with topics `t` and `u` of two partitions."""
    node = await started(
        folder,
        "share.coordinator.state.topic.num.partitions=3",
        "offsets.topic.num.partitions=3",
        "group.share.assignment.interval.ms=0",
        *settings,
    )
    if "t" not in node.metadata.image.topics:
        create(node, "t", 2)
        create(node, "u", 2)
        assert ask_served(node, FindCoordinatorRequest(key="g"), 3).error_code == Error.NONE
    return node


def beat(node: Server, member: str, epoch: int, *names: str, group: str = "g", **more: Any) -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=[*names] if names else None,
        **more,
    )
    return ask(node, request)


def assigned(node: Server, answer: Any) -> dict[str, list[int]]:
    names = {topic_id: topic.name for topic_id, topic in node.metadata.image.topics_by_id.items()}
    return {names[topic.topic_id]: sorted(topic.partitions) for topic in answer.assignment.topic_partitions}


def settled(node: Server, member: str, *names: str) -> int:
    """Join, and send heartbeats until everything is assigned. Returns the member's epoch."""
    epoch: int = beat(node, member, 0, *names).member_epoch
    for _ in range(3):
        epoch = beat(node, member, epoch).member_epoch
    return epoch


def offsets(node: Server, **topics: list[int]) -> Any:
    """Return (start offset, leader epoch, lag) by topic and partition."""
    asked = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
        for name, indexes in topics.items()
    ]
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=asked if topics else None)
    (answer,) = ask(node, DescribeShareGroupOffsetsRequest(groups=[group])).groups
    if answer.error_code:
        return Error(answer.error_code)
    return {
        (topic.topic_name, part.partition_index): (part.start_offset, part.leader_epoch, part.lag)
        for topic in answer.topics
        for part in topic.partitions
    }


def alter(node: Server, **topics: dict[int, int]) -> Any:
    return ask(
        node,
        AlterShareGroupOffsetsRequest(
            group_id="g",
            topics=[
                AlterShareGroupOffsetsRequestTopic(
                    topic_name=name,
                    partitions=[
                        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                        for index, offset in parts.items()
                    ],
                )
                for name, parts in topics.items()
            ],
        ),
    )


def forget(node: Server, *names: str) -> Any:
    topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    return ask(node, DeleteShareGroupOffsetsRequest(group_id="g", topics=topics))


def state_of(node: Server, topic_id: bytes, partition: int) -> Any:
    key = SharePartitionKey("g", topic_id, partition)
    return node.share_states.shard_of(key).known.get(key)


async def test_a_member_is_assigned_partitions_that_the_share_coordinator_has_initialized(
    tmp_path: Path,
) -> None:
    node = await sharing(tmp_path)
    answer = beat(node, "m", 0, "t", "u")
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
    assert assigned(node, answer) == {}
    answer = beat(node, "m", 2)
    assert assigned(node, answer) == {"t": [0, 1], "u": [0, 1]}
    for name in ("t", "u"):
        for index in (0, 1):
            assert state_of(node, node.metadata.image.topics[name].topic_id, index).state_epoch == 2
    (listed,) = ask_served(node, ListGroupsRequest(types_filter=["Share"]), 5).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("g", "Stable", "share")


async def test_a_group_goes_on_after_a_restart(tmp_path: Path) -> None:
    node = await sharing(tmp_path)
    epoch = settled(node, "m", "t")
    (before,) = ask(node, ShareGroupDescribeRequest(group_ids=["g"])).groups
    await node.stop()

    node = await sharing(tmp_path)
    (after,) = ask(node, ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert after == before
    assert after.members[0].member_epoch == epoch
    assert beat(node, "m", epoch).error_code == Error.NONE


async def test_a_deleted_topic_goes_from_a_group_and_from_the_states(tmp_path: Path) -> None:
    node = await sharing(tmp_path)
    epoch = settled(node, "m", "t", "u")
    topic_id = node.metadata.image.topics["t"].topic_id
    delete(node, "t")
    assert state_of(node, topic_id, 0) is None
    assert assigned(node, beat(node, "m", epoch)) == {"u": [0, 1]}
    assert offsets(node) == {("u", 0): (-1, 0, -1), ("u", 1): (-1, 0, -1)}


async def test_offsets_are_altered_described_and_deleted(tmp_path: Path) -> None:
    node = await sharing(tmp_path)
    answer = alter(node, t={0: 7, 5: 1}, absent={0: 1})
    assert answer.error_code == Error.NONE
    errors = [
        (topic.topic_name, [part.error_code for part in topic.partitions]) for topic in answer.responses
    ]
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert errors == [("absent", [unknown]), ("t", [0, unknown])]
    assert offsets(node) == {("t", 0): (7, 0, -7)}
    assert offsets(node, t=[1, 0, 7], absent=[0]) == {
        ("t", 1): (-1, 0, -1),
        ("t", 0): (7, 0, -7),
        ("t", 7): (-1, 0, -1),
        ("absent", 0): (-1, 0, -1),
    }
    answer = forget(node, "t", "u")
    assert [(topic.topic_name, topic.error_code) for topic in answer.responses] == [("t", 0), ("u", unknown)]
    assert offsets(node) == {}
    assert offsets(node, t=[0]) == {("t", 0): (-1, 0, -1)}


def holding(held: list[Any], what: Callable[..., Any]) -> Callable[..., Later[Any]]:
    """Return a stand-in for asking the share coordinator. It puts each question into `held`, with `then`, which answers
    it."""

    def ask(*asked: Any) -> Later[Any]:
        later: Later[Any] = Later()
        held.append(what(*asked, then=later.reply))
        return later

    return ask


async def test_altering_or_deleting_offsets_is_finished_though_the_client_hangs_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await sharing(tmp_path)
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=7)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    altering = AlterShareGroupOffsetsRequest(group_id="g", topics=[topic])
    forgotten = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
    deleting = DeleteShareGroupOffsetsRequest(group_id="g", topics=forgotten)
    topic_id = node.metadata.image.topics["t"].topic_id
    for request, asked, initialized in ((altering, "initialize", {topic_id: [0]}), (deleting, "delete", {})):
        held: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(node.share_persister, asked, holding(held, lambda *asked, then: then))
            later = ask(node, request)
        later.abandon()
        (then,) = held
        then(None)
        take_turns(node)
        state = node.groups.shard_of("g").groups.share["g"].state_partitions
        assert state is not None
        assert (len(state.initializing), len(state.deleting)) == (0, 0)
        assert node.groups.shard_of("g").share_groups.offsets.initialized("g") == initialized


async def test_a_topic_that_is_deleted_while_offsets_are_described_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await sharing(tmp_path)
    alter(node, t={0: 7}, u={0: 7})
    asked: list[Any] = []
    monkeypatch.setattr(
        node.share_persister, "read_summary", holding(asked, lambda *asked, then: (*asked, then))
    )
    group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)
    later = ask(node, DescribeShareGroupOffsetsRequest(groups=[group]))
    assert isinstance(later, Later)
    ((_, topic_id, _, _, then),) = asked
    name = node.metadata.image.topics_by_id[topic_id].name
    delete(node, *{"t", "u"} - {name})
    then(ShareStateSummary())
    take_turns(node)
    (described,) = later.answer().groups  # type: ignore[union-attr]
    assert [topic.topic_name for topic in described.topics] == [name]


async def test_partitions_that_there_are_not_are_described_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may name millions of them, and another node would be asked for half a minute."""
    node = await sharing(tmp_path)
    asked: list[int] = []
    monkeypatch.setattr(node.share_persister, "read_summary", lambda *args: asked.append(args[2]))
    assert offsets(node, t=[2, -1, 2**31 - 1]) == dict.fromkeys(
        [("t", 2), ("t", -1), ("t", 2**31 - 1)], (-1, 0, -1)
    )
    assert asked == []


async def test_a_group_is_deleted_with_its_states(tmp_path: Path) -> None:
    node = await sharing(tmp_path)
    epoch = settled(node, "m", "t")
    topic_id = node.metadata.image.topics["t"].topic_id

    def delete_group() -> Error:
        (result,) = ask_served(node, DeleteGroupsRequest(groups_names=["g"]), 2).results
        return Error(result.error_code)

    assert delete_group() is Error.NON_EMPTY_GROUP
    assert alter(node, t={0: 1}).error_code == Error.NON_EMPTY_GROUP
    assert forget(node, "t").error_code == Error.NON_EMPTY_GROUP
    assert beat(node, "m", -1).member_epoch == -1
    assert state_of(node, topic_id, 0) is not None
    assert delete_group() is Error.NONE
    assert state_of(node, topic_id, 0) is None
    assert delete_group() is Error.GROUP_ID_NOT_FOUND
    assert beat(node, "m", epoch).error_code == Error.GROUP_ID_NOT_FOUND
    (described,) = ask(node, ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert described.error_code == Error.GROUP_ID_NOT_FOUND


@pytest.mark.limit("broker.handlers.share_group_heartbeat.LONGEST_MEMBER_ID")
async def test_a_nonsense_heartbeat_is_refused(tmp_path: Path) -> None:
    node = await sharing(tmp_path)
    invalid = Error.INVALID_REQUEST
    assert beat(node, "m" * LONGEST_MEMBER_ID, 0, "t").error_code == Error.NONE
    for member in ("m" * (LONGEST_MEMBER_ID + 1), "\N{GRINNING FACE}" * 19, ""):
        answer = beat(node, member, 0, "t")
        assert (answer.error_code, answer.error_message) == (invalid, None)
    for answer in (
        beat(node, " ", 0, "t"),
        beat(node, "m", 0, "t", group=""),
        beat(node, "m", 0, "t", rack_id=""),
        beat(node, "m", 0),
        beat(node, "m", -2),
    ):
        assert answer.error_code == invalid
        assert answer.error_message


@pytest.mark.limit("broker.handlers.share_group_heartbeat.MOST_NAMES")
async def test_a_members_subscription_has_a_limit_of_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await sharing(tmp_path)
    monkeypatch.setattr(node.turns, "_computing", ComputingAtOnce())
    names = [f"n{number}" for number in range(MOST_NAMES)]
    assert beat(node, "m", 0, *names, "more").error_code == Error.INVALID_REQUEST
    assert beat(node, "m", 0, *names).error_code == Error.NONE


@pytest.mark.limit("broker.handlers.alter_share_group_offsets.MOST_ALTERED_PARTITIONS")
async def test_altered_partitions_have_a_limit(tmp_path: Path) -> None:
    node = await sharing(tmp_path)
    parts = dict.fromkeys(range(MOST_ALTERED_PARTITIONS), 5)
    assert alter(node, t=parts).error_code == Error.INVALID_REQUEST
    del parts[0]
    answer = alter(node, t=parts)
    assert answer.error_code == Error.NONE
    assert answer.responses[0].partitions[0].error_code == Error.NONE


@pytest.mark.limit("broker.handlers.delete_share_group_offsets.MOST_FORGOTTEN_TOPICS")
async def test_forgotten_topics_have_a_limit(tmp_path: Path) -> None:
    node = await sharing(tmp_path)
    alter(node, t={0: 1})
    names = ["absent"] * (MOST_FORGOTTEN_TOPICS - 1)
    assert forget(node, "t", *names, "more").error_code == Error.INVALID_REQUEST
    assert forget(node, "t", *names).responses[0].error_code == Error.NONE


@pytest.mark.limit("broker.handlers.delete_groups.MOST_SHARE_GROUPS")
async def test_many_share_groups_are_deleted_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await sharing(tmp_path, "offsets.topic.num.partitions=1")
    groups = [f"g{number}" for number in range(2 * MOST_SHARE_GROUPS + 1)]
    for group in groups:
        beat(node, "m", 0, "t", group=group)
        beat(node, "m", -1, group=group)
    portions: list[int] = []
    share_groups = node.groups.shard_of("g").share_groups
    delete_states = share_groups.delete_states

    def counted(group_ids: Sequence[str]) -> Any:
        portions.append(len(group_ids))
        return delete_states(group_ids)

    monkeypatch.setattr(share_groups, "delete_states", counted)
    answer = ask_served(node, DeleteGroupsRequest(groups_names=groups), 2)
    assert [result.error_code for result in answer.results] == [0] * len(groups)
    assert portions == [MOST_SHARE_GROUPS, MOST_SHARE_GROUPS, 1]
    assert node.groups.shard_of("g").group_ids() == []


async def test_the_right_is_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await sharing(tmp_path)

    def denying(operation: Operation, kind: ResourceType, name: str) -> DenyingAuthorizer:
        authorizer = DenyingAuthorizer().deny(operation, kind, name)
        monkeypatch.setattr(node, "authorizer", authorizer)
        return authorizer

    refused = Error.GROUP_AUTHORIZATION_FAILED
    authorizer = denying(Operation.READ, GROUP, "g")
    assert beat(node, "", 0).error_code == refused
    assert alter(node, t={0: 1}).error_code == refused
    assert authorizer.asked == [Asked(Operation.READ, GROUP, "g")] * 2
    denying(Operation.DELETE, GROUP, "g")
    assert forget(node, "t").error_code == refused
    denying(Operation.DESCRIBE, GROUP, "g")
    assert offsets(node) is refused
    (described,) = ask(node, ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert described.error_code == refused
    denying(Operation.DESCRIBE, TOPIC, "u")
    assert beat(node, "m", 0, "t", "u").error_code == Error.TOPIC_AUTHORIZATION_FAILED
    monkeypatch.undo()
    settled(node, "m", "t", "u")
    denying(Operation.DESCRIBE, TOPIC, "u")
    assert offsets(node).keys() == {("t", 0), ("t", 1)}
    assert offsets(node, t=[0], u=[0]) == {("t", 0): (-1, 0, -1), ("u", 0): (-1, 0, -1)}
    (described,) = ask(node, ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert described.error_code == Error.TOPIC_AUTHORIZATION_FAILED
    denying(Operation.READ, TOPIC, "u")
    beat(node, "m", -1)
    answer = forget(node, "t", "u")
    assert [(topic.topic_name, topic.error_code) for topic in answer.responses] == [
        ("u", Error.TOPIC_AUTHORIZATION_FAILED),
        ("t", 0),
    ]
    answer = alter(node, t={0: 1}, u={0: 1})
    assert [topic.partitions[0].error_code for topic in answer.responses] == [
        Error.TOPIC_AUTHORIZATION_FAILED,
        0,
    ]


async def test_a_cluster_without_share_groups_refuses_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await sharing(tmp_path)
    monkeypatch.setitem(node.metadata.image.features, "share.version", 0)
    unsupported = Error.UNSUPPORTED_VERSION
    assert beat(node, "m", 0, "t").error_code == unsupported
    assert alter(node, t={0: 1}).error_code == unsupported
    assert forget(node, "t").error_code == unsupported
    assert offsets(node) is unsupported
    (described,) = ask(node, ShareGroupDescribeRequest(group_ids=["g"])).groups
    assert described.error_code == unsupported


async def test_a_group_may_have_its_own_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await sharing(tmp_path)
    own = {"share.heartbeat.interval.ms": "7000"}
    monkeypatch.setattr(node.groups._topics.image, "configs", {**node.metadata.image.configs, (32, "g"): own})
    assert beat(node, "m", 0, "t").heartbeat_interval_ms == 7_000
    assert beat(node, "m", 0, "t", group="h").heartbeat_interval_ms == 5_000
