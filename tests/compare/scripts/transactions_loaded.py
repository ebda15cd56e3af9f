"""How a coordinator treats the records that it loads: every state, and epochs at their end (KIP-360, KIP-890).

A client that may write to `__transaction_state` puts the records there, and the broker reads them when it restarts.
So no client has to send 32766 requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..play import Play, script
from ..requests import produce
from ..scene import Topic
from ..transaction_log import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    ends,
    put,
    written_since,
)
from ..transaction_requests import (
    STRANGER,
    coordinator_is_there,
    describe,
    end_txn,
    init,
    log_in_any_order,
    producers,
    rest,
    transactional,
)

STATES = {
    EMPTY: "Empty",
    ONGOING: "Ongoing",
    PREPARE_COMMIT: "PrepareCommit",
    PREPARE_ABORT: "PrepareAbort",
    COMPLETE_COMMIT: "CompleteCommit",
    COMPLETE_ABORT: "CompleteAbort",
}
LAST_EPOCHS = (32764, 32765, 32766, 32767)


@dataclass(slots=True)
class Found:
    """A transactional id and the record that the script puts for it."""

    name: str
    producer_id: int
    epoch: int
    fields: dict[str, Any]


class Records:
    """Puts records, each with its own producer id."""

    def __init__(self, play: Play, topic: Topic) -> None:
        self.play = play
        self.topic = topic
        self.count = 0

    def put(self, suffix: str, status: int, epoch: int, *, version: int = 1, **fields: Any) -> Found:
        self.count += 1
        found = Found(self.play.name(suffix), STRANGER + 10 * self.count, epoch, fields)
        given = self.play.names.given.setdefault("producer id", {})
        given[found.producer_id] = f"<producer id of {suffix}>"
        given[found.producer_id + 1] = f"<producer id of {suffix}, the next>"
        given[found.producer_id + 2] = f"<producer id of {suffix}, the one before>"
        partitions: Any = None if status == EMPTY else []
        if status in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT):
            partitions = [{"topic": self.topic.name, "partition_ids": [0, 1]}]
        put(
            self.play,
            found.name,
            version,
            **{
                "producer_id": found.producer_id,
                "producer_epoch": epoch,
                "transaction_status": status,
                "transaction_partitions": partitions,
                "transaction_start_timestamp_ms": -1 if status == EMPTY else self.play.now_ms,
            }
            | (
                {"previous_producer_id": found.producer_id, "client_transaction_version": 2}
                if version == 1
                else {}
            )
            | fields,
        )
        return found


def ways(found: Found) -> dict[str, list[tuple[str, int, dict[str, Any]]]]:
    """The ways to ask about one record. Each way has its own transactional id."""
    me = (found.name, found.producer_id)

    def end(version: int, epoch: int, *, commit: bool) -> tuple[str, int, dict[str, Any]]:
        return "EndTxn", version, end_txn(*me, epoch, commit=commit)

    def given(epoch: int) -> tuple[str, int, dict[str, Any]]:
        return "InitProducerId", 5, init(found.name, 60_000, found.producer_id, epoch)

    fresh = ("InitProducerId", 5, init(found.name))
    epoch = found.epoch
    out = {"new": [fresh, fresh, fresh], "goes-on": [given(epoch), given(epoch), fresh]}
    out["goes-on-from-before"] = [given(epoch - 1), given(epoch - 1), fresh]
    for commit in (True, False):
        verb = "commit" if commit else "abort"
        for version in (4, 5):
            out[f"{verb}{version}"] = [
                end(version, epoch, commit=commit),
                end(version, epoch, commit=commit),
                end(version, epoch, commit=not commit),
                end(version, epoch + 1 if epoch < 32767 else 0, commit=False),
                given(epoch),
                fresh,
            ]
    out["retry"] = [end(5, epoch - 1, commit=True), end(5, epoch - 1, commit=False), given(epoch - 1)]
    return out


@script(properties="transactions")
def last_epochs(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t", 2)
    records = Records(play, topic)
    cases: list[tuple[str, str, Found]] = []
    for epoch in LAST_EPOCHS:
        for status, state in STATES.items():
            if status in (PREPARE_COMMIT, PREPARE_ABORT) and epoch < 32766:
                continue
            for way in ways(Found("", 0, epoch, {})):
                suffix = f"{state}-{epoch}-{way}"
                cases.append((suffix, way, records.put(suffix, status, epoch)))
    play.restart()
    coordinator_is_there(play)
    topic_is_there(play, topic)
    rest(play, *(found.name for _, _, found in cases))
    start = ends(play)
    for suffix, way, found in cases:
        play.ask(f"what was loaded: {suffix}", "DescribeTransactions", 0, describe(found.name))
        for step, (api, version, fields) in enumerate(ways(found)[way]):
            play.ask(f"step {step}: {suffix}", api, version, fields)
            rest(play, found.name)
        play.ask(f"what is known: {suffix}", "DescribeTransactions", 0, describe(found.name))
    for number, record in enumerate(written_since(play, start)):
        play.note(f"record {number}", record)
    for index in (0, 1):
        play.note(f"the log of partition {index}", log_in_any_order(play, topic, index))
    play.ask("the producers", "DescribeProducers", 0, producers((topic, 0), (topic, 1)))


def topic_is_there(play: Play, topic: Topic) -> None:
    play.until_there(topic.name, 2)


def odd_records(records: Records) -> Iterator[tuple[str, Found]]:
    """Records as older brokers wrote them, with every tag, and with missing partitions."""
    for version in (0, 1):
        for status, state in STATES.items():
            suffix = f"{state}-v{version}"
            yield suffix, records.put(suffix, status, 5, version=version)
    gone = [
        {"topic": "nowhere", "partition_ids": [0]},
        {"topic": records.topic.name, "partition_ids": [0, 9]},
    ]
    for status in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT):
        suffix = f"{STATES[status]}-gone"
        yield suffix, records.put(suffix, status, 5, transaction_partitions=gone)
        suffix = f"{STATES[status]}-no-partitions"
        yield suffix, records.put(suffix, status, 5, transaction_partitions=[])
    for status in (PREPARE_COMMIT, PREPARE_ABORT):
        pid = STRANGER + 10 * (records.count + 1)
        suffix = f"{STATES[status]}-rotating"
        yield (
            suffix,
            records.put(suffix, status, 32767, previous_producer_id=pid, next_producer_id=pid + 1),
        )
    pid = STRANGER + 10 * (records.count + 1)
    yield (
        "rotated",
        records.put("rotated", COMPLETE_COMMIT, 0, previous_producer_id=pid + 2, next_producer_id=-1),
    )
    for tags in (0, 1, 2):
        suffix = f"client-version-{tags}"
        yield suffix, records.put(suffix, COMPLETE_COMMIT, 7, client_transaction_version=tags)
        suffix = f"ongoing-client-version-{tags}"
        yield suffix, records.put(suffix, ONGOING, 7, client_transaction_version=tags)
        suffix = f"prepared-client-version-{tags}"
        yield suffix, records.put(suffix, PREPARE_ABORT, 7, client_transaction_version=tags)
    yield (
        "late",
        records.put(
            "late",
            ONGOING,
            3,
            transaction_timeout_ms=1,
            transaction_start_timestamp_ms=records.play.now_ms - 60_000,
        ),
    )
    yield "next-epoch", records.put("next-epoch", EMPTY, 3, next_producer_epoch=4)


@script(properties="transactions")
def records_of_every_kind(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t", 2)
    start = ends(play)
    found = dict(odd_records(Records(play, topic)))
    # The last record of a key counts.
    put(play, found["Empty-v1"].name, producer_id=found["Empty-v1"].producer_id, producer_epoch=9)
    play.restart()
    coordinator_is_there(play)
    topic_is_there(play, topic)
    rest(play, *(each.name for each in found.values()))
    late = found["late"].name

    def timed_out() -> bool:
        answer = play.quietly("DescribeTransactions", 0, describe(late))
        return bool(answer.transaction_states[0].transaction_state == "CompleteAbort")

    play.until("the late one has timed out", timed_out)
    for suffix, each in found.items():
        play.ask(f"what was loaded: {suffix}", "DescribeTransactions", 0, describe(each.name))
    for number, record in enumerate(written_since(play, start)):
        play.note(f"record {number} of loading", record)
    start = ends(play)
    for suffix, each in found.items():
        data = transactional(play, 0, producer_id=each.producer_id, producer_epoch=each.epoch)
        asked = produce((topic, 0, data), transactional_id=each.name)
        play.ask(f"a batch: {suffix}", "Produce", 11, asked)
        for version in (4, 5):
            asked = end_txn(each.name, each.producer_id, each.epoch, commit=True)
            play.ask(f"a commit: {suffix} (v{version})", "EndTxn", version, asked)
            rest(play, each.name)
        asked = init(each.name, 60_000, each.producer_id, each.epoch)
        play.ask(f"goes on: {suffix}", "InitProducerId", 5, asked)
        rest(play, each.name)
        play.ask(f"a new instance: {suffix}", "InitProducerId", 5, init(each.name))
        rest(play, each.name)
        play.ask(f"what is known: {suffix}", "DescribeTransactions", 0, describe(each.name))
    for number, record in enumerate(written_since(play, start)):
        play.note(f"record {number} of what was asked", record)
    for index in (0, 1):
        play.note(f"the log of partition {index}", log_in_any_order(play, topic, index))
    play.ask("the producers", "DescribeProducers", 0, producers((topic, 0), (topic, 1)))
