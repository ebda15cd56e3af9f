"""Transactional ids according to the records of `__transaction_state` in a folder."""

from __future__ import annotations

from collections.abc import Iterable

from cli.client.transactions import CoordinatedTransaction
from cli.inspecting.decoding import TRANSACTIONS, UndecodedError, decoded, decoder_of
from protocol.records.batch import BatchHeader, Record

NOBODY = -1
"""The coordinator's id, because there is no broker."""


class FolderTransactions:
    """What a coordinator would report about all transactional ids, with all partitions. Lanes have limits, and what
    they leave out would seem to hang."""

    def __init__(self) -> None:
        self._last: dict[bytes, Record] = {}

    def read(self, batches: Iterable[tuple[BatchHeader, list[Record]]]) -> None:
        """Read the batches of a partition of `__transaction_state`, in their order."""
        for header, records in batches:
            if not header.is_control:
                self._last |= {bytes(record.key or b""): record for record in records}

    def coordinated(self) -> list[CoordinatedTransaction]:
        """Return the transactions, sorted by id."""
        decoder = decoder_of(TRANSACTIONS)
        assert decoder is not None
        found = []
        for record in self._last.values():
            try:
                said = decoded(decoder, record).value
            except UndecodedError:
                continue
            if not isinstance(said, dict) or "state" not in said:
                continue  # a tombstone
            started_ms = said["start_timestamp_ms"]
            names = [text.rpartition("-") for text in said["partitions"]]
            found.append(
                CoordinatedTransaction(
                    said["transactional_id"],
                    NOBODY,
                    said["state"],
                    said["producer_id"],
                    said["producer_epoch"],
                    started_ms if started_ms is not None and started_ms >= 0 else None,
                    said["timeout_ms"],
                    frozenset((topic, int(index)) for topic, _, index in names),
                )
            )
        return sorted(found, key=lambda each: each.transactional_id)
