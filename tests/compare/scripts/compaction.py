"""Random histories of a compacted partition, from seeds, and the records left after each of three passes.

There are few keys, beside refused null keys, and some values are null. Producers are plain, idempotent and
transactional, of both versions. They commit, abort, come back with another epoch, and leave transactions open. A few
histories are recorded. More are played live to both brokers with

    COMPARE_MORE_HISTORIES=6-105 python -m tests.compare both 'compaction/more*'
"""

from __future__ import annotations

import os
import random

from ..batches import CODECS, TRANSACTIONAL, batch, record
from ..compacting import MINUTE_MS, compact, look
from ..play import Play, script
from ..requests import list_offsets, produce
from ..scene import Topic
from ..transaction_requests import PRODUCE_VERSION, Producer, coordinator_is_there, init
from ..waiting import ScriptStuck

SEEDS = 6
MORE = os.environ.get("COMPARE_MORE_HISTORIES", "")
STEPS = 40


class Idempotent:
    """A producer without transactions."""

    def __init__(self, play: Play) -> None:
        coordinator_is_there(play)
        answer = play.quietly("InitProducerId", 4, init(None))
        self.producer_id, self.producer_epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        play.names.name("producer id", self.producer_id)


class History:
    """One topic and its writers."""

    def __init__(self, play: Play, seed: int) -> None:
        self.play = play
        self.seed = seed
        self.chance = random.Random(seed)
        chance = self.chance
        self.keys = chance.choice((3, 8, 20))
        configs = {
            "internal_segment_bytes": str(chance.choice((400, 900, 2000))),
            "delete_retention_ms": chance.choice(("0", "86400000")),
            "index_interval_bytes": str(chance.choice((0, 300, 4096))),
        }
        self.topic: Topic = play.topic(
            f"t{seed}",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="1.0",
            file_delete_delay_ms="0",
            **configs,
        )
        self.transactional = [
            Producer(play, f"p{seed}{letter}", tv=chance.choice((1, 2))).init() for letter in "ab"
        ]
        self.open: set[Producer] = set()
        self.idempotent = Idempotent(play)
        self.step = 0

    def records(self) -> list[bytes]:
        chance = self.chance
        return [
            record(
                None
                if chance.random() < 0.15
                else b"%d.%d " % (self.step, index) + b"v" * chance.choice((0, 5, 60)),
                key=b"" if chance.random() < 0.03 else b"k%d" % chance.randrange(self.keys),
                offset_delta=index,
                headers=[(b"h", b"x")] if chance.random() < 0.1 else (),
            )
            for index in range(chance.randrange(1, 6))
        ]

    @property
    def now_ms(self) -> int:
        return self.play.now_ms + (self.step - 1000) * MINUTE_MS

    def plain(self) -> None:
        codec = CODECS[self.chance.choice(("none", "none", "none", "gzip", "snappy", "lz4", "zstd"))]
        records = self.records()
        payload = None if codec else b"".join(records)
        self.play.write(
            self.topic.name, batch(records, codec=codec, base_timestamp=self.now_ms, payload=payload)
        )

    def idempotently(self) -> None:
        mine, records = self.idempotent, self.records()
        self.play.write(
            self.topic.name,
            batch(
                records,
                base_timestamp=self.now_ms,
                producer_id=mine.producer_id,
                producer_epoch=mine.producer_epoch,
                base_sequence=mine.sequence,
            ),
        )
        mine.sequence += len(records)

    def transact(self) -> None:
        producer = self.chance.choice(self.transactional)
        if producer not in self.open and producer.tv == 1:
            producer.add((self.topic, 0))
        self.open.add(producer)
        records = self.records()
        key = (self.topic.name, 0)
        sequence = producer.sequences.get(key, 0)
        producer.sequences[key] = sequence + len(records)
        data = batch(
            records,
            attributes=TRANSACTIONAL,
            base_timestamp=self.now_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
        )
        asked = produce((self.topic, 0, data), transactional_id=producer.transactional_id)
        answer = self.play.quietly("Produce", PRODUCE_VERSION[producer.tv], asked)
        error_code = answer.responses[0].partition_responses[0].error_code
        if error_code:
            raise ScriptStuck(f"a transactional batch: {error_code}")

    def end(self) -> None:
        if self.open:
            producer = self.chance.choice(sorted(self.open, key=lambda each: each.suffix))
            self.open.discard(producer)
            producer.end(commit=self.chance.random() < 0.5)

    def come_back(self) -> None:
        """Start a new instance, which aborts an open transaction."""
        producer = self.chance.choice(self.transactional)
        self.open.discard(producer)
        producer.crash().init()

    def write(self, steps: int) -> None:
        acts = {self.plain: 8, self.idempotently: 3, self.transact: 9, self.end: 5, self.come_back: 1}
        for _ in range(steps):
            self.step += 1
            (act,) = self.chance.choices(list(acts), list(acts.values()))
            act()

    def end_all(self) -> None:
        while self.open:
            self.end()

    def compacted(self, number: int) -> None:
        bound = compact(self.play, self.topic)
        when = f"{self.seed}.{number}"
        self.play.note(f"{when}: compacted up to", bound)
        look(self.play, when, self.topic)


