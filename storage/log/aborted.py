"""Checking a transaction index against the batches: each record of the file is proven before a reader first
uses it.

Kafka's format has no checksum, and Kafka trusts the file. If a disk flips a bit, a reader of committed
records gets aborted records, or misses committed ones. But the log has the same information: where a record
says that the transaction ends, there is the marker of that producer's abort; where it says that it began,
there is the producer's first batch of the transaction. (Compaction removes such a batch, and leaves a gap,
but never the marker.) If a record is wrong, the index is rebuilt from its segment, in parts, by the reads
that need it. These get nothing before that is done. This doesn't notice a *missing* record. An examination
does, as it reads the whole log.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice

from protocol.errors import CodecError, Error, KafkaError
from protocol.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptRecordError,
    read_marker,
)
from protocol.waiting import step
from storage.indexes import AbortedTxn
from storage.log import segment_recovery
from storage.log.log_state import LogState
from storage.log.segment import Segment
from storage.producer_state import ProducerStates

logger = logging.getLogger(__name__)

MOST_PROVEN_AT_ONCE = 250
"""The most records of one index that one read looks up, and markers in its result, while some are unproven."""
MOST_REMADE_AT_ONCE = 300
"""The most batches that one read looks at to rebuild an index."""
_BEFORE_BYTES = 4096
"""The bytes before a transaction's stated beginning in which to look for an earlier one."""
_READ_ON = 100
"""The most batches to read on for the next record before asking the offset index."""


class IndexInTheMakingError(KafkaError):
    """It isn't known yet which records are aborted. Each retry rebuilds more of the index."""

    def __init__(self, path: str) -> None:
        super().__init__(Error.KAFKA_STORAGE_ERROR, f"{path} is being rebuilt")


def prove(log: LogState, slot: int, fetch_offset: int, upper_bound: int) -> None:
    """Make sure that the segment's index is right for these offsets, or rebuild it.

    Raises `OSError`, and `IndexInTheMakingError` until the rebuild is done.
    """
    index = log.segments.row[slot].txn_index
    try:
        if index.remaking is None:
            asked = index.unproven(fetch_offset, upper_bound, MOST_PROVEN_AT_ONCE)
            proof = _Proof(log, slot)
            if all(proof.is_true(txn) for _, txn in asked):
                index.believe(number for number, _ in asked)
                return
            logger.warning("%s contradicts the batches: rebuilding it", index.file.path)
            index.remaking = _aborted_in(log, slot)
        for found in islice(index.remaking, MOST_REMADE_AT_ONCE):
            if found is not None:
                index.make_anew(found)
                return
    except (KafkaError, CorruptRecordError, CodecError) as failure:
        logger.warning("%s can't be checked against the batches: %s", index.file.path, failure)
        index.believe()
        return
    except OSError:
        index.remaking = None
        raise
    raise IndexInTheMakingError(index.file.path)


class _Stretch:
    """Consecutive batches of a segment, each read once."""

    def __init__(self, segment: Segment, slot: int, position: int) -> None:
        self.slot = slot
        self.position = position
        self.positions: list[int] = []
        self.headers: list[BatchHeader] = []
        self.of_producer: dict[int, list[int]] = {}
        """The numbers of its batches here, by producer id."""
        self._last_offsets: list[int] = []
        self._more = segment.batches(position)

    def find(self, offset: int, most: int) -> int | None:
        """The number of the first batch that ends at or after the offset, if at most `most` more batches lead
        to it."""
        ends = self._last_offsets
        while not ends or ends[-1] < offset:
            found = next(self._more, None) if most > 0 else None
            if found is None:
                return None
            position, header = found
            if header.producer_id >= 0:
                self.of_producer.setdefault(header.producer_id, []).append(len(ends))
            self.positions.append(position)
            self.headers.append(header)
            ends.append(header.last_offset)
            most -= 1
        return bisect_left(ends, offset)

    def begins_by(self, offset: int) -> bool:
        return bool(self.headers) and self.headers[0].base_offset <= offset


