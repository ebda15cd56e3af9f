"""The share groups of a shard: the entry to this package for the shard and for handlers, and requests for
their offsets.

AlterShareGroupOffsets, DeleteShareGroupOffsets, and the start of DescribeShareGroupOffsets. The position of a
share group in a partition is part of the durable state, which the share coordinator has. The group first
records a request, then has it carried out there, then records that it is done.

Source: `GroupMetadataManager` (alterShareGroupOffsets, sharePartitionsEligibleForOffsetDeletion,
completeDeleteShareGroupOffsets), `GroupCoordinatorService`; `ShareGroup.asDescribedGroup`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from coordinator.commit_waiters import Gate
from coordinator.group.modern.group import Target
from coordinator.group.ports import Client, Deferred, KnownTopics
from coordinator.group.records import AnyRecord
from coordinator.group.shard_parts import ShardParts
from coordinator.group.share.group import (
    InitTopic,
    ShareGroup,
    ShareMember,
    StatePartitions,
    TopicsPartitions,
    state_partitions_record,
)
from coordinator.group.share.heartbeats import ShareHeartbeats, ShareSessions
from coordinator.group.share.initializing import StateInitializing
from coordinator.group.share.simple_assignor import SIMPLE
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponseTopic,
    DescribedAssignment,
    DescribedGroup,
    DescribedMember,
    DescribedTopicPartitions,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from protocol.waiting import together

log = logging.getLogger("barnabas.groups")


# --- ShareGroupDescribe ---------------------------------------------------------------------------------------


def describe_share_group(group: ShareGroup, topics: KnownTopics) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
        members=[_member(member, topics) for member in group.members.values()],
    )


def _member(member: ShareMember, topics: KnownTopics) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=[*member.listed_names],
        assignment=_assignment(member.assigned, topics),
    )


def _assignment(assigned: Target, topics: KnownTopics) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=[*partitions])
            for topic_id, partitions in assigned.items()
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )


# --- requests for offsets -------------------------------------------------------------------------------------

AlteredTopics = list[AlterShareGroupOffsetsResponseTopic]
DeletedTopics = list[DeleteShareGroupOffsetsResponseTopic]

_UNKNOWN = "There is no such topic, or no such partition of it."


class ShareOffsets:
    """Alters and deletes the offsets of one shard's groups."""

    def __init__(self, parts: ShardParts, gate: Gate, initializing: StateInitializing) -> None:
        self._store = parts.store
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._topics = parts.topics
        self._gate = gate
        self._initializing = initializing

    def initialized(self, group_id: str) -> dict[bytes, list[int]]:
        """The partitions with an initialized state; none if the group doesn't exist."""
        group = self._store.share.get(group_id)
        if group is None or group.state_partitions is None:
            return {}
        return {
            topic_id: [*topic.partitions] for topic_id, topic in group.state_partitions.initialized.items()
        }

    # --- altering -------------------------------------------------------------------------------------------

    async def alter(
        self, group_id: str, topics: Sequence[AlterShareGroupOffsetsRequestTopic]
    ) -> AlteredTopics:
        """Have partitions start anew at these offsets, whatever they are. A group that doesn't exist is created.

        Raises KafkaError: GROUP_ID_NOT_FOUND (of another protocol), NON_EMPTY_GROUP; the log's (`append_error`).
        """
        group = self._store.share_group_to_join(group_id) or self._store.share_group(group_id)
        group.check_is_empty()
        now_ms = self._runtime.now_ms()
        offsets: dict[bytes, dict[int, int]] = {}
        begun: JavaMap[bytes, InitTopic] = JavaMap()
        altered: AlteredTopics = []
        for asked in topics:
            topic = self._topics.by_name(asked.topic_name)
            count = 0 if topic is None else topic.partition_count
            answer = AlterShareGroupOffsetsResponseTopic(topic_name=asked.topic_name)
            for each in asked.partitions:
                result = AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
                if each.partition_index >= count:
                    result.error_code, result.error_message = Error.UNKNOWN_TOPIC_OR_PARTITION, _UNKNOWN
                elif topic is not None:
                    offsets.setdefault(topic.topic_id, {})[each.partition_index] = each.start_offset
                answer.partitions.append(result)
            altered.append(answer)
            if topic is not None:
                answer.topic_id = topic.topic_id
                indexes = [*offsets.get(topic.topic_id, ())]
                begun[topic.topic_id] = InitTopic(topic.name, JavaSet.of(indexes), now_ms)
        if not len(begun):
            return altered
        epoch = group.epoch
        self._journal.write([self._initializing.record_of(group, begun)])
        lost = await self._gate.committed()
        if lost is not None:
            for answer in altered:
                for result in answer.partitions:
                    result.error_code, result.error_message = lost.error, lost.message
            return altered
        errors, current = await self._initializing.ask(group_id, epoch, offsets)
        if not any(errors.values()):
            self._initializing.succeeded(group_id, current)
        for answer in altered:
            for result in answer.partitions:
                error = errors.get((answer.topic_id, result.partition_index))
                if error is not None and not result.error_code:
                    result.error_code, result.error_message = error.error, error.message
        return altered

    # --- deleting -------------------------------------------------------------------------------------------

    async def delete(self, group_id: str, names: Sequence[str]) -> DeletedTopics:
        """Have the share coordinator delete topics. Nobody continues at the old position.

        Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP; the log's (`append_error`).
        """
        group = self._store.share_group(group_id)
        group.check_is_empty()
        state = group.state_partitions
        if state is None:  # as in Kafka, not even unknown topics are reported
            return []
        deleting: JavaSet[bytes] = JavaSet()
        deleting.update(state.deleting)
        initialized = JavaMap.copy_of(state.initialized)
        asked: dict[bytes, Sequence[int]] = {}
        answered_names: dict[bytes, str] = {}
        refused: DeletedTopics = []
        for name in names:
            topic = self._topics.by_name(name)
            topic_id = bytes(16) if topic is None else topic.topic_id
            found = initialized.pop(topic_id)
            if topic is not None and found is not None:
                asked[topic_id] = [*found.partitions]
                deleting.add(topic_id)
            elif topic is not None and topic_id in deleting:
                asked[topic_id] = range(topic.partition_count)
            else:
                message = _UNKNOWN if topic is None else "There is no offset information to delete."
                refused.append(_deleted(name, error=KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, message)))
                continue
            answered_names[topic_id] = name
        left = StatePartitions(state.initializing, initialized, deleting)
        self._journal.write([state_partitions_record(group_id, left, self._initializing.name_of)])
        if not asked:
            return refused
        lost = await self._gate.committed()
        if lost is not None:
            return [_deleted(name, topic_id, lost) for topic_id, name in answered_names.items()] + refused
        failures: dict[bytes, KafkaError] = {}
        for (topic_id, _), error in (await self._initializing.delete(group_id, asked)).items():
            if error is not None:
                failures.setdefault(topic_id, error)
        done = [topic_id for topic_id in answered_names if topic_id not in failures]
        if done:
            self._forget_deleting(group_id, done)
        answers = [_deleted(answered_names[topic_id], topic_id) for topic_id in done]
        failed = [_deleted(answered_names[topic_id], topic_id, error) for topic_id, error in failures.items()]
        return [*answers, *refused, *failed]

    def _forget_deleting(self, group_id: str, topic_ids: Sequence[bytes]) -> None:
        group: ShareGroup | None = self._store.share.get(group_id)
        if group is None or group.state_partitions is None:
            return
        state = group.state_partitions
        left: JavaSet[bytes] = JavaSet()
        left.update(topic_id for topic_id in state.deleting if topic_id not in topic_ids)
        record = state_partitions_record(group_id, state._replace(deleting=left), self._initializing.name_of)
        try:
            self._journal.write([record])
        except KafkaError as error:
            log.warning("group %s: can't record that offsets are deleted: %s", group_id, error)


