"""The share groups of a shard: the front of the room, for the shard and for handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from coordinator.gate import Gate
from coordinator.group.client import Client
from coordinator.group.deferred import Deferred
from coordinator.group.parts import ShardParts
from coordinator.group.records import AnyRecord
from coordinator.group.share.initializing import PartitionErrors, StateInitializing
from coordinator.group.share.share_description import describe_share_group
from coordinator.group.share.share_heartbeats import ShareHeartbeats
from coordinator.group.share.share_offsets import ShareOffsets
from coordinator.group.share.share_sessions import ShareSessions
from coordinator.group.share.state_partitions import TopicsPartitions
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    DescribedGroup,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


class ShareGroups:
    """What is asked of them. All answers leave by the shard (`GroupShard.ask`)."""

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

    def describe(self, group_id: str) -> DescribedGroup:
        """Raises KafkaError (GROUP_ID_NOT_FOUND)."""
        return describe_share_group(self._store.share_group(group_id), self._topics)

    def are_among(self, group_ids: Sequence[str]) -> list[str]:
        """Those of the groups that are share groups."""
        return [group_id for group_id in group_ids if group_id in self._store.share]

    def delete_states(self, group_ids: Sequence[str], then: Callable[[dict[str, Error]], None]) -> None:
        """The first half of deleting share groups: what the share coordinator knows of them goes. `then` is told those
        that have to stay, each with its error.

        Raises KafkaError where that can't be recorded: nothing is changed then.
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

        def committed(lost: KafkaError | None) -> None:
            if lost is not None:
                then(refused | dict.fromkeys(wanted, lost.error))
            else:
                self._delete(wanted, refused, then)

        self._gate.when_committed(committed)

    def _delete(
        self,
        wanted: dict[str, TopicsPartitions],
        refused: dict[str, Error],
        then: Callable[[dict[str, Error]], None],
    ) -> None:
        if not wanted:
            then(refused)
        left = {*wanted}

        def answered(group_id: str, errors: PartitionErrors) -> None:
            for error in errors.values():
                if error is not None:
                    refused[group_id] = error.error
            left.discard(group_id)
            if not left:
                then(refused)

        for group_id, topics in wanted.items():
            self._initializing.delete(
                group_id,
                topics,
                lambda errors, group_id=group_id: answered(group_id, errors),  # type: ignore[misc]
            )

    # --- what the shard tells -------------------------------------------------------------------------------

    def restart_all(self) -> None:
        """After a start."""
        self._sessions.restart_all()

    def give_up(self) -> None:
        """The partition is led elsewhere, or gone."""
        self._initializing.give_up()

    def forget_topics(self, topics: Sequence[tuple[str, bytes]]) -> Iterator[int]:
        """Topics (name, id) were deleted: their states go, which the share coordinator sees to. Others may be served
        after each step, and what it yields is what it cost. Raises KafkaError where that can't be recorded."""
        records = self._initializing.forget_topics([topic_id for _, topic_id in topics])
        for record in [*records]:
            self._journal.write([record])
            yield 1