class _Proof:
    """Proves the records of one segment's index."""

    def __init__(self, log: LogState, slot: int) -> None:
        self._log = log
        self._slot = slot
        self._stretches: list[_Stretch] = []  # the last two: where transactions begin, and where they end
        self._left_open: dict[int, set[int]] = {}

    def is_true(self, txn: AbortedTxn) -> bool:
        """Raises KafkaError, CorruptRecordError, CodecError if batches can't be read."""
        if txn.first_offset >= txn.last_offset:
            return False
        began = bisect_right(self._log.segments.base_offsets, txn.first_offset) - 1
        if (
            began >= 0
            and txn.first_offset >= self._log.log_start_offset
            and not self._begins_there(began, txn)
        ):
            return False
        return self._ends_there(txn)

    def _at(self, slot: int, offset: int) -> tuple[_Stretch, int | None]:
        """A stretch with the batches around the offset, and the number of the first one that ends at or after it."""
        for stretch in self._stretches:
            if stretch.slot == slot and stretch.begins_by(offset):
                number = stretch.find(offset, _READ_ON)
                if number is not None:
                    return stretch, number
        segment = self._log.segments.row[slot]
        start = segment.position_for(max(offset - 1, segment.base_offset))
        if start:
            start = segment.offset_index.entry_at_or_before(max(start - _BEFORE_BYTES, 0))[1]
        stretch = _Stretch(segment, slot, start)
        self._stretches = [stretch, *self._stretches[:1]]
        return stretch, stretch.find(offset, segment.size)

    def _ends_there(self, txn: AbortedTxn) -> bool:
        """True if the marker of an abort is where the record says."""
        stretch, number = self._at(self._slot, txn.last_offset)
        if number is None:
            return False
        header = stretch.headers[number]
        if header.last_offset != txn.last_offset or header.producer_id != txn.producer_id:
            return False
        if not header.attributes & CONTROL_BIT:
            return False
        segment = self._log.segments.row[self._slot]
        marker = read_marker(segment.files.read(segment.log, header.size_bytes, stretch.positions[number]))
        return marker is not None and not marker.commit

    def _begins_there(self, slot: int, txn: AbortedTxn) -> bool:
        """True if a transaction of the producer begins where the record says, and neither begins nor ends
        earlier, as far as the batches around it show."""
        stretch, number = self._at(slot, txn.first_offset)
        if number is None or stretch.headers[number].base_offset > txn.first_offset:
            return True  # it has been compacted
        headers = stretch.headers
        numbers = stretch.of_producer.get(txn.producer_id, [])
        place = bisect_left(numbers, number)
        if place == len(numbers) or numbers[place] != number:
            return False
        if headers[number].base_offset != txn.first_offset or not _is_data(headers[number]):
            return False
        if place:
            is_open = _is_data(headers[numbers[place - 1]])
        else:
            is_open = not stretch.position and slot > 0 and txn.producer_id in self._open_at_the_end(slot - 1)
        if is_open:
            return False
        stretch.find(txn.last_offset, _READ_ON)
        for at in range(place + 1, len(numbers)):
            later = headers[numbers[at]]
            if later.last_offset >= txn.last_offset:
                break
            if not _is_data(later):
                return False
        return True

    def _open_at_the_end(self, slot: int) -> set[int]:
        """Producers whose transactions are open after the last batches of the segment, judging by these alone."""
        known = self._left_open.get(slot)
        if known is None:
            known = self._left_open[slot] = set()
            segment = self._log.segments.row[slot]
            start = segment.offset_index.entry_at_or_before(max(segment.size - _BEFORE_BYTES, 0))[1]
            for _, header in segment.batches(start):
                if _is_data(header):
                    known.add(header.producer_id)
                else:
                    known.discard(header.producer_id)
        return known


def _is_data(header: BatchHeader) -> bool:
    """True for data of a transaction."""
    return header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) == TRANSACTIONAL_BIT


def _aborted_in(log: LogState, slot: int) -> Iterator[list[AbortedTxn] | None]:
    """Compute what the index has to contain, from the newest snapshot at or before the segment's base and the
    batches after it.

    Yields None for each batch it looks at, then the whole result. That goes up to the segment's end at that
    time, as there may be appends in between. If the segment is cut off the index forgets it.
    """
    segment, base_offset = log.segments.row[slot], log.segments.base_offsets[slot]
    states = ProducerStates(log.producers.topic_partition)
    begins = log.log_start_offset
    for offset in reversed(log.snapshots.offsets):
        if begins < offset <= base_offset and (producers := log.snapshots.read(offset)) is not None:
            states.reset(producers, offset)
            begins = offset
            break
    else:
        states.reset((), begins)
    for before in log.segments.row[max(bisect_right(log.segments.base_offsets, begins) - 1, 0) : slot]:
        replaying = segment_recovery.replay_in_steps(before, states, base_offset)
        while not step(replaying):
            yield None
    aborted: list[AbortedTxn] = []
    end = 0
    while end < segment.size:
        began = end
        for position, header in segment.batches(began):
            end = position + header.size_bytes
            if header.producer_id >= 0:
                is_control = header.attributes & CONTROL_BIT
                batch = segment.files.read(segment.log, header.size_bytes, position) if is_control else b""
                found = segment_recovery.apply(states, header, batch)
                if found is not None:
                    aborted.append(found)
            yield None
        if end == began:
            break  # nothing more that is whole
    yield aborted
