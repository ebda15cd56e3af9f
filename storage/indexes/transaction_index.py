"""A segment's `.txnindex`: the aborted transactions whose marker stands in the segment.

Records of 34 bytes, big-endian: `int16 version = 0 | int64 producer id | int64 first offset | int64 last
offset (the marker's) | int64 last stable offset`; last offsets grow strictly. Source:
org.apache.kafka.storage TransactionIndex, AbortedTxn.

Kafka makes the file at the first abort, and trusts its absence: where it was lost, aborted records are
served. Here a segment of a partition that knew transactions keeps the file even if it is empty, so that its
absence is noticed (`recovery.py`).
"""

from bisect import bisect_left
from struct import Struct
from typing import NamedTuple

from storage.files import File, Files

_RECORD = Struct(">hqqqq")
RECORD_SIZE = _RECORD.size
_VERSION = 0
_RUN = 256


class AbortedTxn(NamedTuple):
    """One record of the index. Offsets are inclusive; `last_offset` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Records are read at the first question and kept; a segment without the file has none. Raises `OSError`."""

    __slots__ = ("_files", "_records", "_runs", "file")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.file = File(path)
        self._records: list[AbortedTxn] | None = None
        self._runs: list[tuple[int, int]] = []
        """Of each `_RUN` records the least first offset and the largest last stable offset. A transaction that stays
        open has all that are aborted meanwhile say its offset, and a read would look at each of them every time."""

    @property
    def records(self) -> list[AbortedTxn]:
        """All of them, by last offset."""
        records = self._records
        if records is None:
            records = self._records = self._load()
        return records

    def _load(self) -> list[AbortedTxn]:
        try:
            data = self._files.read_whole(self.file.path)
        except FileNotFoundError:
            return []
        usable = len(data) - len(data) % RECORD_SIZE
        return [AbortedTxn._make(fields[1:]) for fields in _RECORD.iter_unpack(data[:usable])]

    def exists(self) -> bool:
        return bool(self._records) or self._files.exists(self.file.path)

    def create(self) -> None:
        """The file with no records."""
        self._files.create(self.file)
        self._records, self._runs = [], []

    def make_anew(self, records: list[AbortedTxn]) -> None:
        """Makes the file hold these records, and nothing else."""
        self._files.make_say(self.file, b"".join(_RECORD.pack(_VERSION, *txn) for txn in records))
        self._records, self._runs = records, []

    def append(self, txn: AbortedTxn) -> None:
        records = self.records
        if not records and not self._files.exists(self.file.path):
            self._files.create(self.file)
        self._files.append(self.file, _RECORD.pack(_VERSION, *txn), len(records) * RECORD_SIZE)
        records.append(txn)
        if not len(records) % _RUN:
            self._runs_of(records)

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Those that reach into [fetch offset, upper bound), and whether no later segment can hold more."""
        records = self.records
        found: list[AbortedTxn] = []
        if not records:
            return found, False
        runs = self._runs_of(records)
        start = bisect_left(records, fetch_offset, key=_last_offset)
        while start < len(records):
            run, within = divmod(start, _RUN)
            end = start - within + _RUN
            if run < len(runs):
                run_first_offset, run_last_stable_offset = runs[run]
                if run_first_offset >= upper_bound_offset > run_last_stable_offset:
                    start = end
                    continue
            for txn in records[start:end]:
                if txn.first_offset < upper_bound_offset:
                    found.append(txn)
                if txn.last_stable_offset >= upper_bound_offset:
                    return found, True
            start = end
        return found, False

    def _runs_of(self, records: list[AbortedTxn]) -> list[tuple[int, int]]:
        """Those of all runs that are whole."""
        runs = self._runs
        for start in range(len(runs) * _RUN, len(records) - _RUN + 1, _RUN):
            run = records[start : start + _RUN]
            runs.append((min(txn.first_offset for txn in run), max(txn.last_stable_offset for txn in run)))
        return runs

    def truncate_to(self, offset: int) -> None:
        """Drops the transactions whose marker is at or above the offset."""
        records = self.records
        count = bisect_left(records, offset, key=_last_offset)
        if count < len(records):
            self.truncate_to_count(count)

    def truncate_to_count(self, count: int) -> None:
        if self._files.exists(self.file.path):
            self._files.truncate(self.file, count * RECORD_SIZE)
        self._records = self.records[:count]
        del self._runs[count // _RUN :]

    def is_sane(self, base_offset: int) -> bool:
        """Whether the file holds whole records of this segment, in order."""
        if not self._files.exists(self.file.path):
            return True
        data = self._files.read_whole(self.file.path)
        if len(data) % RECORD_SIZE:
            return False
        previous = base_offset - 1
        for version, _producer_id, _first, last, _stable in _RECORD.iter_unpack(data):
            if version > _VERSION or last <= previous:
                return False
            previous = last
        return True

    def close(self) -> None:
        self._files.close(self.file)


def _last_offset(txn: AbortedTxn) -> int:
    return txn.last_offset