def _deleted(
    name: str, topic_id: bytes = bytes(16), error: KafkaError | None = None
) -> DeleteShareGroupOffsetsResponseTopic:
    if error is None:
        return DeleteShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=topic_id, error_code=error.error, error_message=error.message
    )


# --- the entry ------------------------------------------------------------------------------------------------


class ShareGroups:
    """The requests to share groups. All answers leave through the shard (`GroupShard.ask`)."""

    def __init__(self, parts: ShardParts, gate: Gate) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._topics = parts.topics
        self._gate = gate
        self._sessions = ShareSessions(parts)
        self._initializing = StateInitializing(parts)
        self._heartbeats = ShareHeartbeats(parts, gate, self._sessions, self._initializing)
        self.offsets = ShareOffsets(parts, gate, self._initializing)

    def heartbeat(
        self, client: Client, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse | Deferred[ShareGroupHeartbeatResponse]:
        """See `ShareHeartbeats.heartbeat`."""
        return self._heartbeats.heartbeat(client, request)

    def expire(self, group_id: str, member_id: str) -> None:
        """See `Sessions.expire`."""
        self._sessions.expire(group_id, member_id)

    def describe(self, group_id: str) -> DescribedGroup:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        return describe_share_group(self._store.share_group(group_id), self._topics)

    def are_among(self, group_ids: Sequence[str]) -> list[str]:
        """Those of the groups that are share groups."""
        return [group_id for group_id in group_ids if group_id in self._store.share]

    async def delete_states(self, group_ids: Sequence[str]) -> dict[str, Error]:
        """Do the first half of deleting share groups: delete their states at the share coordinator.

        Returns the groups that have to stay, each with its error. Raises KafkaError if it can't be recorded;
        then nothing has changed.
        """
        refused: dict[str, Error] = {}
        records: list[AnyRecord] = []
        wanted: dict[str, TopicsPartitions] = {}
        for group_id in group_ids:
            try:
                group = self._store.share_group(group_id)
                group.check_is_empty()
            except KafkaError as error:
                if error.error is Error.NON_EMPTY_GROUP:
                    refused[group_id] = error.error
                continue
            record, topics = self._initializing.to_delete(group)
            if record is not None:
                records.append(record)
            if topics:
                wanted[group_id] = topics
        self._journal.write(records)
        lost = await self._gate.committed()
        if lost is not None:
            return refused | dict.fromkeys(wanted, lost.error)
        deleting = [self._initializing.delete(group_id, topics) for group_id, topics in wanted.items()]
        for group_id, errors in zip(wanted, await together(deleting), strict=True):
            for refusal in errors.values():
                if refusal is not None:
                    refused[group_id] = refusal.error
        return refused

    # --- calls by the shard -------------------------------------------------------------------------------------

    def restart_all(self) -> None:
        """Restart all sessions after a start."""
        self._sessions.restart_all()

    def give_up(self) -> None:
        """Give up, as the partition is gone or has another leader."""
        self._initializing.give_up()

    def forget_topics(self, topics: Sequence[tuple[str, bytes]]) -> Iterator[int]:
        """Delete the states of deleted topics (name, id); the share coordinator does the same.

        Others may be served after each step. Each yields its cost. Raises KafkaError if it can't be recorded.
        """
        records = self._initializing.forget_topics([topic_id for _, topic_id in topics])
        for record in [*records]:
            self._journal.write([record])
            yield 1
