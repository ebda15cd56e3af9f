"""What remains of transactions, their producers and their offsets after the broker was stopped or killed."""

from __future__ import annotations

import struct
from typing import Any

from ..batches import batch
from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..group_requests import fetch_offsets
from ..play import Play, script
from ..requests import fetch, list_offsets, produce
from ..scene import Topic
from ..transaction_requests import (
    END_VERSION,
    PRODUCE_VERSION,
    Producer,
    add_partitions,
    coordinator_is_there,
    describe,
    end_txn,
    init,
    producers,
    rest,
    transactional,
)


def look(play: Play, topic: Topic, when: str) -> None:
    for level in (0, 1):
        asked = fetch((topic, 0, 0), isolation_level=level)
        play.ask(f"the log at level {level}, {when}", "Fetch", 12, asked)
        asked = list_offsets((topic.name, 0, -1), isolation_level=level)
        play.ask(f"the end at level {level}, {when}", "ListOffsets", 7, asked)
    play.ask(f"the producers, {when}", "DescribeProducers", 0, producers((topic, 0)))


def back(play: Play, group: str, *topics: Topic) -> None:
    coordinator_is_there(play)
    group_coordinator_is_there(play, group)
    for topic in topics:
        play.until_there(topic.name)


def _restart_and_end(play: Play, *, kill: bool) -> None:
    coordinator_is_there(play)
    group = play.name("g")
    group_coordinator_is_there(play, group)
    topic = play.topic("t")
    made: dict[str, Producer] = {}
    for tv in (1, 2):
        for what in ("commit", "abort", "goes-on", "goes-on-and-commits", "new", "retries", "offsets"):
            made[f"{what}, V{tv}"] = Producer(play, f"{what}{tv}", tv=tv).init()
    before = {}
    for label, producer in made.items():
        producer.send(topic, count=2)
        producer.end(commit="abort" not in label)
        before[label] = producer.who
        producer.send(topic)
        if "offsets" in label:
            producer.commit_offsets(group, (topic, 0, 40 + producer.tv))
        if "retries" in label:
            before[label] = producer.who
            producer.end()
    look(play, topic, "before")
    names = [producer.transactional_id for producer in made.values()]
    play.ask("what is known before", "DescribeTransactions", 0, describe(*names))
    stable = fetch_offsets(8, group, [(topic, (0,))]) | {"require_stable": True}
    play.restart(kill=kill)
    back(play, group, topic)
    play.ask("what is known then", "DescribeTransactions", 0, describe(*names))
    play.ask("the offsets then", "OffsetFetch", 8, stable)
    for label, producer in made.items():
        tv, name = producer.tv, producer.transactional_id

        def ask(case: str, api: str, version: int, fields: Any, label: str = label, name: str = name) -> Any:
            answer = play.ask(f"{case}: {label}", api, version, fields)
            rest(play, name)
            return answer

        if "goes-on" in label:
            sequence = producer.sequences.get((topic.name, 0), 0)
            mine = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
            for case, which in (("its last batch again", sequence - 1), ("its next batch", sequence)):
                data = transactional(play, which, **mine)
                asked = produce((topic, 0, data), transactional_id=name)
                ask(case, "Produce", PRODUCE_VERSION[tv], asked)
            asked = add_partitions(*producer.who, (topic, 0))
            ask("a partition that it has", "AddPartitionsToTxn", 3, asked)
        if "new" in label:
            for time in ("first", "second"):
                ask(f"a new instance, the {time} time", "InitProducerId", 5, init(name))
        elif "retries" in label:
            _, producer_id, epoch = before[label]
            asked = init(name, 60_000, producer_id, epoch)
            ask("the end again", "EndTxn", END_VERSION[tv], end_txn(*before[label], commit=True))
            ask("the other end", "EndTxn", END_VERSION[tv], end_txn(*before[label], commit=False))
            ask("goes on from before", "InitProducerId", 5, asked)
            asked = init(name, 60_000, producer.producer_id, producer.producer_epoch)
            ask("goes on from now", "InitProducerId", 5, asked)
            ask("goes on from now, again", "InitProducerId", 5, asked)
        else:
            asked = end_txn(*producer.who, commit="abort" not in label)
            ask("the end", "EndTxn", END_VERSION[tv], asked)
            ask("the end again", "EndTxn", END_VERSION[tv], asked)
    play.ask("what is known at last", "DescribeTransactions", 0, describe(*names))
    play.ask("the offsets at last", "OffsetFetch", 8, stable)
    asked = list_offsets((topic.name, 0, -1), isolation_level=1)
    play.ask("the end at last", "ListOffsets", 7, asked)
    play.ask("the producers at last", "DescribeProducers", 0, producers((topic, 0)))


@script(properties="transactions")
def a_stop(play: Play) -> None:
    _restart_and_end(play, kill=False)


@script(properties="transactions")
def a_kill(play: Play) -> None:
    _restart_and_end(play, kill=True)


@script(properties="transactions")
def files_of_a_stop(play: Play) -> None:
    """The snapshot of producers and the index of aborted transactions that a stopped broker leaves."""
    coordinator_is_there(play)
    topic = play.topic("t")
    a, b, c, d = (Producer(play, name, tv=tv).init() for name, tv in (("a", 1), ("b", 2), ("c", 1), ("d", 2)))
    a.send(topic, count=2)
    b.send(topic, count=3)
    a.end(commit=False)
    a.send(topic)
    c.send(topic)
    c.end()
    d.add((topic, 0)).end(commit=False)
    b.end(commit=False)
    play.write(topic.name, batch(1, base_timestamp=play.now_ms))
    (answer,) = play.quietly("ListOffsets", 7, list_offsets((topic.name, 0, -1))).topics
    end = answer.partitions[0].offset
    play.restart()
    coordinator_is_there(play)
    play.until_there(topic.name)
    snapshot = play.file(topic.name, 0, f"{end:020}.snapshot")
    version, _crc, count = struct.unpack_from(">hIi", snapshot)
    known = play.names.given["producer id"]
    entries = []
    for entry in struct.iter_unpack(">qhiqiqiq", snapshot[10:]):
        producer_id, epoch, sequence, offset, delta, timestamp, _coordinator_epoch, first = entry
        near = "now" if abs(timestamp - play.now_ms) < 120_000 else timestamp
        entries.append([known.get(producer_id, producer_id), epoch, sequence, offset, delta, near, first])
    play.note("the snapshot", [version, count, len(snapshot), sorted(entries)])
    index = play.file(topic.name, 0, f"{0:020}.txnindex")
    for number, (version, producer_id, *offsets) in enumerate(struct.iter_unpack(">hqqqq", index)):
        play.note(f"entry {number} of the index", [version, known.get(producer_id, producer_id), *offsets])
    a.end()
    look(play, topic, "after all have ended")
