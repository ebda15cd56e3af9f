"""The fate of each batch in a stretch of a log: whether its transaction was committed, aborted, or is open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from protocol.records.batch import BatchHeader, read_marker, walk_batches
from protocol.wire.primitives import Bytes

DATA_BATCH, COMMIT_MARKER, ABORT_MARKER, OTHER_CONTROL = "plain", "commit", "abort", "control"
COMMITTED, ABORTED, STILL_OPEN, UNDECIDED = "committed", "aborted", "open", "undecided"

NO_MARKER: Final = -1


@dataclass
class WalkedBatch:
    """A batch with its bytes.

    `kind` is `plain` for data that readers may get, or names the kind of marker. `fate` is the outcome of its
    transaction, "" if it has none. `marker` is the offset of the marker that ended it, if the walk has reached it.
    """

    header: BatchHeader
    data: Bytes
    kind: str
    fate: str = ""
    marker: int = NO_MARKER


@dataclass
class WalkedLog:
    """Consecutive batches, and the partition's offsets.

    `next` is where the walk would continue. `aborted` has the producer ids and first offsets of the aborted
    transactions seen so far.
    """

    start: int = 0
    stable: int = 0
    end: int = 0
    next: int = 0
    batches: list[WalkedBatch] = field(default_factory=list)
    aborted: set[tuple[int, int]] = field(default_factory=set)

    def take(self, data: Bytes, aborted: Iterable[tuple[int, int]]) -> Iterator[BatchHeader]:
        """Add batches from `next` on, and return an iterator over their headers. Raises CorruptRecordError."""
        self.aborted |= {*aborted}
        for at, header in walk_batches(data):
            if header.last_offset < self.next:
                continue
            batch = data[at : at + header.size_bytes]
            self.batches.append(WalkedBatch(header, batch, _kind(header, batch)))
            self.next = header.last_offset + 1
            yield header

    def judge(self) -> None:
        """Find out each transaction's outcome: from its marker or, if the walk didn't reach that, from the
        list of aborted transactions. Below the last stable offset everything else is committed."""
        ahead: dict[int, tuple[str, int]] = {}
        for batch in reversed(self.batches):
            producer = batch.header.producer_id
            if batch.kind == COMMIT_MARKER:
                ahead[producer] = COMMITTED, batch.header.base_offset
            elif batch.kind == ABORT_MARKER:
                ahead[producer] = ABORTED, batch.header.base_offset
            elif _is_of_transaction(batch):
                batch.fate, batch.marker = ahead.get(producer, ("", NO_MARKER))
        behind: dict[int, int] = {}
        for batch in self.batches:
            producer = batch.header.producer_id
            if batch.kind in (COMMIT_MARKER, ABORT_MARKER):
                behind[producer] = batch.header.base_offset
            elif _is_of_transaction(batch) and not batch.fate:
                batch.fate = self._fate_without_marker(batch.header, behind.get(producer, NO_MARKER))

    def _fate_without_marker(self, header: BatchHeader, last_marker: int) -> str:
        """The outcome without a marker. An aborted transaction in the list applies to data after its first
        offset, if that is after the producer's last marker."""
        if header.base_offset >= self.stable:
            return STILL_OPEN if self.next >= self.end else UNDECIDED
        is_aborted = any(
            producer == header.producer_id and last_marker < first <= header.base_offset
            for producer, first in self.aborted
        )
        return ABORTED if is_aborted else COMMITTED


def _is_of_transaction(batch: WalkedBatch) -> bool:
    return batch.header.is_transactional and not batch.header.is_control


def _kind(header: BatchHeader, data: Bytes) -> str:
    if not header.is_control:
        return DATA_BATCH
    marker = read_marker(data)
    if marker is None:
        return OTHER_CONTROL
    return COMMIT_MARKER if marker.commit else ABORT_MARKER
