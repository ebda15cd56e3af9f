"""The handlers of streams groups on their own: the rights that each request needs, checked in Kafka's order."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from broker.coordination.groups import Groups
from broker.coordination.internal_topics import InternalTopics
from broker.handlers import (
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
)
from broker.network.connection import Connection
from broker.network.context import RequestContext
from broker.network.dispatch import with_ports
from broker.network.turns import Turns
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from coordinator.group.shard import GroupShard
from protocol.errors import MOST_MESSAGE_CHARACTERS, Error
from protocol.messages.groups_streams import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TaskIds,
)
from protocol.messages.topics import CreatableTopic
from protocol.waiting import Later
from tests.support.denying import Asked, DenyingAuthorizer
from tests.support.manual_clock import ManualClock
from tests.support.submitting import drive
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.streams.members import StreamsMembers, subtopology, topology

CONNECTION = cast(
    Connection, SimpleNamespace(listener=SimpleNamespace(name="PLAINTEXT"), peer_host="127.0.0.1")
)
READ, DESCRIBE, CREATE = Operation.READ, Operation.DESCRIBE, Operation.CREATE
GROUP, TOPIC, CLUSTER = ResourceType.GROUP, ResourceType.TOPIC, ResourceType.CLUSTER


class OneStreamsShard:
    """The port `Groups` with one shard for all groups; a topic `t` of two partitions."""

    serves_streams_groups = True

    def __init__(self) -> None:
        self.members = StreamsMembers(FakeTopics(t=2))
        self.authorizer = DenyingAuthorizer()
        self.created: list[str] = []
        self.internal_topics = InternalTopics(self._create, ManualClock(), drive)

    async def _create(self, topics: Sequence[CreatableTopic]) -> Any:
        self.created.extend(topic.name for topic in topics)
        never: Later[Any] = Later()
        return await never

    def shard_of(self, group_id: str) -> GroupShard:
        return self.members.shard

    ask: Any = Groups.ask
    decide: Any = Groups.decide

    def beat(self, request: StreamsGroupHeartbeatRequest) -> Any:
        node = SimpleNamespace(
            groups=self, internal_topics=self.internal_topics, authorizer=self.authorizer, turns=_turns()
        )
        return with_ports(streams_group_heartbeat.handle, node)(_context(request), request)

    def describe(self, *groups: str, description: bool = False) -> Any:
        request = StreamsGroupDescribeRequest(group_ids=[*groups], include_topology_description=description)
        node = SimpleNamespace(groups=self, authorizer=self.authorizer, turns=_turns())
        answer = with_ports(streams_group_describe.handle, node)(_context(request), request)
        return answer.answer() if isinstance(answer, Later) else answer

    def update(self, request: StreamsGroupTopologyDescriptionUpdateRequest) -> tuple[int, str | None]:
        node = SimpleNamespace(groups=self, authorizer=self.authorizer)
        answer = with_ports(streams_group_topology_description_update.handle, node)(
            _context(request), request
        )
        return answer.error_code, answer.error_message


def _turns() -> Turns:
    return Turns(cast(Any, SimpleNamespace(call_soon=lambda call: call())))


def _context(
    request: StreamsGroupHeartbeatRequest
    | StreamsGroupDescribeRequest
    | StreamsGroupTopologyDescriptionUpdateRequest,
) -> RequestContext:
    return RequestContext(CONNECTION, type(request).API_KEY, 0, 1, "client")


def join(*changelogs: str, sinks: Sequence[str] = ()) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        topology=topology(subtopology("0", "t", changelogs=changelogs, sinks=sinks)),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )


def test_a_client_without_rights_to_the_group_is_refused_before_anything_else() -> None:
    groups = OneStreamsShard()
    groups.authorizer.deny(READ, GROUP, "g")
    assert groups.beat(join()).error_code == Error.GROUP_AUTHORIZATION_FAILED
    assert groups.authorizer.asked == [Asked(READ, GROUP, "g")]
    assert groups.members.runtime.log == []


def test_a_member_has_to_be_allowed_to_describe_all_topics_of_its_topology() -> None:
    for name in ("t", "c", "s"):
        groups = OneStreamsShard()
        groups.authorizer.deny(DESCRIBE, TOPIC, name)
        assert groups.beat(join("c", sinks=["s"])).error_code == Error.TOPIC_AUTHORIZATION_FAILED
        assert groups.members.shard.groups.streams == {}


def test_no_internal_topic_is_created_if_the_client_may_not_create_all_of_them() -> None:
    groups = OneStreamsShard()
    groups.authorizer.deny(CREATE, CLUSTER, CLUSTER_NAME).deny(CREATE, TOPIC, "d")
    (status,) = groups.beat(join("c", "d")).status
    assert status.status_detail.endswith("; Unauthorized to CREATE on topics d.")
    assert groups.created == []


def test_the_right_to_create_the_internal_topics_is_enough() -> None:
    groups = OneStreamsShard()
    groups.authorizer.deny(CREATE, CLUSTER, CLUSTER_NAME)
    groups.beat(join("c"))
    assert groups.created == ["c"]


def test_a_long_status_is_cut_to_fit_on_the_wire() -> None:
    groups = OneStreamsShard()
    names = [f"{number:0>240}" for number in range(100)]
    for number, name in enumerate(names):
        groups.members.topics.create(name, 1 + number % 2)
    request = join()
    request.topology = topology(subtopology("0", *names, copartitioned=[(range(100), ())]))
    request.member_id, request.shutdown_application = "m" * 32_767, True
    for status in groups.beat(request).status:
        assert len(status.status_detail) == MOST_MESSAGE_CHARACTERS


def test_a_streams_group_with_topics_that_may_not_be_described_is_hidden() -> None:
    groups = OneStreamsShard()
    groups.beat(join("c", sinks=["s"]))
    for name in ("t", "c", "s"):
        groups.authorizer = DenyingAuthorizer()
        groups.authorizer.deny(DESCRIBE, GROUP, "secret").deny(DESCRIBE, TOPIC, name)
        answer = groups.describe("g", "secret")
        assert [(group.group_id, group.error_code, group.topology) for group in answer.groups] == [
            ("secret", Error.GROUP_AUTHORIZATION_FAILED, None),
            ("g", Error.TOPIC_AUTHORIZATION_FAILED, None),
        ]


def test_a_requested_topology_description_is_reported_as_not_stored() -> None:
    groups = OneStreamsShard()
    groups.beat(join())
    assert [each.topology_description_status for each in groups.describe("g").groups] == [0]
    described = groups.describe("g", "none", description=True).groups
    assert [(each.error_code, each.topology_description_status) for each in described] == [
        (Error.NONE, 1),
        (Error.GROUP_ID_NOT_FOUND, 0),
    ]
    assert [each.assignor_name for each in described] == ["sticky", None]


def test_a_topology_description_is_refused() -> None:
    """There is no plug-in to store it, so the request isn't even checked."""
    groups = OneStreamsShard()
    request = StreamsGroupTopologyDescriptionUpdateRequest(group_id="g")
    assert groups.update(request) == (
        Error.UNSUPPORTED_VERSION,
        "The broker has no streams group topology description plugin configured.",
    )
    groups.authorizer.deny(READ, GROUP, "g")
    assert groups.update(request) == (Error.GROUP_AUTHORIZATION_FAILED, None)
    groups.serves_streams_groups = False
    assert groups.update(request) == (Error.UNSUPPORTED_VERSION, None)


