"""Answers while an end is in progress: Prepare*, held there for good.

A client sends a marker of a later epoch. So the partition refuses the coordinator's marker, and the coordinator stops
sending it. This script compares CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..play import Play, script
from ..requests import fetch, produce
from ..scene import Topic
from ..transaction_requests import (
    END_VERSION,
    Producer,
    add_offsets,
    add_partitions,
    coordinator_is_there,
    describe,
    end_txn,
    init,
    marker,
    markers,
    producers,
    transactional,
    txn_commit,
)
from .transactions_ending import relations


def held(play: Play, topic: Topic, suffix: str, *, tv: int, commit: bool) -> Producer:
    producer = Producer(play, suffix, tv=tv).init().init().init()
    producer.send(topic)
    later = marker(producer.producer_id, producer.producer_epoch + 2, (topic, 0))
    play.quietly("WriteTxnMarkers", 1, markers(later))
    play.quietly("EndTxn", END_VERSION[tv], end_txn(*producer.who, commit=commit))
    return producer


@script
def every_request(play: Play) -> None:
    coordinator_is_there(play)
    group = play.name("g")
    group_coordinator_is_there(play, group)
    new = play.topic("new")
    other = Producer(play, "other").init()
    for tv in (1, 2):
        for commit in (True, False):
            suffix = f"{'commit' if commit else 'abort'}{tv}"
            topic = play.topic(suffix)
            producer = held(play, topic, suffix, tv=tv, commit=commit)
            name = producer.transactional_id
            label = f"of a V{tv} {'commit' if commit else 'abort'}"
            for relation, (producer_id, epoch) in relations(producer, other).items():
                who = (name, producer_id, epoch)
                for version in (1, 4, 5):
                    for verb in (True, False):
                        case = f"{'commit' if verb else 'abort'}, {relation}, {label} (v{version})"
                        play.ask(case, "EndTxn", version, end_txn(*who, commit=verb))
                if (producer_id == -1) == (epoch == -1):
                    case = f"a new epoch, {relation}, {label}"
                    play.ask(case, "InitProducerId", 5, init(name, 60_000, producer_id, epoch))
                for place in (topic, new):
                    where = f"{'a new' if place is new else 'its'} partition, {relation}, {label}"
                    for version in (1, 3, 5):
                        asked = add_partitions(*who, (place, 0))
                        play.ask(f"adding {where} (v{version})", "AddPartitionsToTxn", version, asked)
                    asked = add_partitions(*who, (place, 0), verify_only=True)
                    play.ask(f"verifying {where}", "AddPartitionsToTxn", 5, asked)
                    # Kafka retries for 100 ms before it answers v12, so only some cases ask in v12.
                    for version in (9, 11, 12) if relation in ("the epoch", "the next") else (9, 11):
                        data = transactional(play, 0, producer_id=producer_id, producer_epoch=epoch)
                        asked = produce((place, 0, data), transactional_id=name)
                        play.ask(f"a batch to {where} (v{version})", "Produce", version, asked)
                asked = add_offsets(*who, group)
                play.ask(f"adding offsets, {relation}, {label}", "AddOffsetsToTxn", 3, asked)
                for version in (2, 4, 5) if relation == "the epoch" else (2, 4):
                    asked = txn_commit(name, group, producer_id, epoch, (topic, 0, 1))
                    case = f"an offset, {relation}, {label} (v{version})"
                    play.ask(case, "TxnOffsetCommit", version, asked)
            play.ask(f"what is known {label}", "DescribeTransactions", 0, describe(name))
            play.ask(f"the log {label}", "Fetch", 12, fetch((topic, 0, 0), isolation_level=1))
            play.ask(f"the producers {label}", "DescribeProducers", 0, producers((topic, 0)))
    for version in (0, 1, 2):
        for state in ("PrepareCommit", "PrepareAbort"):
            asked = {"state_filters": [state]}
            play.ask(f"those in {state} (v{version})", "ListTransactions", version, asked)
