"""A classic group: its state, its members, its generation, its record (Kafka: `ClassicGroup`,
`ClassicGroupMember`).

Generation, protocol, leader and assignments are durable, in the group's record. The rest is only in memory, as in
Kafka: pending member ids, parked joins and syncs, a rebalance under way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from coordinator.group.classic.states import (
    COMPLETING,
    DEAD,
    EMPTY,
    ENTERED_FROM,
    STABLE,
    Request,
    State,
    answer_of,
)
from coordinator.group.kinds import RetentionStart
from coordinator.group.offsets.commit import CommitRequest, Committer, NewOffset
from coordinator.group.records import AnyRecord, GroupRecord
from coordinator.java.maps import JavaHashMap
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.group_records import GroupMetadataValue, MemberMetadata
from protocol.messages.groups import (
    ConsumerProtocolSubscription,
    JoinGroupResponse,
    JoinGroupResponseMember,
    ListedGroup,
    SyncGroupResponse,
)
from protocol.waiting import Later
from protocol.wire.codec import decode

# --- the topics that its members consume, as far as the coordinator knows -------------------------------------

CONSUMER_PROTOCOL_TYPE = "consumer"

_INT16 = Struct(">h")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all members' subscriptions, or None if one of them can't be read."""
    topics: set[str] = set()
    for subscription in metadata:
        if len(subscription) < _INT16.size or _INT16.unpack_from(subscription)[0] < 0:
            return None
        try:
            topics.update(decode(ConsumerProtocolSubscription, 0, subscription, _INT16.size).topics)
        except CodecError:
            return None
    return frozenset(topics)


# --- members --------------------------------------------------------------------------------------------------

Protocols = list[tuple[str, bytes]]
"""Name and metadata of the protocols that a member supports, in order of preference."""


