"""EndTxn: every state, verb and epoch, in transaction versions 1 (up to v4) and 2 (v5)."""

from __future__ import annotations

from typing import Any

from ..play import Play, script, versions
from ..requests import fetch
from ..transaction_requests import (
    STRANGER,
    Producer,
    add_partitions,
    coordinator_is_there,
    describe,
    end_txn,
    producers,
    rest,
)
from .transactions_init import histories


def relations(producer: Producer, other: Producer) -> dict[str, tuple[int, int]]:
    mine, epoch = producer.producer_id, producer.producer_epoch
    return {
        "the epoch": (mine, epoch),
        "the epoch before": (mine, epoch - 1),
        "two before": (mine, epoch - 2),
        "the next": (mine, epoch + 1),
        "two on": (mine, epoch + 2),
        "no epoch": (mine, -1),
        "another's id": (other.producer_id, epoch),
        "no id": (-1, -1),
    }


@script
def every_state(play: Play) -> None:
    """Each cell has its own transactional id. Each request is sent twice, because a retry is a separate case."""
    coordinator_is_there(play)
    topic = play.topic("t")
    other = Producer(play, "other").init()
    for version in (1, 4, 5):
        for commit in (True, False):
            verb = "commit" if commit else "abort"
            for index, relation in enumerate(relations(other, other)):
                for state, producer in histories(play, topic, f"{verb}-{index}-v{version}"):
                    producer_id, epoch = relations(producer, other)[relation]
                    asked = end_txn(producer.transactional_id, producer_id, epoch, commit=commit)
                    case = f"{verb}, {state}, {relation} (v{version})"
                    play.ask(case, "EndTxn", version, asked)
                    rest(play, producer.transactional_id)
                    play.ask(f"again: {case}", "EndTxn", version, asked)
                    rest(play, producer.transactional_id)
                    play.ask(
                        f"what is known: {case}",
                        "DescribeTransactions",
                        0,
                        describe(producer.transactional_id),
                    )
    play.ask("the log", "Fetch", 12, fetch((topic, 0, 0), isolation_level=1))
    play.ask("the producers", "DescribeProducers", 0, producers((topic, 0)))


@script
def who_is_not_known(play: Play) -> None:
    coordinator_is_there(play)
    for version in versions("EndTxn"):
        for commit in (True, False):
            for case, name in {"an unknown id": play.name("unknown"), "no id": ""}.items():
                asked = end_txn(name, STRANGER, 0, commit=commit)
                play.ask(f"{case}, {'commit' if commit else 'abort'} (v{version})", "EndTxn", version, asked)


@script
def every_version(play: Play) -> None:
    """An end, its retry, the other verb, an old epoch, and the next transaction, in every version."""
    coordinator_is_there(play)
    topic = play.topic("t")
    for version in versions("EndTxn"):
        for commit in (True, False):
            verb = "commit" if commit else "abort"
            producer = Producer(play, f"{verb}{version}", tv=2 if version > 4 else 1).init().init()
            name = producer.transactional_id
            producer.send(topic, count=2)

            def ask(
                case: str, *, commit: bool, version: int = version, verb: str = verb, by: Any = None
            ) -> Any:
                answer = play.ask(
                    f"{case}: {verb} (v{version})", "EndTxn", version, end_txn(*by, commit=commit)
                )
                rest(play, by[0])
                return answer

            old = producer.who
            ask("an old epoch", commit=commit, by=(name, old[1], old[2] - 1))
            answer = ask("the end", commit=commit, by=old)
            ask("its retry", commit=commit, by=old)
            ask("the other verb", commit=not commit, by=old)
            new = (name, answer.producer_id, answer.producer_epoch) if version > 4 else old
            ask("nothing to end", commit=True, by=new)
            ask("nothing to abort", commit=False, by=new)
            play.ask(f"what is known: {verb} (v{version})", "DescribeTransactions", 0, describe(name))
    play.ask("the log", "Fetch", 12, fetch((topic, 0, 0), isolation_level=1))


