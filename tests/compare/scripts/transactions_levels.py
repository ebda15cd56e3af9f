"""The levels 0 and 1 of transaction.version: the stored records, and the answers to clients of either version.

At the end the script sets the broker back to level 2.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..play import Play, script
from ..requests import fetch, produce
from ..transaction_log import ends, written_since
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
)
from .quorum import SAFE_DOWNGRADE, UPGRADE, features

CLIENT = {"client_software_name": "compare", "client_software_version": "1"}


def set_level(play: Play, level: int) -> None:
    """Set the level, and wait until it is known."""

    def known() -> bool:
        found = play.quietly("ApiVersions", 3, CLIENT).finalized_features
        levels = [each.max_version_level for each in found if each.name == "transaction.version"]
        return levels == ([level] if level else [])

    if not known():
        for kind in (SAFE_DOWNGRADE, UPGRADE):
            play.quietly("UpdateFeatures", 1, features(("transaction.version", level, kind)))
        play.until(f"transaction.version is {level}", known)


@contextlib.contextmanager
def at_level(play: Play, level: int) -> Iterator[None]:
    set_level(play, level)
    try:
        yield
    finally:
        set_level(play, 2)


@script(properties="transactions")
def transactions_at_each_level(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t", 6)
    for level in (0, 1, 2):
        start = ends(play)
        with at_level(play, level):
            for tv in (1, 2) if level else (1,):
                label = f"V{tv} at level {level}"
                index = 2 * level + tv - 1
                producer = Producer(play, f"p{tv}-{level}", tv=tv).init()
                name = producer.transactional_id
                for commit in (True, False):
                    verb = "commit" if commit else "abort"
                    producer.add((topic, index))
                    data = producer.batch(topic, index)
                    asked = produce((topic, index, data), transactional_id=name)
                    play.ask(f"a batch, {verb}, {label}", "Produce", PRODUCE_VERSION[tv], asked)
                    play.ask(f"open, {verb}, {label}", "DescribeTransactions", 0, describe(name))
                    asked = end_txn(*producer.who, commit=commit)
                    answer = play.ask(f"the {verb}, {label}", "EndTxn", END_VERSION[tv], asked)
                    rest(play, name)
                    play.ask(f"its retry, {verb}, {label}", "EndTxn", END_VERSION[tv], asked)
                    rest(play, name)
                    play.ask(f"ended, {verb}, {label}", "DescribeTransactions", 0, describe(name))
                    if tv == 2:
                        producer.producer_epoch = answer.producer_epoch
                        producer.sequences.clear()
                asked = end_txn(*producer.who, commit=False)
                play.ask(f"nothing to abort, {label}", "EndTxn", END_VERSION[tv], asked)
                rest(play, name)
                play.ask(f"what is known, {label}", "DescribeTransactions", 0, describe(name))
                play.ask(f"a new instance, {label}", "InitProducerId", 5, init(name))
                rest(play, name)
                play.ask(f"a new instance again, {label}", "InitProducerId", 5, init(name))
                asked = fetch((topic, index, 0), isolation_level=1)
                play.ask(f"the log, {label}", "Fetch", 12, asked)
                play.ask(f"the producers, {label}", "DescribeProducers", 0, producers((topic, index)))
        for number, found in enumerate(written_since(play, start)):
            play.note(f"record {number} at level {level}", found)


@script(properties="transactions")
def an_end_of_version_2_at_level_0(play: Play) -> None:
    """The end is refused, except for aborts of transactions that aren't open, which end nothing."""
    coordinator_is_there(play)
    topic = play.topic("t")
    with at_level(play, 0):
        for state in ("empty", "committed", "aborted", "ongoing"):
            for commit in (True, False):
                label = f"{'commit' if commit else 'abort'}, {state}"
                producer = Producer(play, label.replace(", ", "-"), tv=1).init()
                if state != "empty":
                    producer.send(topic)
                if state in ("committed", "aborted"):
                    producer.end(commit=state == "committed")
                name = producer.transactional_id
                asked = end_txn(*producer.who, commit=commit)
                play.ask(label, "EndTxn", 5, asked)
                play.ask(f"what is known: {label}", "DescribeTransactions", 0, describe(name))
                # From here on, Kafka treats the refused end as pending.
                play.ask(f"then again: {label}", "EndTxn", 5, asked)
                play.ask(f"then by v4: {label}", "EndTxn", 4, asked)
                rest(play, name)
                play.ask(f"then what is known: {label}", "DescribeTransactions", 0, describe(name))
                play.ask(f"then a new instance: {label}", "InitProducerId", 5, init(name))


@script(properties="transactions")
def implicit_adds_at_each_level(play: Play) -> None:
    """The request's version decides how a batch is verified, not the level."""
    coordinator_is_there(play)
    topic = play.topic("t", 6)
    for level in (0, 1, 2):
        with at_level(play, level):
            for tv in (1, 2):
                index = 2 * level + tv - 1
                producer = Producer(play, f"p{tv}-{level}", tv=tv).init()
                name = producer.transactional_id
                data = producer.batch(topic, index)
                asked = produce((topic, index, data), transactional_id=name)
                label = f"V{tv} at level {level}"
                play.ask(f"a batch, {label}", "Produce", PRODUCE_VERSION[tv], asked)
                play.ask(f"what is known, {label}", "DescribeTransactions", 0, describe(name))


@script(properties="transactions")
def fences_and_level_changes_in_the_middle(play: Play) -> None:
    """A transaction begins at one level and ends at another."""
    coordinator_is_there(play)
    topic = play.topic("t", 9)
    for index, (before, after) in enumerate((x, y) for x in (0, 1, 2) for y in (0, 1, 2)):
        start = ends(play)
        with at_level(play, before):
            ended, fenced = (
                Producer(play, f"{what}{before}{after}", tv=1).init() for what in ("ended", "fenced")
            )
            for producer in (ended, fenced):
                producer.send(topic, index)
        label = f"from level {before} to {after}"
        with at_level(play, after):
            asked = end_txn(*ended.who, commit=True)
            play.ask(f"the end, {label}", "EndTxn", 4, asked)
            rest(play, ended.transactional_id)
            asked = init(fenced.transactional_id)
            play.ask(f"the fence, {label}", "InitProducerId", 5, asked)
            rest(play, fenced.transactional_id)
            play.ask(f"and again, {label}", "InitProducerId", 5, asked)
            asked = end_txn(*ended.who, commit=True)
            play.ask(f"the end by v5, {label}", "EndTxn", 5, asked)
            play.ask(f"the log, {label}", "Fetch", 12, fetch((topic, index, 0), isolation_level=1))
            asked = add_partitions(*ended.who, (topic, index))
            play.ask(f"once more, {label}", "AddPartitionsToTxn", 3, asked)
            names = (ended.transactional_id, fenced.transactional_id)
            play.ask(f"what is known, {label}", "DescribeTransactions", 0, describe(*names))
        for number, found in enumerate(written_since(play, start)):
            play.note(f"record {number} {label}", found)
