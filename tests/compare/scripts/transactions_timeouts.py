"""Transactions that take too long: the coordinator fences and aborts them. All of a script's transactions time out
together."""

from __future__ import annotations

from typing import Any

from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..group_requests import fetch_offsets
from ..play import Play, script
from ..requests import fetch, produce
from ..scene import Topic
from ..transaction_requests import (
    END_VERSION,
    PRODUCE_VERSION,
    Producer,
    add_offsets,
    add_partitions,
    coordinator_is_there,
    describe,
    end_txn,
    init,
    producers,
    rest,
    transactional,
    txn_commit,
)

TIMEOUT_MS = 2_000
"""Longer than what a script does before it waits, even on a slow machine."""


def asked_first(play: Play, topic: Topic, new: Topic, tv: int) -> dict[str, Any]:
    """Return what a client that doesn't know of the abort might do first: (api, version, fields of a producer)."""
    group = play.name("g")
    return {
        "commit": lambda p: ("EndTxn", END_VERSION[tv], end_txn(*p.who, commit=True)),
        "abort": lambda p: ("EndTxn", END_VERSION[tv], end_txn(*p.who, commit=False)),
        "add": lambda p: ("AddPartitionsToTxn", 3, add_partitions(*p.who, (topic, 0))),
        "add-new": lambda p: ("AddPartitionsToTxn", 3, add_partitions(*p.who, (new, 0))),
        "offsets": lambda p: ("AddOffsetsToTxn", 3, add_offsets(*p.who, group)),
        "offset": lambda p: (
            "TxnOffsetCommit",
            tv + 3,
            txn_commit(p.transactional_id, group, p.producer_id, p.producer_epoch, (topic, 0, 9)),
        ),
        "send": lambda p: (
            "Produce",
            PRODUCE_VERSION[tv],
            produce((topic, 0, p.batch(topic, 0)), transactional_id=p.transactional_id),
        ),
        "send-new": lambda p: (
            "Produce",
            PRODUCE_VERSION[tv],
            produce((new, 0, p.batch(new, 0)), transactional_id=p.transactional_id),
        ),
        "init": lambda p: ("InitProducerId", 5, init(p.transactional_id)),
        "init-mine": lambda p: (
            "InitProducerId",
            5,
            init(p.transactional_id, 60_000, p.producer_id, p.producer_epoch),
        ),
    }


@script(properties="transactions")
def after_the_timeout(play: Play) -> None:
    coordinator_is_there(play)
    topics = {tv: play.topic(f"t{tv}") for tv in (1, 2)}
    news = {tv: play.topic(f"new{tv}") for tv in (1, 2)}
    group = play.name("g")
    group_coordinator_is_there(play, group)
    patient = Producer(play, "patient").init()
    patient.send(topics[1])
    idle = Producer(play, "idle", timeout_ms=1).init()
    late: dict[tuple[int, str], Producer] = {}
    for tv, topic in topics.items():
        for what in asked_first(play, topic, news[tv], tv):
            producer = Producer(play, f"{what}{tv}", tv=tv, timeout_ms=TIMEOUT_MS).init()
            producer.send(topic)
            producer.commit_offsets(group, (topic, 0, 7))
            late[tv, what] = producer

    def aborted() -> bool:
        names = [producer.transactional_id for producer in late.values()]
        answer = play.quietly("DescribeTransactions", 0, describe(*names))
        return all(each.transaction_state == "CompleteAbort" for each in answer.transaction_states)

    play.until("all have timed out", aborted)
    for (tv, what), producer in late.items():
        name = producer.transactional_id
        play.ask(f"what is known: {what}, V{tv}", "DescribeTransactions", 0, describe(name))
        api, version, fields = asked_first(play, topics[tv], news[tv], tv)[what](producer)
        play.ask(f"{what}, V{tv}", api, version, fields)
        rest(play, name)
        play.ask(f"{what} again, V{tv}", api, version, fields)
        rest(play, name)
        play.ask(f"what is known then: {what}, V{tv}", "DescribeTransactions", 0, describe(name))
        mine = end_txn(*producer.who, commit=False)
        play.ask(f"an abort at last: {what}, V{tv}", "EndTxn", END_VERSION[tv], mine)
        rest(play, name)
        play.ask(f"what is known at last: {what}, V{tv}", "DescribeTransactions", 0, describe(name))
    for producer in (patient, idle):
        asked = describe(producer.transactional_id)
        play.ask(f"what is known of the {producer.suffix} one", "DescribeTransactions", 0, asked)
    stable = fetch_offsets(8, group, [(topics[1], (0,)), (topics[2], (0,))]) | {"require_stable": True}
    play.ask("the offsets", "OffsetFetch", 8, stable)
    for tv in (1, 2):
        play.ask(f"the producers, V{tv}", "DescribeProducers", 0, producers((topics[tv], 0)))


@script(properties="transactions")
def a_reader_waits_for_the_timeout(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    producer = Producer(play, "p", timeout_ms=TIMEOUT_MS // 2).init()
    producer.send(topic, count=2)
    asked = fetch((topic, 0, 0), isolation_level=1, min_bytes=1, max_wait_ms=30_000)
    play.ask("a read_committed fetch", "Fetch", 12, asked, within_s=20)
    play.until(
        "it is aborted",
        lambda: (
            play.quietly("DescribeTransactions", 0, describe(producer.transactional_id))
            .transaction_states[0]
            .transaction_state
            == "CompleteAbort"
        ),
    )
    play.ask("what is known", "DescribeTransactions", 0, describe(producer.transactional_id))
    old = transactional(play, 2, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch)
    asked = produce((topic, 0, old), transactional_id=producer.transactional_id)
    play.ask("its next batch", "Produce", 12, asked)
    play.ask("the log", "Fetch", 12, fetch((topic, 0, 0), isolation_level=1))
