"""The memory that the members of all groups of a node hold, and its bound.

A member's metadata and its assignment are kept for as long as it is a member, which is up to half an hour
after it was last heard of. Each request adds its bytes to a sum. When the sum reaches the bound, all members
are counted anew: some have left since, and memory has grown in other ways.
"""

from __future__ import annotations

from collections.abc import Iterable
from sys import getsizeof
from typing import TYPE_CHECKING
from weakref import WeakSet

from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from coordinator.group.classic.group import ClassicGroup, ClassicMember
    from coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
    from coordinator.group.ports import Client, KnownTopics
    from coordinator.group.share.group import ShareGroup, ShareMember
    from coordinator.group.store import GroupStore
    from coordinator.group.streams.group import StreamsGroup, StreamsMember
    from protocol.messages import group_records as group_records_streams
    from protocol.messages import groups_streams
    from protocol.messages.groups import JoinGroupRequest
    from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
    from protocol.messages.groups_share import ShareGroupHeartbeatRequest
    from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest

MOST_MEMBER_BYTES = 256 * 1024 * 1024
"""The bound for all members, including those that only have an id so far."""
MEMBER_BYTES = (
    1_000  # per member of a classic group, without metadata; an assignment of up to as much is included
)
CLASSIC_GROUP_BYTES = 1_500  # of each classic group, without its id
PROTOCOL_BYTES = 300  # of each protocol of a classic member, without name and metadata
GROUP_BYTES = 2_400  # of each consumer group
CONSUMER_BYTES = 2_000  # of each member of a consumer group
NAME_BYTES = 300  # of each topic that a member or an expression subscribes to, without its name
ASSIGNED_TOPIC_BYTES = 1_400  # of each topic with partitions that a consumer group has assigned
PARTITION_BYTES = 600  # of each such partition: its target owner, its owner, and since when
OFFSET_BYTES = 600  # of each task whose offset a member reports
TASK_BYTES = 2_000  # of each task of a streams group: its target owner, its owner, and since when
TOPOLOGY_TOPIC_BYTES = 1_500  # of each topic of a topology, without its name, and of each of its configs
BETWEEN_COUNTS_MS = 1_000  # at least, unless much was added: a refused client may retry again and again
_LITTLE_BYTES = MOST_MEMBER_BYTES // 16
_LONG_AGO_MS = -BETWEEN_COUNTS_MS


def _protocols_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    return sum([PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols])


def _names_bytes(names: Iterable[str]) -> int:
    return sum([NAME_BYTES + getsizeof(name) for name in names])


def _texts_bytes(*texts: str | None) -> int:
    return sum([getsizeof(text) for text in texts if text])


# ---- of classic groups


def brought_by_join(request: JoinGroupRequest, name: str, member: ClassicMember | None) -> int:
    """Return how many bytes this join adds. A new member's id begins with `name`; `member` is a known one."""
    brought_bytes = sum([PROTOCOL_BYTES + len(each.name) + len(each.metadata) for each in request.protocols])
    if member is None:
        return brought_bytes + MEMBER_BYTES + len(name)
    return brought_bytes - _protocols_bytes(member.protocols)


def assignments_bytes(assignments: Iterable[bytes]) -> int:
    """The bytes of assignments in a classic group that exceed MEMBER_BYTES each."""
    return sum([max(len(each) - MEMBER_BYTES, 0) for each in assignments])


def classic_group_bytes(group_id: str) -> int:
    """The bytes of a group without members. A refused join leaves one, until the next check for expired offsets."""
    return CLASSIC_GROUP_BYTES + getsizeof(group_id)


def _classic_bytes(group: ClassicGroup) -> int:
    held_bytes = classic_group_bytes(group.group_id)
    held_bytes += sum([MEMBER_BYTES + len(member_id) for member_id in group.pending_joins])
    for member in group.members.values():
        held_bytes += MEMBER_BYTES + len(member.member_id) + _protocols_bytes(member.protocols)
    return held_bytes + assignments_bytes([member.assignment for member in group.members.values()])


# ---- of consumer groups


