"""Produce with transactional batches: verification, the implicit add, sequences, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..batches import CONTROL, GZIP, TRANSACTIONAL, batch, record
from ..play import Play, script, versions
from ..requests import fetch, list_offsets, produce
from ..scene import Topic
from ..transaction_requests import (
    CONCURRENT_TRANSACTIONS,
    END_VERSION,
    PRODUCE_VERSION,
    STRANGER,
    Producer,
    add_partitions,
    coordinator_is_there,
    describe,
    end_txn,
    error_codes,
    producers,
    rest,
    transactional,
)
from .transactions_ending import relations
from .transactions_init import histories


def sent(play: Play, producer: Producer, topic: Topic, sequence: int = 0, **lies: Any) -> bytes:
    """Send a batch with a sequence that the script chooses."""
    mine = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    return transactional(play, sequence, **mine | lies)


@script
def every_state(play: Play) -> None:
    """Send to a partition that the transaction has or had, and to a new one."""
    coordinator_is_there(play)
    topic, new = play.topic("t"), play.topic("new")
    other = Producer(play, "other").init()
    for version in (9, 11, 12):
        for index, relation in enumerate(relations(other, other)):
            for state, producer in histories(play, topic, f"{index}-v{version}"):
                producer_id, epoch = relations(producer, other)[relation]
                for place in (topic, new):
                    known = producer.sequences.get((place.name, 0), 0) if relation == "the epoch" else 0
                    data = transactional(play, known, producer_id=producer_id, producer_epoch=epoch)
                    asked = produce((place, 0, data), transactional_id=producer.transactional_id)
                    case = f"{state}, {relation}, {'a new' if place is new else 'its'} partition (v{version})"
                    play.ask(case, "Produce", version, asked)
                play.ask(
                    f"what is known: {case}", "DescribeTransactions", 0, describe(producer.transactional_id)
                )
    for place in (topic, new):
        asked = fetch((place, 0, 0), isolation_level=1)
        play.ask(f"the log of {place.name}", "Fetch", 12, asked)
        play.ask(f"the producers of {place.name}", "DescribeProducers", 0, producers((place, 0)))


@script
def every_version(play: Play) -> None:
    coordinator_is_there(play)
    for version in versions("Produce"):
        topic = play.topic(f"t{version}", 4)
        tv = 2 if version >= 12 else 1
        producer = Producer(play, f"p{version}", tv=tv).init().init()
        name = producer.transactional_id

        def ask(
            case: str,
            *parts: tuple[int, bytes],
            by: str | None = name,
            topic: Topic = topic,
            version: int = version,
        ) -> None:
            asked = produce(*((topic, index, data) for index, data in parts), transactional_id=by)
            play.ask(f"{case} (v{version})", "Produce", version, asked)

        def data(
            sequence: int = 0, producer: Producer = producer, topic: Topic = topic, **lies: Any
        ) -> bytes:
            return sent(play, producer, topic, sequence, **lies)

        ask("not added", (0, data()))
        play.ask(f"what is known then (v{version})", "DescribeTransactions", 0, describe(name))
        producer.add((topic, 0), (topic, 1))
        ask("added", (0, data()))
        ask("the same again", (0, data()))
        ask("a gap", (0, data(5)))
        ask("the next", (0, data(1)))
        ask("one added, one not", (1, data()), (2, data()))
        ask("no transactional id", (0, data(2)), by=None)
        ask("an empty transactional id", (2, data(1)), by="")
        ask("another transactional id", (0, data(2)), by=play.name("other"))
        ask("another transactional id in a new partition", (3, data()), by=play.name("other"))
        ask("an old epoch", (0, data(3, producer_epoch=0)))
        ask("an old epoch in a new partition", (3, data(producer_epoch=0)))
        ask("a new epoch", (0, data(0, producer_epoch=7)))
        ask("a stranger", (0, data(producer_id=STRANGER)))
        ask("a stranger in a new partition", (3, data(producer_id=STRANGER)))
        ask("two producers", (0, data(3)), (1, data(producer_id=STRANGER)))
        ask("beside a plain batch", (0, data(3)), (3, batch()))
        ask("not transactional, while a transaction is open", (0, data(4, attributes=0)))
        ask("a control batch", (0, data(4, attributes=TRANSACTIONAL | CONTROL)))
        ask("a control batch of a plain producer", (0, batch(attributes=CONTROL)))
        ask("no producer id", (0, data(producer_id=-1)))
        ask("no sequence", (0, data(-1)))
        ask("compressed", (0, data(4, codec=GZIP)))
        play.ask(f"what is known (v{version})", "DescribeTransactions", 0, describe(name))
        producer.end(commit=version % 2 == 0)
        ask("after the end, on from there", (0, data(5)))
        ask("after the end, from 0", (0, data()))
        ask("after the end, a duplicate", (0, data(4, codec=GZIP)))
        play.ask(f"what is known after the end (v{version})", "DescribeTransactions", 0, describe(name))
        parts = [(topic, index, 0) for index in range(4)]
        play.ask(f"the logs (v{version})", "Fetch", 12, fetch(*parts, isolation_level=1))
        parts = [(topic, index) for index in range(4)]
        play.ask(f"the producers (v{version})", "DescribeProducers", 0, producers(*parts))


@script
def a_first_batch_with_a_wrong_sequence(play: Play) -> None:
    """The batch is verified, or added, before its sequence is checked. Its sequence is remembered."""
    coordinator_is_there(play)
    for version in (11, 12):
        topic = play.topic(f"t{version}")
        producer = Producer(play, f"p{version}", tv=1).init()
        name = producer.transactional_id
        for case, sequence in (
            ("sequence 5", 5),
            ("sequence 7", 7),
            ("sequence 3", 3),
            ("sequence 5 again", 5),
            ("sequence 0", 0),
            ("sequence 1", 1),
        ):
            asked = produce((topic, 0, sent(play, producer, topic, sequence)), transactional_id=name)
            play.ask(f"{case} (v{version})", "Produce", version, asked)
            play.ask(f"what is known: {case} (v{version})", "DescribeTransactions", 0, describe(name))
            if sequence == 7 and version == 11:
                producer.add((topic, 0))
        play.ask(f"the log (v{version})", "Fetch", 12, fetch((topic, 0, 0)))


@script
def late_batches(play: Play) -> None:
    """Batches of a transaction that has ended, from a client that hasn't learned of its end."""
    coordinator_is_there(play)
    ways: dict[str, Callable[[Producer], Any]] = {
        "committed": lambda producer: producer.end(),
        "aborted": lambda producer: producer.end(commit=False),
        "fenced": lambda producer: _fence(play, producer),
    }
    for tv, version in ((1, 9), (1, 11), (2, 12)):
        for how, finish in ways.items():
            topic = play.topic(f"{how}{version}")
            producer = Producer(play, f"{how}{version}", tv=tv).init()
            producer.send(topic, count=2)
            old = (producer.producer_id, producer.producer_epoch)
            finish(producer)
            for case, sequence, (producer_id, epoch) in (
                ("the next batch", 2, old),
                ("its first batch again", 0, old),
                ("the next of the epoch now", 2, (producer.producer_id, producer.producer_epoch)),
                ("the first of the epoch now", 0, (producer.producer_id, producer.producer_epoch)),
            ):
                data = transactional(play, sequence, 2, producer_id=producer_id, producer_epoch=epoch)
                asked = produce((topic, 0, data), transactional_id=producer.transactional_id)
                play.ask(f"{case}, {how} (v{version})", "Produce", version, asked)
            play.ask(f"the end, {how} (v{version})", "ListOffsets", 4, list_offsets((topic.name, 0, -1)))
            play.ask(f"the log, {how} (v{version})", "Fetch", 12, fetch((topic, 0, 0), isolation_level=1))
            play.ask(
                f"what is known, {how} (v{version})",
                "DescribeTransactions",
                0,
                describe(producer.transactional_id),
            )


