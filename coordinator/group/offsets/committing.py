"""Commits and deletions of a group's offsets: OffsetCommit, TxnOffsetCommit, OffsetDelete.

The caller checks beforehand which topics and partitions exist. Source: `OffsetMetadataManager`.

A deliberate difference: if the metadata of all offsets is too long, a commit to a group that doesn't exist
records nothing, so no group comes to exist. In Kafka one appears in memory. DescribeGroups doesn't see it,
DeleteGroups does, and a restart doesn't find it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.rebalancing import ClassicSessions
from coordinator.group.classic.states import PREPARING, STABLE
from coordinator.group.kinds import Group
from coordinator.group.offsets.commit import (
    NO_PRODUCER,
    CommitRequest,
    Committer,
    OffsetProducer,
    Place,
    StagedOffsets,
    Tombstones,
)
from coordinator.group.shard_parts import ShardParts
from protocol.errors import Error, KafkaError

log = logging.getLogger("barnabas.groups")


class Committing:
    """Commits and deletes offsets by request."""

    def __init__(self, parts: ShardParts, sessions: ClassicSessions) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._sessions = sessions

    def commit(self, committer: Committer, staged: StagedOffsets, *, api_version: int) -> list[Error]:
        """Return each offset's error, in order. Raises KafkaError for an error that holds for all of them."""
        return self._commit(committer, staged, CommitRequest(api_version), NO_PRODUCER)

    def commit_in_transaction(
        self, committer: Committer, staged: StagedOffsets, producer: OffsetProducer, *, api_version: int
    ) -> list[Error]:
        """Commit in an open transaction. The offsets count once its commit marker comes (KIP-98, KIP-447)."""
        return self._commit(committer, staged, CommitRequest(api_version, in_transaction=True), producer)

    def _commit(
        self, committer: Committer, staged: StagedOffsets, request: CommitRequest, producer: OffsetProducer
    ) -> list[Error]:
        group = self._store.find(committer.group_id)
        if group is not None:
            group.check_commit(committer, staged.accepted, request)
            if not request.in_transaction:
                self._heard_of(committer.member_id, group)
        elif committer.generation >= 0:
            raise KafkaError(request.unknown_group_error)
        self._journal.write_offsets(staged, producer)
        return staged.errors

    def _heard_of(self, member_id: str, group: Group) -> None:
        """Restart the member's session: a classic member's commit is a heartbeat too."""
        if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING):
            self._sessions.restart(group.group_id, group.members[member_id])

    def stage_deletion(self, staged: Tombstones, group_id: str, partitions: Sequence[Place]) -> None:
        """Stage tombstones for the offsets that can be deleted now. `delete` checks that again."""
        group = self._store.find(group_id)
        if group is not None:
            staged.add_offsets(group_id, self._deletable(group, partitions)[1])

    def delete(self, group_id: str, partitions: Sequence[Place], staged: Tombstones) -> list[Error]:
        """Delete offsets. Returns each partition's error, in order. A partition without an offset has none.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP for a group with members that aren't consumers.
        """
        group = self._store.find(group_id)
        if group is None:
            raise KafkaError(Error.GROUP_ID_NOT_FOUND)
        group.check_offset_deletion()
        errors, found = self._deletable(group, partitions)
        if found != staged.places.get(group_id, []):  # the group has changed since they were staged
            staged = Tombstones()
            staged.add_offsets(group_id, found)
        self._journal.write_tombstones(staged)
        return errors

    def _deletable(self, group: Group, partitions: Sequence[Place]) -> tuple[list[Error], list[Place]]:
        """Each partition's error, and the partitions without an error that have an offset."""
        errors = []
        found = []
        is_subscribed: dict[str, bool] = {}
        committed = self._store.offsets.of_group(group.group_id)
        unstable = self._store.offsets.unstable_partitions(group.group_id)
        for place in partitions:
            topic, partition = place
            if topic not in is_subscribed:
                is_subscribed[topic] = group.is_subscribed_to(topic)
            if is_subscribed[topic]:
                errors.append(Error.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            errors.append(Error.NONE)
            if partition in committed.get(topic, ()) or place in unstable:
                found.append(place)
        return errors, found