def brought_by_heartbeat(
    request: ConsumerGroupHeartbeatRequest,
    client: Client,
    group: ConsumerGroup,
    member: ConsumerMember,
    topics: KnownTopics,
) -> int:
    """Return how many bytes this heartbeat adds, if it changes the member's metadata. Null leaves a part as it was."""
    said = (request.rack_id, request.server_assignor, request.subscribed_topic_regex)
    names = request.subscribed_topic_names
    is_known = _is_known(group, member)
    if is_known and names is None and said == (None, None, None) and client.client_id == member.client_id:
        return 0
    was = (member.rack_id, member.assignor, member.regex)
    brought_bytes = 0 if is_known else _new_member_bytes(group, member, request.instance_id)
    brought_bytes += _texts_bytes(client.client_id) - _texts_bytes(member.client_id)
    for now, before in zip(said, was, strict=True):
        if now is not None:
            brought_bytes += _texts_bytes(now) - _texts_bytes(before)
    if names is not None:
        brought_bytes += _names_bytes(names) - _names_bytes(member.names)
        brought_bytes += _to_assign_bytes(names, group, topics)
    return brought_bytes


def brought_by_classic_member(
    group: ConsumerGroup, member: ConsumerMember, new: ConsumerMember, topics: KnownTopics
) -> int:
    """Return how many bytes a join of the classic protocol adds, by which `member` becomes `new`."""
    brought_bytes = _said_bytes(new) - _said_bytes(member) + _to_assign_bytes(new.names, group, topics)
    if _is_known(group, member):
        return brought_bytes
    return brought_bytes + _new_member_bytes(group, member, new.instance_id)


