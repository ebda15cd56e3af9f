"""What a pass has done: since its last step, and in all."""

from storage.cleaning.plan import CleaningStats, Progress

CLEANING_STEP_COST = 1000
"""Of a step: some milliseconds. The unit is a record."""
_BATCH_COST = 2
_BYTES_PER_COST = 2048


class Tally:
    """Counts bytes and records. `cost` is what the step has taken by now."""

    __slots__ = (
        "_read",
        "_written",
        "bytes_read",
        "bytes_written",
        "cost",
        "map_bytes_read",
        "map_records_read",
        "records_read",
        "records_written",
    )

    def __init__(self) -> None:
        self.cost = 0
        self._read = 0
        self._written = 0
        self.map_bytes_read = 0
        self.map_records_read = 0
        self.bytes_read = 0
        self.records_read = 0
        self.bytes_written = 0
        self.records_written = 0

    def mapped(self, batch_bytes: int, records: int) -> None:
        """A batch was read for the offset map."""
        self._took(batch_bytes)
        self.map_bytes_read += batch_bytes
        self.map_records_read += records

    def read(self, batch_bytes: int, records: int) -> None:
        """A batch was read to be copied."""
        self._took(batch_bytes)
        self.bytes_read += batch_bytes
        self.records_read += records

    def _took(self, batch_bytes: int) -> None:
        self._read += batch_bytes
        self.cost += _BATCH_COST + batch_bytes // _BYTES_PER_COST

    def wrote(self, batch_bytes: int, records: int) -> None:
        """What is left of a batch was written."""
        self._written += batch_bytes
        self.bytes_written += batch_bytes
        self.records_written += records

    def step(self) -> Progress:
        """A step is over."""
        progress = Progress(self._read, self._written)
        self.cost = self._read = self._written = 0
        return progress

    def stats(self, keys: int) -> CleaningStats:
        """Of the whole pass."""
        return CleaningStats(
            map_bytes_read=self.map_bytes_read,
            map_records_read=self.map_records_read,
            bytes_read=self.bytes_read,
            records_read=self.records_read,
            bytes_written=self.bytes_written,
            records_written=self.records_written,
            keys=keys,
        )