def play_histories(play: Play, seeds: range) -> None:
    """Make three passes over each history. An open transaction bounds the first pass, and ends after it."""
    coordinator_is_there(play)
    for seed in seeds:
        history = History(play, seed)
        history.write(STEPS)
        history.compacted(1)
        history.end_all()
        history.write(STEPS // 2)
        history.compacted(2)
        history.end_all()
        history.write(STEPS // 2)
        history.end_all()
        history.write(4)
        history.compacted(3)


@script(properties="compacting")
def random_histories(play: Play) -> None:
    play_histories(play, range(SEEDS))


@script(properties="compacting")
def producers_that_come_back(play: Play) -> None:
    """After a pass a producer continues with its next sequence, and a repeated last batch is known."""
    topic = play.topic(
        "a", cleanup_policy="compact", min_cleanable_dirty_ratio="1.0", internal_segment_bytes="300"
    )
    mine = Idempotent(play)

    def sent(sequence: int) -> bytes:
        return batch(
            [record(b"v" * 100, key=b"k")],
            base_timestamp=play.now_ms,
            producer_id=mine.producer_id,
            producer_epoch=mine.producer_epoch,
            base_sequence=sequence,
        )

    play.write(topic.name, *(sent(sequence) for sequence in range(4)))
    play.write(
        topic.name, *(batch([record(b"w" * 100, key=b"k")], base_timestamp=play.now_ms) for _ in range(4))
    )
    compact(play, topic)
    look(play, "compacted", topic)
    for case, sequence in (("its last batch again", 3), ("an older one", 0), ("the next", 4), ("a gap", 7)):
        play.ask(case, "Produce", 9, produce((topic, 0, sent(sequence))))
    play.restart()
    play.until_there(topic.name)
    play.ask("the one behind, after a restart", "Produce", 9, produce((topic, 0, sent(5))))
    look(play, "in the end", topic)


@script(properties="compacting")
def timestamps_of_the_broker(play: Play) -> None:
    """With LogAppendTime, a record has its batch's time, even if the batch has a delete horizon."""
    topic = play.topic(
        "a",
        cleanup_policy="compact",
        message_timestamp_type="LogAppendTime",
        min_cleanable_dirty_ratio="1.0",
        internal_segment_bytes="300",
    )
    for number in range(8):
        value = None if number % 3 == 0 else b"v" * 60
        play.write(
            topic.name,
            batch([record(value, key=b"k%d" % (number % 4)), record(b"x", key=b"x", offset_delta=1)]),
        )
    for number in (1, 2):
        compact(play, topic)
        look(play, f"pass {number}", topic)
        play.write(topic.name, batch([record(b"v" * 200, key=b"k")]), batch([record(b"v" * 200, key=b"k")]))


@script(properties="compacting")
def times_that_are_looked_for(play: Play) -> None:
    """An empty batch or an empty segment hides some records from Kafka's search, but not from barnabas's."""
    topic = play.topic(
        "a", cleanup_policy="compact", min_cleanable_dirty_ratio="1.0", internal_segment_bytes="300"
    )
    mine = Idempotent(play)

    def written(minutes: int, key: bytes, **producer: int) -> None:
        data = batch(
            [record(b"v" * 150, key=key)], base_timestamp=play.now_ms + minutes * MINUTE_MS, **producer
        )
        play.write(topic.name, data)

    written(-100, b"stays")
    written(-10, b"k", producer_id=mine.producer_id, producer_epoch=mine.producer_epoch, base_sequence=0)
    for minutes in range(-90, -80):
        written(minutes, b"k%d" % minutes)
    for key in (b"k", *(b"k%d" % minutes for minutes in range(-90, -85))):
        written(-5, key)
    written(-4, b"last")
    compact(play, topic)
    look(play, "compacted", topic)
    play.ask("the largest time", "ListOffsets", 7, list_offsets((topic.name, 0, -3)))
    for minutes in (-100, -99, -50, -3):
        asked = list_offsets((topic.name, 0, play.now_ms + minutes * MINUTE_MS))
        play.ask(f"the first of {-minutes} minutes ago", "ListOffsets", 7, asked)


if MORE:

    @script(properties="compacting")
    def more_histories(play: Play) -> None:
        begin, end = (int(seed) for seed in MORE.split("-"))
        play_histories(play, range(begin, end + 1))