def _is_known(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """True for a member of the group, or one that replaces a static member."""
    return member.member_id in group.members or member.instance_id in group.static_members


def _new_member_bytes(group: ConsumerGroup, member: ConsumerMember, instance_id: str | None) -> int:
    ids_bytes = _texts_bytes(member.member_id, instance_id)
    return CONSUMER_BYTES + ids_bytes + (0 if group.members else GROUP_BYTES + _texts_bytes(group.group_id))


def _to_assign_bytes(names: Iterable[str], group: ConsumerGroup | ShareGroup, topics: KnownTopics) -> int:
    """The bytes to assign topics that no member of the group has subscribed to yet."""
    found = [topics.by_name(name) for name in names if name not in group.topics]
    return sum(
        [
            ASSIGNED_TOPIC_BYTES + topic.partition_count * PARTITION_BYTES
            for topic in found
            if topic is not None
        ]
    )


def _said_bytes(member: ConsumerMember) -> int:
    """The bytes of the metadata of a consumer group's member, without its ids."""
    said_bytes = _texts_bytes(member.rack_id, member.assignor, member.regex, member.client_id)
    said_bytes += _names_bytes(member.names)
    return said_bytes + (0 if member.classic is None else _protocols_bytes(member.classic.protocols))


def _consumer_bytes(group: ConsumerGroup) -> int:
    """Count a group, or return the last count if it hasn't changed, as most groups haven't."""
    changes, held_bytes = group.counted
    if changes != group.changes:
        held_bytes = _consumer_bytes_of_now(group)
        group.counted = (group.changes, held_bytes)
    return held_bytes


def _consumer_bytes_of_now(group: ConsumerGroup) -> int:
    held_bytes = GROUP_BYTES + _texts_bytes(group.group_id)
    for member in group.members.values():
        held_bytes += CONSUMER_BYTES + _texts_bytes(member.member_id, member.instance_id)
        held_bytes += _said_bytes(member)
    for regex, resolved in group.resolved.items():
        held_bytes += _texts_bytes(regex) + _names_bytes(resolved.topics)
    owners = group.inverted_targets.values()
    return held_bytes + sum([ASSIGNED_TOPIC_BYTES + len(each) * PARTITION_BYTES for each in owners])


# ---- of streams groups


def brought_by_streams_heartbeat(
    request: StreamsGroupHeartbeatRequest,
    client: Client,
    group: StreamsGroup,
    member: StreamsMember,
    topics: KnownTopics,
) -> int:
    """Return how many bytes this heartbeat adds. Null leaves a part as it was. A topology only counts if the
    group has none yet."""
    tags, endpoint, known_endpoint = request.client_tags, request.user_endpoint, member.endpoint
    said = (
        (request.rack_id, member.rack_id),
        (request.process_id, member.process_id),
        (client.client_id, member.client_id),
        (
            None if endpoint is None else endpoint.host,
            None if known_endpoint is None else known_endpoint.host,
        ),
    )
    brought_bytes = sum([_texts_bytes(now) - _texts_bytes(before) for now, before in said if now is not None])
    if tags is not None:
        brought_bytes += sum([_texts_bytes(tag.key, tag.value) for tag in tags]) - _tags_bytes(member)
    known_offsets = group.offsets_of(member.member_id)
    for told, known in (
        (request.task_offsets, known_offsets.offsets),
        (request.task_end_offsets, known_offsets.end_offsets),
    ):
        if told is not None:
            brought_bytes += OFFSET_BYTES * (len(told) - sum([len(sums) for sums in known.values()]))
    if member.member_id in group.members:
        return brought_bytes
    brought_bytes += CONSUMER_BYTES + _texts_bytes(member.member_id)
    if not group.members:
        brought_bytes += GROUP_BYTES + _texts_bytes(group.group_id)
    if group.topology is None and request.topology is not None:
        subtopologies = request.topology.subtopologies
        brought_bytes += _topology_bytes(subtopologies)
        for subtopology in subtopologies:
            found = [topics.by_name(name) for name in subtopology.source_topics]
            counts = [topic.partition_count for topic in found if topic is not None]
            brought_bytes += max(counts, default=0) * TASK_BYTES
    return brought_bytes


def _topology_bytes(
    subtopologies: Iterable[groups_streams.Subtopology] | Iterable[group_records_streams.Subtopology],
) -> int:
    topology_bytes = 0
    for subtopology in subtopologies:
        topology_bytes += CONSUMER_BYTES + _texts_bytes(subtopology.subtopology_id)
        for names in (subtopology.source_topics, subtopology.repartition_sink_topics):
            topology_bytes += sum([TOPOLOGY_TOPIC_BYTES + getsizeof(name) for name in names])
        for internal in (subtopology.state_changelog_topics, subtopology.repartition_source_topics):
            for topic in internal:
                topology_bytes += TOPOLOGY_TOPIC_BYTES + getsizeof(topic.name)
                for each in topic.topic_configs:
                    topology_bytes += TOPOLOGY_TOPIC_BYTES + _texts_bytes(each.key, each.value)
        for group in subtopology.copartition_groups:
            indexes = len(group.source_topics) + len(group.repartition_source_topics)
            topology_bytes += PROTOCOL_BYTES * (1 + indexes)
    return topology_bytes


def _streams_member_bytes(member: StreamsMember) -> int:
    """The bytes of the member's metadata, without its id."""
    said_bytes = _texts_bytes(member.rack_id, member.process_id, member.client_id)
    said_bytes += 0 if member.endpoint is None else _texts_bytes(member.endpoint.host)
    return said_bytes + _tags_bytes(member)


def _tags_bytes(member: StreamsMember) -> int:
    return sum([_texts_bytes(key, value) for key, value in member.tags.items()])


def _streams_bytes(group: StreamsGroup) -> int:
    """Count a group, or return the last count if it hasn't changed, as most groups haven't."""
    changes, held_bytes = group.counted
    if changes != group.changes:
        held_bytes = GROUP_BYTES + _texts_bytes(group.group_id)
        if group.topology is not None:
            held_bytes += _topology_bytes(group.topology.value.subtopologies)
        for member in group.members.values():
            held_bytes += CONSUMER_BYTES + _texts_bytes(member.member_id) + _streams_member_bytes(member)
            target = group.target_of(member.member_id)
            for kind in (target.active, target.standby):
                held_bytes += TASK_BYTES * sum([len(partitions) for partitions in kind.values()])
        group.counted = (group.changes, held_bytes)
    return held_bytes + OFFSET_BYTES * sum([told.total for told in group.task_offsets.values()])


# ---- of share groups


def brought_by_share_heartbeat(
    request: ShareGroupHeartbeatRequest,
    client: Client,
    group: ShareGroup,
    member: ShareMember,
    topics: KnownTopics,
) -> int:
    """Return how many bytes this heartbeat adds, if it changes the member's metadata. Null leaves a part as it was."""
    names = request.subscribed_topic_names
    brought_bytes = _texts_bytes(client.client_id) - _texts_bytes(member.client_id)
    if member.member_id not in group.members:
        brought_bytes += CONSUMER_BYTES + _texts_bytes(member.member_id)
        if not group.members:
            brought_bytes += GROUP_BYTES + _texts_bytes(group.group_id)
    if request.rack_id is not None:
        brought_bytes += _texts_bytes(request.rack_id) - _texts_bytes(member.rack_id)
    if names is not None:
        brought_bytes += _names_bytes(names) - _names_bytes(member.names)
        brought_bytes += _to_assign_bytes(names, group, topics)
    return brought_bytes


def _share_bytes(group: ShareGroup) -> int:
    held_bytes = GROUP_BYTES + _texts_bytes(group.group_id)
    for member in group.members.values():
        held_bytes += CONSUMER_BYTES + _texts_bytes(member.member_id, member.rack_id, member.client_id)
        held_bytes += _names_bytes(member.names)
    state = group.state_partitions
    for topics in () if state is None else (state.initializing, state.initialized):
        for topic in topics.values():
            held_bytes += ASSIGNED_TOPIC_BYTES + len(topic.partitions) * PARTITION_BYTES
    return held_bytes


class MemberMemory:
    """The memory of members in all shards of a node."""

    def __init__(self) -> None:
        self._stores: WeakSet[GroupStore] = WeakSet()
        self._counted_bytes = 0
        self._counted_ms = _LONG_AGO_MS
        self._came_bytes = 0  # since the last count
        self._may_be_more = False

    def count(self, store: GroupStore) -> None:
        """Count the groups of this shard from now on."""
        self._stores.add(store)

    def was_loaded(self) -> None:
        """Note that a shard has loaded its groups. The next request has them counted."""
        self._may_be_more = True
        self._counted_ms = _LONG_AGO_MS

    def may_be_more(self) -> None:
        """Note that groups may soon assign more than members have asked for, as topics or partitions were added."""
        self._may_be_more = True

    def check(self, brought_bytes: int, now_ms: int) -> None:
        """Raises KafkaError (GROUP_MAX_SIZE_REACHED) if there is no room."""
        if not self.admits(brought_bytes, now_ms):
            raise KafkaError(Error.GROUP_MAX_SIZE_REACHED, "The members of all groups hold too much memory.")

    def admits(self, brought_bytes: int, now_ms: int) -> bool:
        """True if there is room for what a request adds, and counts it. A request that adds nothing needs no room."""
        if brought_bytes <= 0:
            return True
        is_full = self._counted_bytes + self._came_bytes + brought_bytes > MOST_MEMBER_BYTES
        if is_full or self._may_be_more:
            is_old = not 0 <= now_ms - self._counted_ms < BETWEEN_COUNTS_MS
            if is_full and not is_old and self._came_bytes < _LITTLE_BYTES:
                return False
            if is_full or is_old:
                self._count_anew(now_ms)
                if self._counted_bytes + brought_bytes > MOST_MEMBER_BYTES:
                    return False
        self._came_bytes += brought_bytes
        return True

    def _count_anew(self, now_ms: int) -> None:
        """Count all groups. Groups without members don't count if they have offsets; else they go soon."""
        self._counted_bytes = 0
        for store in self._stores:
            committed = store.offsets.committed
            self._counted_bytes += sum(
                [
                    _classic_bytes(group)
                    for group_id, group in store.classic.items()
                    if group.members or group.pending_joins or group_id not in committed
                ]
            )
            self._counted_bytes += sum(
                [
                    _consumer_bytes(group)
                    for group_id, group in store.consumer.items()
                    if group.members or group_id not in committed
                ]
            )
            self._counted_bytes += sum(
                [
                    _streams_bytes(group)
                    for group_id, group in store.streams.items()
                    if group.members or group_id not in committed
                ]
            )
            # Share groups without members count as well: they never expire.
            self._counted_bytes += sum([_share_bytes(group) for group in store.share.values()])
        self._counted_ms, self._came_bytes, self._may_be_more = now_ms, 0, False
