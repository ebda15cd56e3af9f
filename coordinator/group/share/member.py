"""A member of a share group (Kafka: `ShareGroupMember`). It is never changed: another one takes its place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from coordinator.group.modern.targets import Target
from coordinator.group.share.states import JOIN_EPOCH, LEAVE_EPOCH, STABLE_MEMBER, ShareEpochRelation
from coordinator.java.maps import JavaMap, JavaSet
from protocol.messages.group_records_share import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    TopicPartitions,
)


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = LEAVE_EPOCH
    state: int = STABLE_MEMBER
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: JavaSet[str] = field(default_factory=JavaSet)
    listed_names: tuple[str, ...] = field(default=(), compare=False)
    """The same in Java's order, which is long to find anew each time that somebody describes a large group."""
    assigned: Target = field(default_factory=JavaMap)

    def relation_of(self, epoch: int) -> ShareEpochRelation:
        """How the epoch of a heartbeat stands to its own."""
        if epoch == JOIN_EPOCH:
            return ShareEpochRelation.JOINS
        if epoch == self.epoch:
            return ShareEpochRelation.CURRENT
        if epoch > self.epoch:
            return ShareEpochRelation.NEWER
        return ShareEpochRelation.PREVIOUS if epoch == self.previous_epoch else ShareEpochRelation.OLDER

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state == STABLE_MEMBER and self.epoch == assignment_epoch

    def subscribed_to(self, topics: Collection[str]) -> ShareMember:
        """As it is with another subscription."""
        names: JavaSet[str] = JavaSet.of(topics)
        return replace(self, names=names, listed_names=tuple(names))

    # --- its records ----------------------------------------------------------------------------------------

    def metadata_value(self) -> ShareGroupMemberMetadataValue:
        """The record's value, with the topics' names in the order of Java's strings: by UTF-16 units."""
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(
                self.names, key=lambda name: name.encode("utf-16-be", "surrogatepass")
            ),
        )

    def with_metadata(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """As it is once such a record was replayed."""
        return replace(
            self,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
        ).subscribed_to(value.subscribed_topic_names)

    def assignment_value(self) -> ShareGroupCurrentMemberAssignmentValue:
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=written_target(self.assigned),
        )

    def with_assignment(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        """As it is once such a record was replayed."""
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=value.state,
            assigned=read_target(value.assigned_partitions),
        )

    def without_assignment(self) -> ShareMember:
        """As it is once the end of its assignment was replayed."""
        return replace(self, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=JavaMap())


def written_target(target: Target) -> list[TopicPartitions]:
    """As records have it."""
    return [
        TopicPartitions(topic_id=topic_id, partitions=[*partitions])
        for topic_id, partitions in target.items()
    ]


def read_target(topics: Sequence[TopicPartitions]) -> Target:
    """What such a record says."""
    target: Target = JavaMap()
    for topic in topics:
        target[topic.topic_id] = JavaSet.of(topic.partitions)
    return target
