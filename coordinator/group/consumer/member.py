"""A member of a consumer group (Kafka: `ConsumerGroupMember`). It is never changed: `replace` makes another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from coordinator.group.consumer.states import JOIN_EPOCH, MemberEpochRelation, MemberState
from coordinator.java.maps import JavaMap, JavaSet
from protocol.messages.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

Assigned = JavaMap[bytes, JavaMap[int, int]]
"""Topic id → partition → the assignment epoch at which the member got it."""

Owned = Sequence[tuple[bytes, Sequence[int]]] | None
"""What a member reports to own, by topic id; None where it doesn't say."""


class ClassicMetadata(NamedTuple):
    """What a member of the classic protocol has on top of the others."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, the best first


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """`regex` is "" or None without one; `pending` are the partitions that it has to give up."""

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    names: JavaSet[str] = field(default_factory=JavaSet)
    regex: str | None = ""
    assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=JavaMap)
    pending: Assigned = field(default_factory=JavaMap)
    classic: ClassicMetadata | None = None

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def owns_at_most(self, owned: Owned) -> bool:
        """Whether all that it reports to own is assigned to it; False where it doesn't say."""
        if owned is None:
            return False
        for topic_id, partitions in owned:
            known = self.assigned.get(topic_id)
            if known is None or not all(partition in known for partition in partitions):
                return False
        return True

    def relation_of(self, epoch: int, owned: Owned) -> MemberEpochRelation:
        """How the epoch of a heartbeat stands to its own."""
        if epoch == JOIN_EPOCH:
            return MemberEpochRelation.JOINS
        if epoch == self.epoch:
            return MemberEpochRelation.CURRENT
        if epoch > self.epoch:
            return MemberEpochRelation.NEWER
        if epoch == self.previous_epoch and self.owns_at_most(owned):
            return MemberEpochRelation.PREVIOUS
        return MemberEpochRelation.OLDER

    def assignment_epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """Since which epoch a partition has been the member's, even if it is about to give it up."""
        for assigned in (self.assigned, self.pending):
            partitions = assigned.get(topic_id)
            if partitions is not None and partition in partitions:
                return partitions[partition]
        return None

    def at_epoch(self, epoch: int, **changes: object) -> ConsumerMember:
        """Changed, with the epoch of now as the previous one."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, **changes)  # type: ignore[arg-type]

    # --- records --------------------------------------------------------------------------------------------

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """The record's value, with the topics' names in the order of Java's strings: by UTF-16 units."""
        classic = self.classic
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(
                self.names, key=lambda name: name.encode("utf-16-be", "surrogatepass")
            ),
            subscribed_topic_regex=self.regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
                ],
            ),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """As it is once such a record was replayed."""
        classic = value.classic_member_metadata
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            names=JavaSet.of(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
            ),
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_written(self.assigned),
            partitions_pending_revocation=_written(self.pending),
        )

    def with_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
        """As it is once such a record was replayed; a state of a later Kafka is UNKNOWN."""
        known = value.state in MemberState._value2member_map_
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_read(value.assigned_partitions, value.member_epoch),
            pending=_read(value.partitions_pending_revocation, value.member_epoch),
        )


def _written(assigned: Assigned) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id, partitions=partitions.keys(), assignment_epochs=partitions.values()
        )
        for topic_id, partitions in assigned.items()
    ]


def _read(topics: Sequence[TopicPartitions], member_epoch: int) -> Assigned:
    """Without assignment epochs (before Kafka 4.3) the member's own stands for them."""
    assigned: Assigned = JavaMap()
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        partitions: JavaMap[int, int] = JavaMap()
        for partition, epoch in zip(topic.partitions, epochs, strict=True):
            partitions[partition] = epoch
        assigned[topic.topic_id] = partitions
    return assigned
