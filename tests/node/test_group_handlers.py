"""The handlers of groups alone: who may ask what, in Kafka's order, and clients that hang up meanwhile."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.coordination.groups import Groups
from broker.handlers import HANDLERS
from broker.network.connection import Connection
from broker.network.context import RequestContext
from broker.network.dispatch import with_ports
from broker.network.turns import Turns
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from coordinator.group.offsets.commit import Committer, NewOffset
from coordinator.group.shard import GroupShard
from protocol.errors import Error
from protocol.messages import groups as groups_offsets
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    SyncGroupRequest,
)
from protocol.messages.groups_consumer import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from protocol.waiting import Later
from tests.support.denying import Asked, DenyingAuthorizer
from tests.support.staged_offsets import staged
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics

T, U = b"t".ljust(16, b"\1"), b"u".ljust(16, b"\1")
CONNECTION = cast(
    Connection, SimpleNamespace(listener=SimpleNamespace(name="PLAINTEXT"), peer_host="127.0.0.1")
)

READ, DELETE, DESCRIBE = Operation.READ, Operation.DELETE, Operation.DESCRIBE
GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC


class OneShard:
    """The port `Groups` with one shard for all groups; topics `t` and `u` of two partitions."""

    serves_consumer_groups = True
    max_offset_metadata = 4096
    consumer_assignors = ("uniform", "range")

    def __init__(self) -> None:
        self.consumers = Consumers(FakeTopics(t=2, u=2))
        self.shard = self.consumers.shard
        self.runtime = self.consumers.runtime
        self.authorizer = DenyingAuthorizer()
        image = SimpleNamespace(topics={}, topics_by_id={})
        for name, topic_id in (("t", T), ("u", U)):
            topic = SimpleNamespace(name=name, topic_id=topic_id, partitions={0: None, 1: None})
            image.topics[name] = image.topics_by_id[topic_id] = topic
        self.metadata = SimpleNamespace(image=image)

    def shard_of(self, group_id: str) -> GroupShard:
        return self.shard

    def all_shards(self) -> list[GroupShard]:
        return [self.shard]

    ask: Any = Groups.ask
    ask_waiting: Any = Groups.ask_waiting
    decide: Any = Groups.decide

    def handle(self, request: Any, version: int) -> Any:
        """Return the handler's answer, or a `Later` if it has to wait."""
        api_key = type(request).API_KEY
        handle = importlib.import_module(f"broker.handlers.{HANDLERS[api_key]}").handle
        node = SimpleNamespace(
            groups=self,
            metadata=self.metadata,
            authorizer=self.authorizer,
            clock=self.runtime,
            turns=Turns(cast(Any, SimpleNamespace(call_soon=lambda call: call()))),
        )
        context = RequestContext(CONNECTION, api_key, version, 1, "client")
        return with_ports(handle, node)(context, request)

    def commit(self, *topics: tuple[str, bytes]) -> None:
        offsets = [NewOffset(name, topic_id, 0, 7, -1, "") for name, topic_id in topics]
        self.shard.commit_offsets(Committer("g"), staged(self.shard, "g", offsets), api_version=9)


def offset_commit() -> groups_offsets.OffsetCommitRequest:
    return groups_offsets.OffsetCommitRequest(
        group_id="g",
        topics=[
            groups_offsets.OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    groups_offsets.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
                ],
            )
            for name in ("t", "u")
        ],
    )


