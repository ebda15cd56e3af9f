"""The leader epochs of a log, and the offset at which each began (`leader-epoch-checkpoint`).

Source: KIP-101, KIP-320; org.apache.kafka.storage LeaderEpochFileCache.
"""

from storage import checkpoints
from storage.files import Files

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Pairs (epoch, start offset), both growing strictly. `latest` is the last one's epoch, -1 while there are
    none.

    Changes are written to the file at once where the log's directory is there; a killed process finds them
    again, `sync` makes them outlive a lost power supply. An epoch that `begin` brings is the exception: it is
    written with its first record. Kafka writes it before, for each partition at each start; but what has no
    record is dropped by whoever opens the log next, Kafka included (`truncate_from_end`). Until it is written
    `latest` is the one before.
    """

    __slots__ = ("_directory", "_files", "_unsynced", "_written", "entries", "latest")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self.entries: list[tuple[int, int]] = []
        self.latest = UNDEFINED_EPOCH
        self._written = False
        self._unsynced = False

    @property
    def last(self) -> int:
        """The last one's, though it has no record yet: what a follower says it has (Kafka: `latestEpoch`). Said without
        it, the leader wouldn't find out that it never was there."""
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    @property
    def _path(self) -> str:
        return self._directory + "/" + checkpoints.LEADER_EPOCH_FILE

    def load(self) -> None:
        """Takes what the file says, from now on writing to it; one that says nothing is written to once it is known
        what it ought to say (`start_writing`). Raises `CheckpointError` for a malformed one."""
        entries: list[tuple[int, int]] = []
        for epoch, start_offset in checkpoints.read_leader_epochs(self._files, self._path):
            entries = _with(entries, epoch, start_offset)
        self._take(entries)
        self._written = bool(entries)

    def start_writing(self) -> None:
        """The log's directory is there now: writes what is known."""
        self._write(self.entries)
        self._written = True

    def begin(self, epoch: int, end_offset: int) -> None:
        """An epoch begins at the log's end, without a record yet."""
        if self._written:
            self.entries = _with(self.entries, epoch, end_offset)
        else:
            self._take(_with(self.entries, epoch, end_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch begins, with a record. Entries that contradict it, not being below it, were never written in:
        dropped."""
        entries = _with(self.entries, epoch, start_offset)
        if entries != self.entries or epoch != self.latest:
            self._replace(entries)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) for an epoch above all known, or -1."""
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if self.entries and epoch == self.entries[-1][0]:
            return epoch, log_end_offset
        floor = epoch
        for known, start_offset in self.entries:
            if known > epoch:
                return floor, start_offset
            floor = known
        return UNDEFINED_EPOCH, UNDEFINED_OFFSET

    def epoch_for(self, offset: int) -> int:
        """The epoch in which the offset was written, -1 where it isn't known."""
        found = UNDEFINED_EPOCH
        for epoch, start_offset in self.entries:
            if start_offset > offset:
                break
            found = epoch
        return found

    def earliest(self) -> tuple[int, int] | None:
        """(epoch, start offset) of the first entry."""
        return self.entries[0] if self.entries else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that began at or after the offset."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        if len(kept) != len(self.entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that ended at or before the offset; the one that holds it now begins there."""
        below = [entry for entry in self.entries if entry[1] <= start_offset]
        if below:
            kept = [(below[-1][0], start_offset), *self.entries[len(below) :]]
            if kept != self.entries:
                self._replace(kept)

    def clear(self) -> None:
        self._replace([])

    def unsynced_path(self) -> str | None:
        """The file, if it was written since the last `sync_begun`: the caller syncs it and its name, which is a new one
        each time."""
        return self._path if self._unsynced else None

    def sync_begun(self) -> None:
        """What `unsynced_path` says is synced now, or the log is given up, unless it's called off."""
        self._unsynced = False

    def sync_called_off(self) -> None:
        """It can't begin, and is tried again."""
        self._unsynced = self._written

    def take_over(self, other: "LeaderEpochs") -> None:
        """Says what the other one says, which is of a log with the same batches."""
        known = [entry for entry in other.entries if entry[0] <= other.latest]
        if self._written and known != [entry for entry in self.entries if entry[0] <= self.latest]:
            self._write(known)
        self.entries = list(other.entries)
        self.latest = other.latest

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        self._directory = directory

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        # the file first: what can't be written isn't known either, and is tried again at the next append
        if self._written:
            self._write(entries)
        self._take(entries)

    def _take(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else UNDEFINED_EPOCH

    def _write(self, entries: list[tuple[int, int]]) -> None:
        self._files.replace_whole(self._path, checkpoints.encode_leader_epochs(entries), synced=False)
        self._unsynced = True


def _with(entries: list[tuple[int, int]], epoch: int, start_offset: int) -> list[tuple[int, int]]:
    if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
        return entries
    kept = len(entries)
    while kept and (entries[kept - 1][0] >= epoch or entries[kept - 1][1] >= start_offset):
        kept -= 1
    return [*entries[:kept], (epoch, start_offset)]