@script
def transactions_without_records(play: Play) -> None:
    """Markers go to the partitions that were added, whether anything was written to them or not."""
    coordinator_is_there(play)
    topic = play.topic("t", 3)
    for tv, version in ((1, 4), (2, 5)):
        for commit in (True, False):
            producer = Producer(play, f"p{tv}{commit}", tv=tv).init()
            case = f"V{tv}, {'commit' if commit else 'abort'}"
            play.ask(f"no topics: {case}", "AddPartitionsToTxn", 3, add_partitions(*producer.who))
            play.ask(f"ongoing: {case}", "DescribeTransactions", 0, describe(producer.transactional_id))
            producer.end(commit=commit)
            producer.add((topic, 0), (topic, 2))
            producer.end(commit=commit)
            play.ask(f"ended: {case}", "DescribeTransactions", 0, describe(producer.transactional_id))
            again = end_txn(*producer.who, commit=False)
            play.ask(f"an abort of nothing: {case}", "EndTxn", version, again)
            rest(play, producer.transactional_id)
            play.ask(f"at last: {case}", "DescribeTransactions", 0, describe(producer.transactional_id))
    play.ask("the logs", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), (topic, 2, 0), isolation_level=1))
    play.ask("the producers", "DescribeProducers", 0, producers((topic, 0), (topic, 1), (topic, 2)))


@script
def both_versions_by_turns(play: Play) -> None:
    """A client may change its transaction version between two transactions."""
    coordinator_is_there(play)
    topic = play.topic("t", 2)
    producer = Producer(play, "p").init()
    for step, (tv, commit) in enumerate(((1, True), (2, True), (1, False), (2, False), (2, True), (1, True))):
        producer.tv = tv
        producer.send(topic, step % 2)
        producer.send(topic, 1)
        play.ask(f"before end {step}", "DescribeTransactions", 0, describe(producer.transactional_id))
        answer = play.ask(f"end {step}", "EndTxn", 5 if tv == 2 else 4, end_txn(*producer.who, commit=commit))
        rest(play, producer.transactional_id)
        if tv == 2:
            producer.producer_epoch = answer.producer_epoch
            producer.sequences.clear()
        play.ask(f"after end {step}", "DescribeTransactions", 0, describe(producer.transactional_id))
    # A transaction that began in one version ends in the other.
    for tv, version in ((1, 5), (2, 4)):
        producer.tv = tv
        producer.send(topic)
        answer = play.ask(
            f"begun as V{tv}, ended by v{version}", "EndTxn", version, end_txn(*producer.who, commit=True)
        )
        rest(play, producer.transactional_id)
        if version == 5:
            producer.producer_epoch = answer.producer_epoch
            producer.sequences.clear()
    play.ask("the logs", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), isolation_level=1))
    play.ask("the producers", "DescribeProducers", 0, producers((topic, 0), (topic, 1)))


@script
def ends_that_come_late(play: Play) -> None:
    """The end of one transaction is delivered again during the next. V1 mistakes it for that one's (KAFKA-17754)."""
    coordinator_is_there(play)
    for tv, version in ((1, 4), (2, 5)):
        for commit in (True, False):
            for late in (True, False):
                label = f"{'commit' if late else 'abort'} after a V{tv} {'commit' if commit else 'abort'}"
                topic = play.topic(label.replace(" ", "-"))
                producer = Producer(play, label.replace(" ", "-"), tv=tv).init()
                producer.send(topic)
                before = producer.who
                producer.end(commit=commit)
                producer.send(topic)
                play.ask(f"the {label}", "EndTxn", version, end_txn(*before, commit=late))
                rest(play, producer.transactional_id)
                play.ask(f"its own end, {label}", "EndTxn", version, end_txn(*producer.who, commit=True))
                rest(play, producer.transactional_id)
                asked = describe(producer.transactional_id)
                play.ask(f"what is known, {label}", "DescribeTransactions", 0, asked)
                play.ask(f"the log, {label}", "Fetch", 12, fetch((topic, 0, 0), isolation_level=1))