def offset_delete() -> groups_offsets.OffsetDeleteRequest:
    return groups_offsets.OffsetDeleteRequest(
        group_id="g",
        topics=[
            groups_offsets.OffsetDeleteRequestTopic(
                name=name, partitions=[groups_offsets.OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in ("t", "u")
        ],
    )


def offset_fetch(*topics: str) -> groups_offsets.OffsetFetchRequest:
    asked = [groups_offsets.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in topics]
    group = groups_offsets.OffsetFetchRequestGroup(group_id="g", topics=asked or None)
    return groups_offsets.OffsetFetchRequest(groups=[group])


def consumer_join(*names: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=[*names],
        topic_partitions=[],
    )


def join() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


OF_ONE_GROUP: list[tuple[Any, int, Operation]] = [
    (join(), 9, READ),
    (SyncGroupRequest(group_id="g"), 4, READ),
    (HeartbeatRequest(group_id="g"), 4, READ),
    (LeaveGroupRequest(group_id="g"), 5, READ),
    (offset_delete(), 0, DELETE),
    (consumer_join("t"), 1, READ),
]


@pytest.mark.parametrize(("request_", "version", "operation"), OF_ONE_GROUP)
def test_the_right_to_use_a_group_is_checked_first(request_: Any, version: int, operation: Operation) -> None:
    groups = OneShard()
    groups.authorizer.deny(operation, GROUP, "g")

    answer = groups.handle(request_, version)

    assert answer.error_code == Error.GROUP_AUTHORIZATION_FAILED
    assert groups.authorizer.asked == [Asked(operation, GROUP, "g")]
    assert groups.runtime.log == []


def test_a_commit_without_the_right_to_the_group_is_refused_for_each_partition() -> None:
    groups = OneShard()
    groups.authorizer.deny(READ, GROUP, "g")

    answer = groups.handle(offset_commit(), 9)

    assert [(topic.name, topic.partitions[0].error_code) for topic in answer.topics] == [
        ("t", Error.GROUP_AUTHORIZATION_FAILED),
        ("u", Error.GROUP_AUTHORIZATION_FAILED),
    ]
    assert groups.authorizer.asked == [Asked(READ, GROUP, "g")]


def test_a_commit_asks_for_the_group_and_then_for_each_topic() -> None:
    groups = OneShard()
    groups.authorizer.deny(READ, TOPIC, "u")

    answer = groups.handle(offset_commit(), 9)

    errors = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert errors == {"t": Error.NONE, "u": Error.TOPIC_AUTHORIZATION_FAILED}
    assert groups.authorizer.asked == [
        Asked(READ, GROUP, "g"),
        Asked(READ, TOPIC, "t"),
        Asked(READ, TOPIC, "u"),
    ]


def test_without_the_right_to_read_a_topic_its_existence_is_hidden() -> None:
    groups = OneShard()
    groups.authorizer.deny(READ, TOPIC)
    request = offset_commit()
    request.topics[1].name = "nowhere"

    answer = groups.handle(request, 9)

    assert {topic.partitions[0].error_code for topic in answer.topics} == {Error.TOPIC_AUTHORIZATION_FAILED}


def test_an_unknown_topic_id_is_unknown_to_everybody() -> None:
    groups = OneShard()
    groups.authorizer.deny(READ, TOPIC)
    request = offset_commit()
    request.topics[0].topic_id = b"?" * 16
    request.topics[1].topic_id = U

    answer = groups.handle(request, 10)

    errors = {topic.topic_id: topic.partitions[0].error_code for topic in answer.topics}
    assert errors == {b"?" * 16: Error.UNKNOWN_TOPIC_ID, U: Error.TOPIC_AUTHORIZATION_FAILED}


def test_offsets_are_deleted_of_topics_that_may_be_read() -> None:
    groups = OneShard()
    groups.commit(("t", T), ("u", U))
    groups.authorizer.deny(READ, TOPIC, "u")

    answer = groups.handle(offset_delete(), 0)

    errors = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
    assert errors == {"t": Error.NONE, "u": Error.TOPIC_AUTHORIZATION_FAILED}
    assert groups.authorizer.asked[0] == Asked(DELETE, GROUP, "g")


def test_offsets_are_shown_of_groups_that_may_be_described() -> None:
    groups = OneShard()
    groups.commit(("t", T))
    groups.authorizer.deny(DESCRIBE, GROUP, "g")

    (group,) = groups.handle(offset_fetch("t"), 9).groups
    assert (group.error_code, group.topics) == (Error.GROUP_AUTHORIZATION_FAILED, [])

    request = groups_offsets.OffsetFetchRequest(group_id="g", topics=None)
    assert groups.handle(request, 7).error_code == Error.GROUP_AUTHORIZATION_FAILED


def test_offsets_of_topics_that_may_not_be_described_are_refused_after_the_others() -> None:
    groups = OneShard()
    groups.commit(("t", T), ("u", U))
    groups.authorizer.deny(DESCRIBE, TOPIC, "t")

    (group,) = groups.handle(offset_fetch("t", "u"), 9).groups

    assert [(topic.name, topic.partitions[0].error_code) for topic in group.topics] == [
        ("u", Error.NONE),
        ("t", Error.TOPIC_AUTHORIZATION_FAILED),
    ]


@pytest.mark.parametrize("version", [9, 10])
def test_fetching_all_offsets_shows_topics_that_may_be_described(version: int) -> None:
    groups = OneShard()
    groups.commit(("t", T), ("u", U))
    groups.authorizer.deny(DESCRIBE, TOPIC, "t")

    (group,) = groups.handle(offset_fetch(), version).groups

    assert [topic.name for topic in group.topics] == ["u"]


def test_a_consumer_subscribes_to_topics_that_it_may_describe() -> None:
    groups = OneShard()
    groups.authorizer.deny(DESCRIBE, TOPIC, "u")

    answer = groups.handle(consumer_join("t", "u"), 1)

    assert answer.error_code == Error.TOPIC_AUTHORIZATION_FAILED
    assert groups.shard.groups.consumer == {}
    assert groups.authorizer.asked[0] == Asked(READ, GROUP, "g")


def test_groups_that_may_not_be_described_come_first() -> None:
    groups = OneShard()
    groups.commit(("t", T))
    groups.authorizer.deny(DESCRIBE, GROUP, "secret")

    answer = groups.handle(
        DescribeGroupsRequest(groups=["g", "secret"], include_authorized_operations=True), 5
    )

    assert [(group.group_id, group.error_code) for group in answer.groups] == [
        ("secret", Error.GROUP_AUTHORIZATION_FAILED),
        ("g", Error.NONE),
    ]
    assert answer.groups[1].authorized_operations & 1 << DESCRIBE


def test_a_consumer_group_with_topics_that_may_not_be_described_is_hidden() -> None:
    groups = OneShard()
    groups.handle(consumer_join("t"), 1)
    groups.authorizer.deny(DESCRIBE, GROUP, "secret").deny(DESCRIBE, TOPIC, "t")

    answer = groups.handle(ConsumerGroupDescribeRequest(group_ids=["g", "secret"]), 1)

    assert [(group.group_id, group.error_code, group.members) for group in answer.groups] == [
        ("secret", Error.GROUP_AUTHORIZATION_FAILED, []),
        ("g", Error.TOPIC_AUTHORIZATION_FAILED, []),
    ]


def test_the_list_has_groups_that_may_be_described_or_all_with_the_right_on_the_cluster() -> None:
    groups = OneShard()
    for group in ("g", "h"):
        offsets = staged(groups.shard, group, [NewOffset("t", T, 0, 7, -1, "")])
        groups.shard.commit_offsets(Committer(group), offsets, api_version=9)
    groups.authorizer.deny(DESCRIBE, GROUP, "g")

    assert [group.group_id for group in groups.handle(ListGroupsRequest(), 4).groups] == ["g", "h"]
    groups.authorizer.deny(DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    assert [group.group_id for group in groups.handle(ListGroupsRequest(), 4).groups] == ["h"]


def test_groups_that_may_not_be_deleted_come_last_and_stay() -> None:
    groups = OneShard()
    groups.commit(("t", T))
    groups.authorizer.deny(DELETE, GROUP, "g")

    answer = groups.handle(DeleteGroupsRequest(groups_names=["g", "none"]), 2)

    assert [(result.group_id, result.error_code) for result in answer.results] == [
        ("none", Error.GROUP_ID_NOT_FOUND),
        ("g", Error.GROUP_AUTHORIZATION_FAILED),
    ]
    assert "g" in groups.shard.groups.classic


def errors_in(answer: Any) -> set[Error]:
    """Return all error codes of an answer, at any depth."""
    if isinstance(answer, list):
        return {error for each in answer for error in errors_in(each)}
    found = set()
    for name in getattr(type(answer), "__annotations__", ()):
        value = getattr(answer, name, None)
        if name == "error_code":
            found.add(Error(value))
        else:
            found |= errors_in(value)
    return found


REQUESTS: list[tuple[Callable[[], Any], int]] = [
    (join, 4),
    (lambda: HeartbeatRequest(group_id="g"), 4),
    (offset_commit, 9),
    (lambda: offset_fetch("t"), 9),
    (lambda: ListGroupsRequest(), 4),
    (lambda: DescribeGroupsRequest(groups=["g", "h"]), 5),
    (lambda: DeleteGroupsRequest(groups_names=["g", "h"]), 2),
    (lambda: consumer_join("t"), 1),
]


@pytest.mark.parametrize(("request_", "version"), REQUESTS)
def test_an_answer_waits_for_the_commit_and_a_client_that_hung_up_is_passed_over(
    request_: Callable[[], Any], version: int
) -> None:
    groups = OneShard()
    groups.runtime.lags = True
    groups.commit(("t", T))
    gone = groups.handle(request_(), version)
    waiting = groups.handle(request_(), version)
    assert isinstance(gone, Later)
    assert isinstance(waiting, Later)
    gone.abandon()

    groups.runtime.commit()

    assert not isinstance(waiting.answer(), Later)


@pytest.mark.parametrize(("request_", "version"), REQUESTS)
def test_requests_waiting_when_leadership_is_lost_are_sent_elsewhere(
    request_: Callable[[], Any], version: int
) -> None:
    groups = OneShard()
    groups.runtime.lags = True
    groups.commit(("t", T))
    waiting = groups.handle(request_(), version)

    groups.shard.unload()

    assert Error.NOT_COORDINATOR in errors_in(waiting.answer())
