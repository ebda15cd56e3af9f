"""A broker that forgets soon: unused transactional ids leave tombstones, and idle producers are forgotten."""

from __future__ import annotations

from typing import Any

from ..play import Play, script
from ..requests import produce
from ..transaction_log import ends, written_since
from ..transaction_requests import (
    Producer,
    add_partitions,
    coordinator_is_there,
    describe,
    end_txn,
    init,
    producers,
    state_of,
    transactional,
)


@script(properties="expiring")
def transactional_ids(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    start = ends(play)
    made: dict[str, Producer] = {}
    for tv in (1, 2):
        for what in ("empty", "committed", "aborted", "ongoing"):
            producer = made[f"{what}, V{tv}"] = Producer(play, f"{what}{tv}", tv=tv).init()
            if what != "empty":
                producer.send(topic)
            if what in ("committed", "aborted"):
                producer.end(commit=what == "committed")
    for label, producer in made.items():
        name = producer.transactional_id
        if "ongoing" not in label:
            play.until(f"{label} is forgotten", lambda name=name: state_of(play, name) == "")
        play.ask(f"what is known: {label}", "DescribeTransactions", 0, describe(name))
        for case, api, version, fields in asked_of(producer, topic):
            if "ongoing" not in label:
                play.ask(f"{case}: {label}", api, version, fields)
    for number, record in enumerate(written_since(play, start)):
        play.note(f"record {number}", record)
    for label, producer in made.items():
        asked = init(producer.transactional_id, 60_000, producer.producer_id, producer.producer_epoch)
        if "ongoing" not in label:
            play.ask(f"it comes back: {label}", "InitProducerId", 5, asked)


def asked_of(producer: Producer, topic: Any) -> list[tuple[str, str, int, Any]]:
    return [
        ("an end", "EndTxn", 5, end_txn(*producer.who, commit=True)),
        ("adding", "AddPartitionsToTxn", 3, add_partitions(*producer.who, (topic, 0))),
        (
            "a batch",
            "Produce",
            12,
            produce(
                (
                    topic,
                    0,
                    transactional(
                        producer.play,
                        0,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.producer_epoch,
                    ),
                ),
                transactional_id=producer.transactional_id,
            ),
        ),
    ]


@script(properties="expiring")
def producers_of_a_partition(play: Play) -> None:
    """A producer isn't forgotten while it has a transaction open there. The time of a marker counts, too."""
    coordinator_is_there(play)
    topic = play.topic("t", 2)
    ended, ongoing = (Producer(play, name, tv=1).init() for name in ("ended", "ongoing"))
    for producer in (ended, ongoing):
        producer.send(topic, base_timestamp=play.now_ms - 3_600_000)
    play.ask("while both are open", "DescribeProducers", 0, producers((topic, 0)))
    ended.end()

    def forgotten() -> bool:
        answer = play.quietly("DescribeProducers", 0, producers((topic, 0)))
        return len(answer.topics[0].partitions[0].active_producers) < 2

    play.until("the idle one is forgotten", forgotten)
    play.ask("once one has ended", "DescribeProducers", 0, producers((topic, 0)))
    for sequence in (7, 8):
        mine = {"producer_id": ended.producer_id, "producer_epoch": ended.producer_epoch}
        data = transactional(play, sequence, attributes=0, **mine)
        play.ask(f"plain from {sequence} on", "Produce", 9, produce((topic, 0, data)))
