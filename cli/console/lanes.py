"""Transactions over time, from the records of `__transaction_state`: each step of each transactional id, as its
coordinator logged it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from cli.client.transactions import CoordinatedTransaction
from cli.console.sections import GrowingList
from cli.inspecting.decoding import TRANSACTIONS, UndecodedError, decoded, decoder_of
from protocol.records.batch import BatchHeader, Record

MOST: Final = 3_000
"""The most transactions that are remembered."""
MOST_STEPS: Final = 50
"""The most steps kept of a transaction: the first ones, and the last one."""
MOST_PARTITIONS: Final = 100
RUNNING: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Lanes:
    """Keeps a document for each transaction: its id, its steps with their records' places, and its partitions."""

    def __init__(self, documents: GrowingList) -> None:
        self._documents = documents
        self._last: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def read(self, partition: int, batches: Iterable[tuple[BatchHeader, list[Record]]]) -> None:
        """Read the records of a partition of `__transaction_state`, in their order."""
        decoder = decoder_of(TRANSACTIONS)
        assert decoder is not None
        changed: dict[Any, dict[str, Any]] = {}
        for header, records in batches:
            if header.is_control:
                continue
            for record in records:
                try:
                    said = decoded(decoder, record).value
                except UndecodedError:
                    continue
                if isinstance(said, dict) and "state" in said:
                    document = self._step(said, [partition, record.offset])
                    if document is not None:
                        changed[document["key"]] = document
        self._documents.put(changed.items())

    def told(self, found: Iterable[CoordinatedTransaction], now_ms: int) -> None:
        """Add what a coordinator reports, for clusters where the records may not be read."""
        changed = {}
        for each in found:
            said = {
                "transactional_id": each.transactional_id,
                "state": each.state,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "timeout_ms": each.timeout_ms,
                "start_timestamp_ms": -1 if each.started_ms is None else each.started_ms,
                "last_update_timestamp_ms": now_ms,
                "partitions": sorted(f"{topic}-{index}" for topic, index in each.partitions),
            }
            last = self._last.get(each.transactional_id)
            is_new = last is None or last["state"] != said["state"] or last["started"] != each.started_ms
            if is_new or (last is not None and len(last["partitions"]) < len(each.partitions)):
                document = self._step(said, None)
                if document is not None:
                    changed[document["key"]] = document
        self._documents.put(changed.items())

    def _step(self, said: dict[str, Any], place: list[int] | None) -> dict[str, Any] | None:
        """Return the transaction after this record, or None if the id has none."""
        name, state = str(said["transactional_id"]), str(said["state"])
        started = said["start_timestamp_ms"]
        if state == "Empty" or started is None or started < 0:
            return None
        last = self._last.get(name)
        if last is None or last["started"] != started:
            last = {"key": f"{name}/{started}", "id": name, "started": started, "partitions": [], "steps": []}
        step = {
            "state": state,
            "at": started if state == "Ongoing" and not last["steps"] else said["last_update_timestamp_ms"],
            "epoch": said["producer_epoch"],
            "place": place,
        }
        steps = [*last["steps"], step]
        if len(steps) > MOST_STEPS:
            steps = [*steps[: MOST_STEPS // 2], *steps[-MOST_STEPS // 2 :]]
        partitions = sorted({*last["partitions"], *said["partitions"]})
        document = {
            **last,
            "producer": said["producer_id"],
            "epoch": said["producer_epoch"],
            "state": state,
            "timeout": said["timeout_ms"],
            "partitions": partitions[:MOST_PARTITIONS],
            "steps": steps,
        }
        self._last[name] = document
        self._last.move_to_end(name)
        while len(self._last) > MOST:
            self._last.popitem(last=False)
        return document
