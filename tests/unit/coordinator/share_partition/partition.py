"""A share partition on a log of record batches, with durable state in memory and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.share_partition.ports import (
    AbortedFrom,
    AcquiredRecords,
    DeadLetter,
    FetchedBatch,
    ShareSettings,
)
from coordinator.share_partition.share_partition import SharePartition
from coordinator.share_partition.states import AcquireMode
from protocol.errors import Error, KafkaError
from protocol.messages.share_fetch import AcknowledgementBatch
from tests.support.share_persister import MemoryPersister
from tests.support.wishes import drive
from tests.unit.coordinator.runtime import FakeRuntime

TOPIC_ID = bytes(15) + b"\1"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
AVAILABLE, ACQUIRED, ACKNOWLEDGED, _, ARCHIVED = range(5)
LOCK_MS = 30_000


def bury_nothing_more(letter: DeadLetter) -> None:
    """Do nothing: no record is given to be buried."""


class Shared:
    """A share partition, with short methods for what members do. Errors are the codes of the acknowledgements."""

    def __init__(
        self,
        batches: Sequence[tuple[int, int]] = (),
        *,
        persister: MemoryPersister | None = None,
        runtime: FakeRuntime | None = None,
        reset: int | Error = 0,
        **settings: object,
    ) -> None:
        """Begin with a log. `batches` has the first and last offsets of its record batches."""
        self.log = [FetchedBatch(first, last) for first, last in batches]
        self.runtime = runtime or FakeRuntime()
        self.persister = persister or MemoryPersister()
        self.settings = ShareSettings(**settings)  # type: ignore[arg-type]
        self.reset = reset
        self.changes = 0
        self.dead: list[DeadLetter] = []
        self._buried: Callable[[DeadLetter], None] = bury_nothing_more
        self.partition = SharePartition(
            "g",
            TOPIC_ID,
            0,
            5,
            runtime=self.runtime,
            persister=self.persister,
            settings=lambda: self.settings,
            reset_offset=self._reset_offset,
            changed=self._changed,
            bury=self._bury,
        )
        self.initialized: list[Error | None] = []
        self.initialize()

    def initialize(self) -> None:
        drive(
            self.partition.initialize(),
            lambda error: self.initialized.append(None if error is None else error.error),
        )

    def restarted(self) -> Shared:
        """Return a new leader, or the same one after a kill. It knows only what is durable."""
        self.partition.fence()
        settings = self.settings._asdict()
        again = Shared(persister=self.persister, runtime=self.runtime, reset=self.reset, **settings)
        again.log = self.log
        return again

    async def _reset_offset(self) -> int | KafkaError:
        return KafkaError(self.reset) if isinstance(self.reset, Error) else self.reset

    def _changed(self) -> None:
        self.changes += 1

    def _bury(self, letters: Sequence[DeadLetter], done: Callable[[DeadLetter], None]) -> None:
        self.dead += letters
        self._buried = done

    def bury(self) -> None:
        """Put all dead records into the dead letter queue."""
        dead, self.dead = self.dead, []
        for letter in dead:
            self._buried(letter)

    def fetch(
        self,
        member: str = "m",
        most: int = 500,
        batch_size: int = 500,
        *,
        limits: bool = False,
        read: int = 100,
        aborted: Sequence[AbortedFrom] = (),
    ) -> list[tuple[int, int, int]]:
        """Return the first offset, last offset and delivery count of what is acquired. At most `read` record batches
        are read."""
        partition = self.partition
        if not partition.begin_fetch(self):
            return []
        offset = partition.next_fetch_offset()
        batches = [batch for batch in self.log if batch.last_offset >= offset][:read]
        mode = AcquireMode.RECORD_LIMIT if limits else AcquireMode.BATCH_OPTIMIZED
        acquired: list[AcquiredRecords] = partition.acquire(
            member,
            batches,
            fetch_offset=offset,
            most_records=most,
            batch_size=batch_size,
            mode=mode,
            aborted=aborted,
        )
        partition.end_fetch(self)
        return [tuple(each) for each in acquired]  # type: ignore[misc]

    def ack(self, *parts: tuple[int, int, int | list[int]], member: str = "m") -> int | None:
        """Acknowledge batches of (first, last, type or types), and return the error code. It is None until the answer
        comes."""
        answers: list[int] = []
        batches = [
            AcknowledgementBatch(
                first_offset=first,
                last_offset=last,
                acknowledge_types=types if isinstance(types, list) else [types],
            )
            for first, last, types in parts
        ]
        drive(
            self.partition.acknowledge(member, batches),
            lambda error: answers.append(0 if error is None else error.error),
        )
        assert len(answers) <= 1
        self.answers = answers
        return answers[0] if answers else None

    def leave(self, member: str = "m") -> int | None:
        answers: list[int] = []
        drive(
            self.partition.release(member), lambda error: answers.append(0 if error is None else error.error)
        )
        return answers[0] if answers else None

    @property
    def span(self) -> tuple[int, int, int]:
        """Return the start, the end, and how many records behind the start are done with."""
        records = self.partition.records
        return records.start_offset, records.end_offset, records.terminal_count

    @property
    def next(self) -> int:
        return self.partition.next_fetch_offset()

    def states(self) -> dict[int, tuple[int, int, str]]:
        """Return the state, the delivery count and the owner of each offset in flight."""
        return {
            offset: (state.state, state.delivery_count, state.member_id)
            for batch in self.partition.records
            for offset in range(batch.first_offset, batch.last_offset + 1)
            for state in [batch.state_at(offset)]
        }


def in_batches(count: int, size: int, first: int = 0) -> list[tuple[int, int]]:
    """Return so many record batches of one size, in a row."""
    return [(first + place * size, first + (place + 1) * size - 1) for place in range(count)]
