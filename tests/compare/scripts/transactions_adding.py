"""AddPartitionsToTxn in the version for clients (v0 to v3) and the one for brokers (v4 on), and AddOffsetsToTxn."""

from __future__ import annotations

from typing import Any

from ..play import Play, script, versions
from ..requests import unknown
from ..transaction_requests import (
    STRANGER,
    Producer,
    add_offsets,
    add_partitions,
    coordinator_is_there,
    describe,
    rest,
    transaction,
)
from .transactions_ending import relations
from .transactions_init import histories


@script
def every_state(play: Play) -> None:
    coordinator_is_there(play)
    topic, new = play.topic("t"), play.topic("new", 2)
    other = Producer(play, "other").init()
    for version in (1, 3, 5):
        for index, relation in enumerate(relations(other, other)):
            for state, producer in histories(play, topic, f"{index}-v{version}"):
                who = (producer.transactional_id, *relations(producer, other)[relation])
                case = f"{state}, {relation} (v{version})"
                if version == 5:
                    # The broker verifies all partitions or none, though t-0 may be in the transaction already.
                    verified = add_partitions(*who, (topic, 0), (new, 1), verify_only=True)
                    play.ask(f"verified: {case}", "AddPartitionsToTxn", 5, verified)
                asked = add_partitions(*who, (topic, 0), (new, 1))
                play.ask(case, "AddPartitionsToTxn", version, asked)
                if version == 5:
                    play.ask(f"verified then: {case}", "AddPartitionsToTxn", 5, verified)
                play.ask(
                    f"what is known: {case}", "DescribeTransactions", 0, describe(producer.transactional_id)
                )


@script
def partitions_that_are_not_there(play: Play) -> None:
    coordinator_is_there(play)
    a, b = play.topic("a", 2), play.topic("b")
    nowhere = unknown(play.name("nowhere"))
    for version in versions("AddPartitionsToTxn"):
        producer = Producer(play, f"p{version}", tv=1).init()
        for case, parts in {
            "an unknown topic": [(nowhere, 0)],
            "an unknown topic among others": [(a, 0), (nowhere, 0), (b, 0)],
            "an unknown partition": [(a, 2)],
            "an unknown partition among others": [(b, 0), (a, 1), (a, 2), (a, 0)],
            "a negative partition": [(a, -1), (a, 0)],
            "an unknown topic and an unknown partition": [(nowhere, 1), (nowhere, 0), (a, 7), (b, 0), (a, 1)],
            "a partition twice": [(a, 0), (a, 0)],
            "a topic twice": [(a, 0), (b, 0), (a, 1)],
            "a topic without a name": [("", 0)],
            "a topic with a bad name": [("a/b", 0)],
            "an internal topic": [("__transaction_state", 0)],
            "all of them": [(b, 0), (a, 1), (a, 0)],
        }.items():
            asked = add_partitions(*producer.who, *parts)
            play.ask(f"{case} (v{version})", "AddPartitionsToTxn", version, asked)
            play.ask(
                f"what is known: {case} (v{version})",
                "DescribeTransactions",
                0,
                describe(producer.transactional_id),
            )
        for case, who in {
            "an unknown topic of a wrong epoch": (producer.transactional_id, producer.producer_id, 7),
            "an unknown topic of an unknown id": (play.name("unknown"), STRANGER, 0),
            "an unknown topic of no id": ("", STRANGER, 0),
        }.items():
            asked = add_partitions(*who, (nowhere, 0), (a, 0))
            play.ask(f"{case} (v{version})", "AddPartitionsToTxn", version, asked)
        producer.end()