class Identity(NamedTuple):
    """The ids and the client of a member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class MemberTimeouts(NamedTuple):
    """The session timeout and the rebalance timeout of a member."""

    session_timeout_ms: int
    rebalance_timeout_ms: int


class ClassicMember:
    """A member. `join_reply` and `sync_reply` are pending answers. While it has one, the member is parked."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self, identity: Identity, timeouts: MemberTimeouts, protocol_type: str, protocols: Protocols
    ) -> None:
        self.member_id, self.instance_id, self.client_id, self.client_host = identity
        self.session_timeout_ms, self.rebalance_timeout_ms = timeouts
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False  # in its first join; its session can end while it is parked
        self.join_reply: Later[JoinGroupResponse] | None = None
        self.sync_reply: Later[SyncGroupResponse] | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def timeouts(self) -> MemberTimeouts:
        return MemberTimeouts(self.session_timeout_ms, self.rebalance_timeout_ms)

    @property
    def heartbeat_is_satisfied(self) -> bool:
        """True if it needn't send heartbeats: a parked member can't."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def with_id(self, member_id: str) -> ClassicMember:
        """Return the same member under a new id, with nothing parked, for a static member that came back."""
        made = ClassicMember(
            Identity(member_id, self.instance_id, self.client_id, self.client_host),
            self.timeouts,
            self.protocol_type,
            self.protocols,
        )
        made.assignment = self.assignment
        return made

    def answer_join(self, response: JoinGroupResponse) -> bool:
        """Answer the parked join. Returns False if there is none. `ClassicGroup.answer_join` also counts it."""
        reply, self.join_reply = self.join_reply, None
        if reply is None:
            return False
        reply.reply(response)
        return True

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        reply, self.sync_reply = self.sync_reply, None
        if reply is None:
            return False
        reply.reply(response)
        return True


# --- how members agree on one of their protocols (Kafka: `ClassicGroup.selectProtocol`) -----------------------


def candidates(supported: Sequence[Sequence[str]]) -> set[str]:
    """The protocols that every member supports, given one list of names per member.

    As in Kafka, names are counted. A name that a member lists twice drops out, unless nothing else would be
    left. (Kafka fails then.)
    """
    counts = Counter(name for names in supported for name in names)
    common = {name for name, count in counts.items() if count == len(supported)}
    return common or set.intersection(*map(set, supported)) if supported else set()


def select_protocol(supported: Sequence[Sequence[str]]) -> str:
    """Return the candidate with the most votes. Each member votes for the first candidate in its own list.

    A tie goes to the first one in the order of a Java HashMap. Raises ValueError if there is no candidate.
    """
    common = candidates(supported)
    votes: JavaHashMap[int] = JavaHashMap()
    for names in supported:
        vote = next((name for name in names if name in common), None)
        if vote is None:
            raise ValueError("no protocol is supported by all members")
        votes[vote] = (votes.get(vote) or 0) + 1
    return max(votes.keys(), key=lambda name: votes[name])


# --- the group ------------------------------------------------------------------------------------------------

CLASSIC_TYPE = "classic"


class ClassicGroup:
    """A classic group. `state_timestamp_ms` is the time of the last change of state, −1 if an old record lacks it."""

    __slots__ = (
        "_supported",
        "changes",
        "generation",
        "group_id",
        "leader_id",
        "members",
        "new_member_added",
        "parked_joins",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, state_timestamp_ms: int) -> None:
        self.group_id = group_id
        self.changes = 0
        """Counts changes of its members and their data, its state, and its generation.

        A decision that rests on an earlier state of the group compares this number first. Parked requests and
        pending ids don't count.
        """
        self.state = EMPTY
        self.previous_state = DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.generation = 0
        self.leader_id: str | None = None
        self.members: JavaHashMap[ClassicMember] = JavaHashMap()
        self.static_members: dict[str, str] = {}  # instance id → member id
        self.pending_joins: dict[str, None] = {}  # ids given out with MEMBER_ID_REQUIRED
        self.pending_syncs: dict[str, None] = {}  # members of this generation that haven't synced
        self.parked_joins = 0
        self.new_member_added = False  # while the initial delay runs
        self.subscribed_topics: frozenset[str] | None = None
        self._supported: Counter[str] = Counter()  # protocol → how many members support it

    # --- what it is -----------------------------------------------------------------------------------------

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def all_have_joined(self) -> bool:
        return len(self.members) == self.parked_joins and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_leader(self, member_id: str) -> bool:
        return self.leader_id == member_id

    def has_member(self, member_id: str) -> bool:
        """True if a member of this id has joined."""
        return member_id in self.members

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member subscribes to the topic, or may do so: a subscription of a consumer may be unreadable."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """True if a member with these protocols can join the group."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._supported[name] == count for name, _ in protocols
        )

    def check_member(self, member_id: str, instance_id: str | None) -> Error:
        """NONE if this is a member; UNKNOWN_MEMBER_ID if not; FENCED_INSTANCE_ID if it is a static one that
        was replaced."""
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return Error.UNKNOWN_MEMBER_ID
            if current != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    def vote(self) -> str:
        """Return the protocol that the members agree on."""
        return select_protocol([[name for name, _ in m.protocols] for m in self.members.values()])

    # --- members --------------------------------------------------------------------------------------------

    def move_to(self, state: State, now_ms: int) -> None:
        assert self.state in ENTERED_FROM[state], f"group {self.group_id} from {self.state} to {state}"
        self.changes += 1
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def add(self, member: ClassicMember, join_reply: Later[JoinGroupResponse] | None = None) -> None:
        """Add a member. The first one leads. `join_reply` waits for the end of the rebalance."""
        self.changes += 1
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, f"{member.instance_id} is a member already"
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update(name for name, _ in member.protocols)
        self._park(member, join_reply)
        self.pending_joins.pop(member.member_id, None)

    def update(
        self,
        member: ClassicMember,
        protocols: Protocols,
        timeouts: MemberTimeouts,
        join_reply: Later[JoinGroupResponse] | None,
    ) -> None:
        """Update a member that joins again."""
        self.changes += (protocols, timeouts) != (member.protocols, member.timeouts)
        self._supported.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        self._supported.update(name for name, _ in protocols)
        member.session_timeout_ms, member.rebalance_timeout_ms = timeouts
        self._park(member, join_reply)

    def _park(self, member: ClassicMember, join_reply: Later[JoinGroupResponse] | None) -> None:
        self.parked_joins += (join_reply is not None) - (member.join_reply is not None)
        member.join_reply = join_reply

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending id. If it was the leader, the first remaining member leads.

        The caller answers its parked join. A parked sync is answered here, as nobody else would.
        """
        member = self.members.pop(member_id)
        if member is not None:
            self.changes += 1
            self._supported.subtract(name for name, _ in member.protocols)
            self.parked_joins -= member.join_reply is not None
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
            member.answer_sync(SyncGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        if self.is_leader(member_id):
            self.leader_id = next(iter(self.members), None)
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)

    def replace_static(self, instance_id: str, new_member_id: str) -> ClassicMember:
        """Give a static member that came back a new id, and fence the parked requests of the old one."""
        self.changes += 1
        old_member_id = self.static_members[instance_id]
        old = self.members.pop(old_member_id)
        assert old is not None
        self.answer_join(
            old,
            JoinGroupResponse(
                member_id=old_member_id, protocol_name=None, error_code=Error.FENCED_INSTANCE_ID
            ),
        )
        old.answer_sync(SyncGroupResponse(error_code=Error.FENCED_INSTANCE_ID))
        member = old.with_id(new_member_id)
        self.members[new_member_id] = member
        if self.is_leader(old_member_id):
            self.leader_id = new_member_id
        self.static_members[instance_id] = new_member_id
        return member

    def answer_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        self.parked_joins -= member.answer_join(response)

    def elect_joined_leader(self) -> bool:
        """Elect a leader that has joined. Returns False if nobody has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_reply is not None:
            return True
        for member in self.members.values():
            if member.join_reply is not None:
                self.leader_id = member.member_id
                return True
        return False

    def next_generation(self, now_ms: int) -> None:
        """Start the next generation with the current members. Without any, the group is empty."""
        self.generation += 1
        if self.members:
            self.protocol = self.vote()
            self.compute_subscribed_topics()
            self.move_to(COMPLETING, now_ms)
        else:
            self.protocol = None
            self.compute_subscribed_topics()
            self.move_to(EMPTY, now_ms)
        self.pending_syncs.clear()

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """All members, as their leader sees them."""
        assert self.protocol is not None
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members.values()
        ]

    def current_generation(self, member_id: str) -> JoinGroupResponse:
        """The answer to a member that has joined. The leader gets all members."""
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader_id or "",
            member_id=member_id,
            members=self.joined_members() if self.is_leader(member_id) else [],
        )

    def compute_subscribed_topics(self) -> None:
        """Compute the topics anew after the members or the protocol have changed."""
        self.subscribed_topics = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        protocol = self.protocol
        if protocol is None:
            return None
        return subscribed_topics(member.metadata(protocol) for member in self.members.values())

    # --- for its offsets and for administrators (see `kinds.Group`) -----------------------------------------

    def check_commit(
        self, committer: Committer, offsets: Sequence[NewOffset], request: CommitRequest
    ) -> None:
        """Check a commit. In a transaction the state of the rebalance doesn't matter."""
        if committer.generation < 0 and self.state is EMPTY:
            return  # an administrator, or a consumer that assigns itself partitions
        if committer.is_anonymous:
            wish = Request.OFFSET_COMMIT_ANONYMOUS
        else:
            wish = Request.OFFSET_COMMIT
            error = self.check_member(committer.member_id, committer.instance_id)
            if error is not Error.NONE:
                raise KafkaError(error)
            if committer.generation != self.generation:
                raise KafkaError(Error.ILLEGAL_GENERATION)
        if not request.in_transaction:
            self._refuse(wish)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Anybody may fetch."""

    def check_offset_deletion(self) -> None:
        """Raises KafkaError if the group has members whose subscriptions aren't known."""
        if not self.uses_consumer_protocol:
            self._refuse(Request.OFFSET_DELETE)

    def check_deletion(self) -> None:
        self._refuse(Request.DELETE)

    def _refuse(self, request: Request) -> None:
        """Raises KafkaError if the table of answers has an error for this state."""
        found = answer_of(request, self.state)
        if isinstance(found, Error):
            raise KafkaError(found)

    def retention_start(self) -> RetentionStart | None:
        """Return the time of the commit, or for an empty group the time when it became empty.

        Offsets expire in a group without a type, in an empty one, and in a stable consumer group with known
        topics. Kafka: `ClassicGroup.offsetExpirationCondition`.
        """
        if self.protocol_type is not None and self.state is EMPTY:
            since_ms = self.state_timestamp_ms
            return lambda offset: offset.commit_timestamp_ms if since_ms == -1 else since_ms
        if self.protocol_type is None or (
            self.state is STABLE and self.uses_consumer_protocol and self.subscribed_topics is not None
        ):
            return lambda offset: offset.commit_timestamp_ms
        return None

    def tombstones(self) -> list[AnyRecord]:
        return [GroupRecord(self.group_id, None)]

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state.value,
            group_type=CLASSIC_TYPE,
        )


