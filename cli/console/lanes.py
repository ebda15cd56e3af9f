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
UNKNOWN: Final = "Unknown"
"""It is over, and no record and no coordinator says how: the records of its end were passed over, or its broker was set
back."""


class Lanes:
    """Keeps a document for each transaction: its id, its steps with their records' places, and its partitions."""

    def __init__(self, documents: GrowingList) -> None:
        self._documents = documents
        self._last: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._looked_at: dict[str, dict[str, Any]] = {}
        """Those that were running at the last look."""

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
                    self._step(said, [partition, record.offset], changed)
        self._documents.put(changed.items())

    def told(self, found: Iterable[CoordinatedTransaction], now_ms: int) -> None:
        """As a coordinator tells it, where its records may not be read."""
        changed: dict[Any, dict[str, Any]] = {}
        for each in found:
            last = self._last.get(each.transactional_id)
            is_new = last is None or last["state"] != each.state or last["started"] != each.started_ms
            if is_new or (last is not None and len(last["partitions"]) < len(each.partitions)):
                self._step(_as_a_record(each, now_ms), None, changed)
        self._documents.put(changed.items())

    # --- Those whose end no record tells

    def still_running(self) -> dict[str, int]:
        """Transactional ids that have run since the last call, with no step meanwhile, and their producer ids."""
        running = {name: last for name, last in self._last.items() if last["state"] in RUNNING}
        still = {
            name: last["producer"] for name, last in running.items() if self._looked_at.get(name) is last
        }
        self._looked_at = running
        return still

    def settle(self, still: Iterable[str], found: Iterable[CoordinatedTransaction], now_ms: int) -> None:
        """What the coordinators say of these; they say nothing of those that are gone."""
        changed: dict[Any, dict[str, Any]] = {}
        told = {each.transactional_id: each for each in found}
        for name in still:
            last, now = self._last.get(name), told.get(name)
            if last is None or last["state"] not in RUNNING:
                continue
            if now is None or now.started_ms != last["started"]:
                self._end_unseen(last, now_ms, changed)
            if now is not None and (now.state, now.started_ms) != (last["state"], last["started"]):
                self._step(_as_a_record(now, now_ms), None, changed)
        self._documents.put(changed.items())

    def _end_unseen(self, last: dict[str, Any], at_ms: int, changed: dict[Any, dict[str, Any]]) -> None:
        step = {"state": UNKNOWN, "at": at_ms, "epoch": last["epoch"], "place": None}
        document = {**last, "state": UNKNOWN, "steps": [*last["steps"], step]}
        self._last[last["id"]] = changed[last["key"]] = document

    def _step(
        self, said: dict[str, Any], place: list[int] | None, changed: dict[Any, dict[str, Any]]
    ) -> None:
        """The transaction as it is after this record, if the id has one."""
        name, state = str(said["transactional_id"]), str(said["state"])
        started = said["start_timestamp_ms"]
        if state == "Empty" or started is None or started < 0:
            return
        last = self._last.get(name)
        if last is not None and last["started"] != started and last["state"] in RUNNING:
            # an id has one transaction at a time: the records of the end of the last one were passed over
            self._end_unseen(last, started, changed)
        if last is None or last["started"] != started or _is_read_again(last, place):
            last = _new(name, started)
        elif state in RUNNING and last["state"].startswith("Complete") and _told_alike(last, place):
            last = _new(name, started, last["number"] + 1)
        before = last["steps"]
        if place is not None:  # what a coordinator told ahead of the records is told by them now
            before = [each for each in before if each["place"] is not None]
        step = {
            "state": state,
            "at": started if state == "Ongoing" and not before else said["last_update_timestamp_ms"],
            "epoch": said["producer_epoch"],
            "place": place,
        }
        steps = [*before, step]
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
        changed[document["key"]] = document


def _new(name: str, started: int, number: int = 1) -> dict[str, Any]:
    """`number`: of those of this id that have begun in this millisecond."""
    key = f"{name}/{started}" if number == 1 else f"{name}/{started}~{number}"
    return {
        "key": key,
        "id": name,
        "started": started,
        "number": number,
        "partitions": [],
        "steps": [],
    }


def _is_read_again(last: dict[str, Any], place: list[int] | None) -> bool:
    """Whether the record lies before the one of its last step, as where a broker was set back."""
    before = last["steps"][-1]["place"]
    return place is not None and before is not None and place[1] <= before[1]


def _told_alike(last: dict[str, Any], place: list[int] | None) -> bool:
    """Whether its last step was told by a record, too, or by a coordinator, too."""
    return (last["steps"][-1]["place"] is None) == (place is None)


def _as_a_record(one: CoordinatedTransaction, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "start_timestamp_ms": -1 if one.started_ms is None else one.started_ms,
        "last_update_timestamp_ms": now_ms,
        "partitions": sorted(f"{topic}-{index}" for topic, index in one.partitions),
    }