def test_a_blank_instance_id_is_refused_and_a_short_leave_needs_an_instance_id() -> None:
    for epoch, instance, text in (
        (0, "", "InstanceId can't be empty."),
        (0, " ", "InstanceId can't be empty."),
        (-2, None, "InstanceId can't be null."),
        (-3, "i", "MemberEpoch is -3, but must be greater than or equal to -2."),
    ):
        groups = OneStreamsShard()
        request = join()
        request.member_epoch, request.instance_id = epoch, instance
        refused = groups.beat(request)
        assert (refused.error_code, refused.error_message) == (Error.INVALID_REQUEST, text)
        assert refused.acceptable_recovery_lag == -1


def test_task_offsets_and_existing_warmup_tasks_are_accepted() -> None:
    groups = OneStreamsShard()
    groups.beat(join())
    request = StreamsGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=2)
    request.active_tasks, request.standby_tasks = [], []
    request.warmup_tasks = [TaskIds(subtopology_id="0", partitions=[1])]
    request.task_offsets = request.task_end_offsets = []
    assert groups.beat(request).error_code == Error.NONE
    request.warmup_tasks = [TaskIds(subtopology_id="0", partitions=[2])]
    assert groups.beat(request).error_code == Error.INVALID_REQUEST


def test_streams_groups_are_unsupported_while_they_are_off() -> None:
    groups = OneStreamsShard()
    groups.serves_streams_groups = False
    assert groups.beat(join()).error_code == Error.UNSUPPORTED_VERSION
    (described,) = groups.describe("g").groups
    assert (described.group_id, described.error_code) == ("g", Error.UNSUPPORTED_VERSION)
    assert groups.members.runtime.log == []