# --- its record: encoding the group, and building it from the record ------------------------------------------


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupRecord:
    """The record of the group with these new assignments, by member id."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol or ""),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return GroupRecord(group.group_id, value)


def group_from(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Build the group after a restart: Stable with members, else Empty. Raises CodecError for an impossible one."""
    check_members(group_id, value)
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    group.generation = value.generation
    if value.members:
        group.leader_id = value.leader
        group.state = STABLE
    for written in value.members:
        timeout_ms = written.rebalance_timeout
        member = ClassicMember(
            Identity(written.member_id, written.group_instance_id, written.client_id, written.client_host),
            MemberTimeouts(
                written.session_timeout, written.session_timeout if timeout_ms == -1 else timeout_ms
            ),
            value.protocol_type,
            [(value.protocol or "", written.subscription)],
        )
        member.assignment = written.assignment
        group.add(member)
    group.compute_subscribed_topics()
    return group


def check_members(group_id: str, value: GroupMetadataValue) -> None:
    """Raises CodecError if an id is there twice, or the leader is no member.

    Kafka's load also fails for the first. With the second, its group fails at its next rebalance, and at each
    one after that (`ClassicGroup.maybeElectNewJoinedLeader`).
    """
    members = {member.member_id for member in value.members}
    if len(members) != len(value.members):
        raise CodecError(f"group {group_id!r} has a member twice")
    instances = [member.group_instance_id for member in value.members if member.group_instance_id is not None]
    if len({*instances}) != len(instances):
        raise CodecError(f"group {group_id!r} has two members of one instance id")
    if members and value.leader is not None and value.leader not in members:
        raise CodecError(f"group {group_id!r} is led by {value.leader!r}, which is no member")


def is_of_this_generation(group: ClassicGroup, value: GroupMetadataValue) -> bool:
    """True if the record is of the current generation."""
    return value.generation == group.generation and {m.member_id for m in value.members} == {*group.members}


def adopt_record(group: ClassicGroup, value: GroupMetadataValue, now_ms: int) -> None:
    """Apply a record of the current generation: its members get their assignments, and it becomes stable."""
    group.changes += 1
    for written in value.members:
        group.members[written.member_id].assignment = written.assignment
    if group.state is COMPLETING:
        group.move_to(STABLE, now_ms)
    elif group.state is EMPTY:
        group.protocol_type = value.protocol_type or None
        group.state_timestamp_ms = value.current_state_timestamp
