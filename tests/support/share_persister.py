"""Durable states of share partitions in memory. A test may hold back the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from coordinator.persister import NO_START_OFFSET, ShareState, StateBatch
from protocol.errors import Error, KafkaError
from protocol.waiting import Later

A = TypeVar("A")


class MemoryPersister:
    """Implements the port `Persister` for a leader, with states by offset for a test to inspect.

    While it `holds`, reads and writes wait for `go_on`.
    """

    def __init__(self, start_offset: int = NO_START_OFFSET) -> None:
        self.start_offset = start_offset
        self.state_epoch = 1
        self.offsets: dict[int, tuple[int, int]] = {}  # (delivery count, state): the higher count wins
        self.writes: list[tuple[int, int, list[StateBatch]]] = []
        """Start offset, count of completed deliveries, batches."""
        self.error: Error | None = None
        self.holds = False
        self.held: list[Callable[[], None]] = []

    def read(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
    ) -> Later[ShareState | KafkaError]:
        return self._later(lambda: self.state() if self.error is None else KafkaError(self.error))

    def state(self) -> ShareState:
        """Return what is durable. Neighbours with equal states form one batch."""
        batches: list[StateBatch] = []
        for offset, (count, state) in sorted(self.offsets.items()):
            if offset < self.start_offset:
                continue
            last = batches[-1] if batches else None
            if last and last.last_offset == offset - 1 and last[2:] == (state, count):
                batches[-1] = last._replace(last_offset=offset)
            else:
                batches.append(StateBatch(offset, offset, state, count))
        return ShareState(self.state_epoch, self.start_offset, batches)

    def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Later[KafkaError | None]:
        def answer() -> KafkaError | None:
            error = self.error
            if error is None and state_epoch != self.state_epoch:
                error = Error.FENCED_STATE_EPOCH
            if error is None:
                self._keep(start_offset, batches)
                self.writes.append((start_offset, delivery_complete_count, [*batches]))
            return None if error is None else KafkaError(error, "text")

        return self._later(answer)

    def go_on(self, count: int | None = None) -> None:
        """Carry out what is held, or the first few."""
        held = self.held[:count]
        del self.held[:count]
        for answer in held:
            answer()

    def _later(self, answer: Callable[[], A]) -> Later[A]:
        later: Later[A] = Later()
        if self.holds:
            self.held.append(lambda: later.reply(answer()))
        else:
            later.reply(answer())
        return later

    def _keep(self, start_offset: int, batches: Sequence[StateBatch]) -> None:
        self.start_offset = start_offset
        for first, last, state, count in batches:
            for offset in range(first, last + 1):
                self.offsets[offset] = max((count, state), self.offsets.get(offset, (0, 0)))


class MemoryPersisters:
    """The same for many: each initialized share partition has a `MemoryPersister`."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, bytes, int], MemoryPersister] = {}

    def initialize(
        self, group_id: str, topic_id: bytes, partition: int, start_offset: int = NO_START_OFFSET
    ) -> MemoryPersister:
        state = self.states[group_id, topic_id, partition] = MemoryPersister(start_offset)
        return state

    def read(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
    ) -> Later[ShareState | KafkaError]:
        found = self.states.get((group_id, topic_id, partition))
        if found is not None:
            return found.read(group_id, topic_id, partition, leader_epoch)
        refused: Later[ShareState | KafkaError] = Later()
        refused.reply(KafkaError(Error.INVALID_REQUEST, "not initialized"))
        return refused

    def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Later[KafkaError | None]:
        return self.states[group_id, topic_id, partition].write(
            group_id,
            topic_id,
            partition,
            state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            batches,
        )
