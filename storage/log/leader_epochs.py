"""The leader epochs of a log, and the offset at which each began (`leader-epoch-checkpoint`).

Source: KIP-101, KIP-320; org.apache.kafka.storage LeaderEpochFileCache.
"""

from storage import checkpoints
from storage.files import Files

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Pairs (epoch, start offset), both strictly ascending. `latest` is the last epoch, -1 if there is none.

    If the log's directory exists, changes are written to the file at once. They survive a kill; `sync` makes
    them survive a power loss. An epoch from `begin` is the exception: it is written with its first record,
    and `latest` is the one before it until then. Kafka writes it earlier, for each partition at each start.
    But whoever opens the log next drops an epoch without a record, Kafka included (`truncate_from_end`).
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
        """The last epoch, even if it has no record yet: the epoch that a follower sends (Kafka: `latestEpoch`).

        Without it, the leader wouldn't find out that the epoch never existed in its log.
        """
        return self.entries[-1][0] if self.entries else UNDEFINED_EPOCH

    @property
    def _path(self) -> str:
        return self._directory + "/" + checkpoints.LEADER_EPOCH_FILE

    def load(self) -> None:
        """Load the file, and write to it from now on. If it is empty, writing starts later, once its right
        content is known (`start_writing`). Raises `CheckpointError` for a malformed file."""
        entries: list[tuple[int, int]] = []
        for epoch, start_offset in checkpoints.read_leader_epochs(self._files, self._path):
            entries = _with(entries, epoch, start_offset)
        self._take(entries)
        self._written = bool(entries)

    def start_writing(self) -> None:
        """Write the known epochs, as the log's directory exists now."""
        self._write(self.entries)
        self._written = True

    def begin(self, epoch: int, end_offset: int) -> None:
        """Begin an epoch at the log's end, without a record yet."""
        if self._written:
            self.entries = _with(self.entries, epoch, end_offset)
        else:
            self._take(_with(self.entries, epoch, end_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch with a record. Entries that contradict it, because they aren't below it, are
        dropped: nothing was ever written in them."""
        entries = _with(self.entries, epoch, start_offset)
        if entries != self.entries or epoch != self.latest:
            self._replace(entries)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) for an epoch above all known ones, or -1."""
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
        """The epoch in which the offset was written, -1 if unknown."""
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
        """Drop the epochs that began at or after the offset."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        if len(kept) != len(self.entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that ended at or before the offset. The one that holds it now begins there."""
        below = [entry for entry in self.entries if entry[1] <= start_offset]
        if below:
            kept = [(below[-1][0], start_offset), *self.entries[len(below) :]]
            if kept != self.entries:
                self._replace(kept)

    def clear(self) -> None:
        self._replace([])

    def unsynced_path(self) -> str | None:
        """The file, if it was written since the last `sync_begun`. The caller syncs it and its name, which is
        new each time."""
        return self._path if self._unsynced else None

    def sync_begun(self) -> None:
        """Note that the file of `unsynced_path` is being synced. If that fails the log is given up, unless it
        is called off."""
        self._unsynced = False

    def sync_called_off(self) -> None:
        """Note that the sync can't begin, and will be retried."""
        self._unsynced = self._written

    def take_over(self, other: "LeaderEpochs") -> None:
        """Take over the entries of `other`, whose log has the same batches."""
        known = [entry for entry in other.entries if entry[0] <= other.latest]
        if self._written and known != [entry for entry in self.entries if entry[0] <= self.latest]:
            self._write(known)
        self.entries = list(other.entries)
        self.latest = other.latest

    def relocate(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self._directory = directory

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        # the file first: if it can't be written, the epoch isn't known either, and the next append retries
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