def _fence(play: Play, producer: Producer) -> None:
    before = producer.producer_epoch
    producer.init()
    assert producer.producer_epoch > before


@script
def sequences_go_on_over_transactions(play: Play) -> None:
    coordinator_is_there(play)
    for tv, version in ((1, 11), (2, 12)):
        topic = play.topic(f"t{tv}")
        producer = Producer(play, f"p{tv}", tv=tv).init()
        for step, commit in enumerate((True, False, True)):
            producer.send(topic, count=2)
            producer.send(topic)
            case = f"transaction {step}, V{tv}"
            answer = play.ask(
                f"the end of {case}", "EndTxn", 5 if tv == 2 else 4, end_txn(*producer.who, commit=commit)
            )
            rest(play, producer.transactional_id)
            play.ask(f"the producers after {case}", "DescribeProducers", 0, producers((topic, 0)))
            if tv == 2:
                producer.producer_epoch = answer.producer_epoch
                producer.sequences.clear()
        producer.add((topic, 0))
        for case, sequence in (
            ("from 0", 0),
            ("on from there", producer.sequences.get((topic.name, 0), 0)),
        ):
            asked = produce(
                (topic, 0, sent(play, producer, topic, sequence)), transactional_id=producer.transactional_id
            )
            play.ask(f"{case} after the last transaction, V{tv}", "Produce", version, asked)
        play.ask(f"the log, V{tv}", "Fetch", 12, fetch((topic, 0, 0), isolation_level=1))


