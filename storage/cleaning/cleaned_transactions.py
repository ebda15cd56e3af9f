"""What the cleaner knows of transactions while it goes through a log: which data was aborted, which markers have none.

Source: org.apache.kafka.storage.internals.log CleanedTransactionMetadata, UnifiedLog.collectAbortedTransactions.
"""

from bisect import bisect_left
from collections.abc import Iterable
from heapq import heappop, heappush

from protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader
from protocol.records.records import ABORT, COMMIT
from storage.file_names import TXN_INDEX_SUFFIX, file_path, offset_of
from storage.files import Files
from storage.indexes.transaction_index import AbortedTxn, TransactionIndex


class AbortedTransactions:
    """The `.txnindex` files of a log, read as they are needed and let go once they are passed."""

    def __init__(self, files: Files, directory: str, log_start_offset: int) -> None:
        self._log_start_offset = log_start_offset
        names = [name for name in files.list_directory(directory) if name.endswith(TXN_INDEX_SUFFIX)]
        bases = [offset_of(name) for name in names]
        self._base_offsets = sorted(offset for offset in bases if offset is not None)
        self._indexes = [
            TransactionIndex(files, file_path(directory, offset, TXN_INDEX_SUFFIX))
            for offset in self._base_offsets
        ]

    def collect(self, base_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """Those that began before `upper_bound` and ended at or after the log start, as the segment at `base_offset`
        and the ones behind it tell. The segments must be asked for in ascending order."""
        passed = bisect_left(self._base_offsets, base_offset)
        del self._base_offsets[:passed], self._indexes[:passed]
        collected: list[AbortedTxn] = []
        for index in self._indexes:
            found, complete = index.collect(self._log_start_offset, upper_bound)
            collected += found
            if complete:
                break
        return collected


class _OpenAborted:
    __slots__ = ("data_seen", "txn")

    def __init__(self, txn: AbortedTxn) -> None:
        self.txn = txn
        self.data_seen = False


class CleanedTransactions:
    """Told of every batch in the order of the log, it says of each whether it can go as far as transactions matter."""

    __slots__ = ("_aborted", "_committed", "_upcoming")

    def __init__(self) -> None:
        self._upcoming: list[tuple[int, AbortedTxn]] = []
        """A heap by first offset."""
        self._aborted: dict[int, _OpenAborted] = {}
        """By producer: within its aborted transaction, up to the marker."""
        self._committed: set[int] = set()
        """Producers of which data was seen that wasn't aborted, up to the marker."""

    def add(self, aborted: Iterable[AbortedTxn]) -> None:
        """These lie ahead. One that was told before may be told again."""
        for txn in aborted:
            heappush(self._upcoming, (txn.first_offset, txn))

    def on_data(self, header: BatchHeader) -> bool:
        """Whether its transaction was aborted, so that it can go."""
        if self._upcoming:
            self._begin_up_to(header.last_offset)
        if not header.attributes & TRANSACTIONAL_BIT:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is not None:
            aborted.data_seen = True
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control(self, header: BatchHeader, control_type: int | None) -> tuple[bool, AbortedTxn | None]:
        """Whether it can go since no data of its transaction is left, and what the new index must say of it.

        `control_type` is None for a batch whose record went in an earlier pass. An aborted transaction whose data goes
        in this very pass keeps its marker and its entry: who has read that data meets the marker still.
        """
        if self._upcoming:
            self._begin_up_to(header.last_offset)
        if control_type is None:
            return True, None
        if control_type == ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is not None and aborted.data_seen:
                return False, aborted.txn
            return True, None
        if control_type == COMMIT:
            if header.producer_id in self._committed:
                self._committed.remove(header.producer_id)
                return False, None
            return True, None
        return False, None

    def _begin_up_to(self, offset: int) -> None:
        upcoming = self._upcoming
        while upcoming and upcoming[0][0] <= offset:
            txn = heappop(upcoming)[1]
            if txn.producer_id not in self._aborted:
                self._aborted[txn.producer_id] = _OpenAborted(txn)
