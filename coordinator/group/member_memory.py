"""What the members of all groups of a node hold in memory, and who would go past the bound.

What a member says of itself is kept for as long as it is one, up to half an hour after it was last heard of, and so is
what it is assigned. What requests bring is added up; what has gone since, and what else has come, is found by going
over all members once the sum says that there is no room.
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
"""Of all members, with those that were only given an id."""
MEMBER_BYTES = (
    1_000  # of each of a classic group, beside what it says of itself; its assignment, up to as much, too
)
CLASSIC_GROUP_BYTES = 1_500  # of each of these groups, beside its id
PROTOCOL_BYTES = 300  # of each of its protocols, beside name and metadata
GROUP_BYTES = 2_400  # of each consumer group
CONSUMER_BYTES = 2_000  # of each of its members
NAME_BYTES = 300  # of each topic that a member or an expression subscribes to, beside its name
ASSIGNED_TOPIC_BYTES = 1_400  # of each topic of which a consumer group has assigned partitions
PARTITION_BYTES = 600  # of each of these: whose it is to be, whose it is, since when
OFFSET_BYTES = 600  # of each task whose offset a member tells
TASK_BYTES = 2_000  # of each task of a streams group: whose it is to be, whose it is, since when
TOPOLOGY_TOPIC_BYTES = 1_500  # of each topic of a topology, beside its name, and of each of its configs
BETWEEN_COUNTS_MS = 1_000  # where little came meanwhile: who is refused may ask again and again
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
    """How much more there is with it. `name`: what a new member's id begins with; `member`: who it is by now."""
    brought_bytes = sum([PROTOCOL_BYTES + len(each.name) + len(each.metadata) for each in request.protocols])
    if member is None:
        return brought_bytes + MEMBER_BYTES + len(name)
    return brought_bytes - _protocols_bytes(member.protocols)


def assignments_bytes(assignments: Iterable[bytes]) -> int:
    """What the leader of a classic group has assigned to its members, beyond what counts with each anyway."""
    return sum([max(len(each) - MEMBER_BYTES, 0) for each in assignments])


def classic_group_bytes(group_id: str) -> int:
    """Of a group without members: a join that is refused leaves one, until what has expired is looked for."""
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
    """How much more there is with it, where it says something new of the member; null leaves a part as it was."""
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
    """The same of a join of the classic protocol, by which `member` becomes `new`."""
    brought_bytes = _said_bytes(new) - _said_bytes(member) + _to_assign_bytes(new.names, group, topics)
    if _is_known(group, member):
        return brought_bytes
    return brought_bytes + _new_member_bytes(group, member, new.instance_id)


def _is_known(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """One that takes a static member's place is, too."""
    return member.member_id in group.members or member.instance_id in group.static_members


def _new_member_bytes(group: ConsumerGroup, member: ConsumerMember, instance_id: str | None) -> int:
    ids_bytes = _texts_bytes(member.member_id, instance_id)
    return CONSUMER_BYTES + ids_bytes + (0 if group.members else GROUP_BYTES + _texts_bytes(group.group_id))


def _to_assign_bytes(names: Iterable[str], group: ConsumerGroup | ShareGroup, topics: KnownTopics) -> int:
    """Of topics that nobody of the group has subscribed to yet."""
    found = [topics.by_name(name) for name in names if name not in group.topics]
    return sum(
        [
            ASSIGNED_TOPIC_BYTES + topic.partition_count * PARTITION_BYTES
            for topic in found
            if topic is not None
        ]
    )


def _said_bytes(member: ConsumerMember) -> int:
    """What a member of a consumer group says of itself, but for its ids."""
    said_bytes = _texts_bytes(member.rack_id, member.assignor, member.regex, member.client_id)
    said_bytes += _names_bytes(member.names)
    return said_bytes + (0 if member.classic is None else _protocols_bytes(member.classic.protocols))


def _consumer_bytes(group: ConsumerGroup) -> int:
    """Most groups are as they were when they were counted last."""
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
    """How much more there is with it; null leaves a part as it was. Of a topology only where the group has none yet."""
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
    """What it says of itself, but for its id."""
    said_bytes = _texts_bytes(member.rack_id, member.process_id, member.client_id)
    said_bytes += 0 if member.endpoint is None else _texts_bytes(member.endpoint.host)
    return said_bytes + _tags_bytes(member)


def _tags_bytes(member: StreamsMember) -> int:
    return sum([_texts_bytes(key, value) for key, value in member.tags.items()])


def _streams_bytes(group: StreamsGroup) -> int:
    """Most groups are as they were when they were counted last."""
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
    """How much more there is with it, where it says something new of the member; null leaves a part as it was."""
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
    """Of all shards of a node."""

    def __init__(self) -> None:
        self._stores: WeakSet[GroupStore] = WeakSet()
        self._counted_bytes = 0
        self._counted_ms = _LONG_AGO_MS
        self._came_bytes = 0  # since then
        self._may_be_more = False

    def count(self, store: GroupStore) -> None:
        """The groups of a shard, from now on."""
        self._stores.add(store)

    def was_loaded(self) -> None:
        """A shard has the groups now that its log says: whoever comes next has them counted."""
        self._may_be_more = True
        self._counted_ms = _LONG_AGO_MS

    def may_be_more(self) -> None:
        """Groups are about to assign more than members have asked for: topics have come, or partitions."""
        self._may_be_more = True

    def check(self, brought_bytes: int, now_ms: int) -> None:
        """Raises KafkaError (GROUP_MAX_SIZE_REACHED) where there is no room for it."""
        if not self.admits(brought_bytes, now_ms):
            raise KafkaError(Error.GROUP_MAX_SIZE_REACHED, "The members of all groups hold too much memory.")

    def admits(self, brought_bytes: int, now_ms: int) -> bool:
        """Whether there is room for what a request brings; it counts then. Who brings no more than there is needs
        none."""
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
        """Groups that everybody has left go soon, unless there are offsets of theirs: then they don't count."""
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
            # Those that everybody has left count as well: no time ends them.
            self._counted_bytes += sum([_share_bytes(group) for group in store.share.values()])
        self._counted_ms, self._came_bytes, self._may_be_more = now_ms, 0, False