@script
def transactional_and_plain_by_turns(play: Play) -> None:
    """A producer with a transactional id may write outside of transactions if it has none open on that partition."""
    coordinator_is_there(play)
    topic = play.topic("t", 3)
    producer = Producer(play, "p").init()
    mine = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    plain = {"attributes": 0} | mine
    for case, partition, data in (
        ("plain before", 0, transactional(play, 0, **plain)),
        ("transactional behind it", 0, transactional(play, 1, **mine)),
        ("plain in the open transaction", 0, transactional(play, 2, **plain)),
        ("plain in another partition", 1, transactional(play, 0, **plain)),
        ("transactional there", 1, transactional(play, 1, **mine)),
        ("plain there again", 1, transactional(play, 2, **plain)),
    ):
        asked = produce((topic, partition, data), transactional_id=producer.transactional_id)
        play.ask(case, "Produce", 12, asked)
    producer.end()
    play.ask("the logs", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), isolation_level=1))


@script
def acks(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    producer = Producer(play, "p").init()
    for sequence, wanted in enumerate((1, -1)):
        data = sent(play, producer, topic, sequence)
        asked = produce((topic, 0, data), transactional_id=producer.transactional_id, acks=wanted)
        play.ask(f"acks {wanted}", "Produce", 12, asked)
    for sequence in (2, 9):
        data = sent(play, producer, topic, sequence)
        asked = produce((topic, 0, data), transactional_id=producer.transactional_id, acks=0)
        play.silent(f"acks 0, sequence {sequence}", "Produce", 11, asked)
    data = sent(play, producer, topic, 0)
    asked = produce((topic, 0, data), transactional_id=None, acks=0)
    play.silent("acks 0 without a transactional id", "Produce", 11, asked)
    play.ask("the end", "ListOffsets", 4, list_offsets((topic.name, 0, -1)))


@script
def compacted_topics_and_refused_records(play: Play) -> None:
    """A batch that is refused for its records has still been added to the transaction."""
    coordinator_is_there(play)
    topic = play.topic("t", cleanup_policy="compact", max_message_bytes="1000")
    for version in (11, 12):
        producer = Producer(play, f"p{version}", tv=1).init()
        mine = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        keyless = batch([record(key=None)], attributes=TRANSACTIONAL, base_sequence=0, **mine)
        for case, data in (
            ("no key", keyless),
            ("too large", transactional(play, 0, value=b"x" * 2_000, **mine)),
            ("a wrong CRC", transactional(play, 0, crc=1, **mine)),
            ("a good one", transactional(play, 0, **mine)),
        ):
            asked = produce((topic, 0, data), transactional_id=producer.transactional_id)
            play.ask(f"{case} (v{version})", "Produce", version, asked)
            play.ask(
                f"what is known: {case} (v{version})",
                "DescribeTransactions",
                0,
                describe(producer.transactional_id),
            )
        asked = add_partitions(*producer.who, (topic, 0), verify_only=True)
        play.ask(f"verified (v{version})", "AddPartitionsToTxn", 5, asked)


@script
def right_behind_an_end(play: Play) -> None:
    """The next transaction begins while the end of the last one may still be in progress."""
    coordinator_is_there(play)
    topic = play.topic("t", 2)
    for tv in (1, 2):
        producer = Producer(play, f"p{tv}", tv=tv).init()
        name, index = producer.transactional_id, tv - 1
        for step in range(6):
            label = f"transaction {step}, V{tv}"
            if tv == 1:
                adding = add_partitions(*producer.who, (topic, index))
                play.ask_until(f"adding: {label}", _not_early, "AddPartitionsToTxn", 3, adding)
            data = producer.batch(topic, index)
            asked = produce((topic, index, data), transactional_id=name)
            play.ask_until(f"a batch: {label}", _not_early, "Produce", PRODUCE_VERSION[tv], asked)
            ending = end_txn(*producer.who, commit=step % 2 == 0)
            play.ask_until(f"the end: {label}", _not_early, "EndTxn", END_VERSION[tv], ending)
            if tv == 2:
                producer.producer_epoch += 1
                producer.sequences.clear()
        rest(play, name)
        play.ask(f"the log, V{tv}", "Fetch", 12, fetch((topic, index, 0), isolation_level=1))


def _not_early(answer: Any) -> bool:
    return CONCURRENT_TRANSACTIONS not in error_codes(answer)