@script
def who_is_not_known(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t", 2)
    for version in versions("AddPartitionsToTxn"):
        for case, name in {"an unknown id": play.name("unknown"), "no id": ""}.items():
            for verify_only in (False, True) if version >= 4 else (False,):
                how = ", verified" if verify_only else ""
                asked = add_partitions(name, STRANGER, 0, (topic, 0), (topic, 1), verify_only=verify_only)
                play.ask(f"{case}{how} (v{version})", "AddPartitionsToTxn", version, asked)
    for version in versions("AddOffsetsToTxn"):
        for case, name in {"an unknown id": play.name("unknown"), "no id": ""}.items():
            asked = add_offsets(name, STRANGER, 0, play.name("g"))
            play.ask(f"offsets of {case} (v{version})", "AddOffsetsToTxn", version, asked)


@script
def nothing_to_add(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    empty: Any = {"name": topic.name, "partitions": []}
    for version in versions("AddPartitionsToTxn"):
        for case, topics in {"no topics": [], "a topic without partitions": [empty]}.items():
            producer = Producer(play, f"{case}{version}".replace(" ", "-"), tv=1).init()
            for verify_only in (True, False) if version >= 4 else (False,):
                asked = add_partitions(*producer.who, verify_only=verify_only)
                asked["v3_and_below_topics"] = asked["transactions"][0]["topics"] = topics
                what = f"{case}{', verified' if verify_only else ''} (v{version})"
                play.ask(what, "AddPartitionsToTxn", version, asked)
                play.ask(
                    f"what is known: {what}", "DescribeTransactions", 0, describe(producer.transactional_id)
                )


@script
def several_transactions_at_once(play: Play) -> None:
    """In the version for brokers, each transaction is answered separately, in any order."""
    coordinator_is_there(play)
    topic = play.topic("t", 3)
    nowhere = unknown(play.name("nowhere"))
    for version in (4, 5):
        good, better, fenced = (Producer(play, f"{name}{version}", tv=1).init() for name in "abc")
        good.add((topic, 0))
        name, producer_id, epoch = fenced.who
        asked = {
            "transactions": [
                transaction(*good.who, (topic, 0), (topic, 1), verify_only=True),
                transaction(*better.who, (topic, 0), (topic, 2)),
                transaction(name, producer_id, epoch + 1, (topic, 0)),
                transaction(play.name("unknown"), STRANGER, 0, (topic, 0), verify_only=True),
                transaction("", STRANGER, 0, (topic, 1)),
            ]
        }
        play.ask(f"five at once (v{version})", "AddPartitionsToTxn", version, asked)
        twice = {"transactions": [transaction(*good.who, (topic, 1)), transaction(*better.who, (nowhere, 0))]}
        play.ask(f"one good, one bad (v{version})", "AddPartitionsToTxn", version, twice)
        for producer in (good, better, fenced):
            play.ask(
                f"what is known of {producer.suffix}",
                "DescribeTransactions",
                0,
                describe(producer.transactional_id),
            )


@script
def offsets_in_every_state(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    other = Producer(play, "other").init()
    group = play.name("g")
    for version in (1, 4):
        for index, relation in enumerate(relations(other, other)):
            for state, producer in histories(play, topic, f"{index}-v{version}"):
                who = (producer.transactional_id, *relations(producer, other)[relation])
                case = f"{state}, {relation} (v{version})"
                play.ask(case, "AddOffsetsToTxn", version, add_offsets(*who, group))
                play.ask(
                    f"what is known: {case}", "DescribeTransactions", 0, describe(producer.transactional_id)
                )


@script
def offsets_of_several_groups(play: Play) -> None:
    """The partition of `__consumer_offsets` that stores the group is added."""
    coordinator_is_there(play)
    for version in versions("AddOffsetsToTxn"):
        producer = Producer(play, f"p{version}", tv=1).init()
        for group in (play.name("a"), play.name("b"), play.name("c"), play.name("d"), "", "ü", "l" * 3_000):
            case = f"group {group[:60]!r} (v{version})"
            play.ask(case, "AddOffsetsToTxn", version, add_offsets(*producer.who, group))
            play.ask(f"what is known: {case}", "DescribeTransactions", 0, describe(producer.transactional_id))
        producer.end(commit=False)
        rest(play, producer.transactional_id)
