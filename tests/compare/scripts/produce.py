"""Produce: its target, acks, the shape of the data, and the answer's fields in every version."""

from __future__ import annotations

import struct
from typing import Any

from ..batches import TRANSACTIONAL, ZSTD, batch, legacy_message_set, record
from ..frames import header
from ..play import Play, script, versions
from ..requests import ZERO_ID, fetch, list_offsets, produce, unknown
from ..scene import Topic


@script
def every_version(play: Play) -> None:
    """The same requests in each version: success, an unknown topic, a bad record, a bad batch."""
    topic = play.topic("a")
    other = play.topic("compacted", cleanup_policy="compact")
    for version in versions("Produce"):
        play.ask(f"one batch (v{version})", "Produce", version, produce((topic, 0, batch(2))))
        play.ask(
            f"a topic that isn't there (v{version})",
            "Produce",
            version,
            produce((unknown("nowhere"), 0, batch())),
        )
        play.ask(
            f"a partition that isn't there (v{version})", "Produce", version, produce((topic, 7, batch()))
        )
        play.ask(
            f"a record without a key (v{version})",
            "Produce",
            version,
            produce((other, 0, batch([record(key=None)]))),
        )
        play.ask(f"a wrong CRC (v{version})", "Produce", version, produce((topic, 0, batch(crc=1))))
        play.ask(f"zstd (v{version})", "Produce", version, produce((topic, 0, batch(2, codec=ZSTD))))
        play.ask(f"no topics (v{version})", "Produce", version, produce())
        play.ask(f"a topic without partitions (v{version})", "Produce", version, produce_nothing_for(topic))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


def produce_nothing_for(topic: Topic) -> dict[str, Any]:
    return produce() | {
        "topic_data": [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": []}]
    }


@script
def versions_that_are_listed_but_refused(play: Play) -> None:
    """The broker advertises Produce 0 to 2 for old librdkafka's sake, but refuses them (KAFKA-18659)."""
    topic = play.topic("a")
    for version in (0, 1, 2):
        name = topic.name.encode()
        body = struct.pack(">hi", 1, 1000) + struct.pack(">i", 1) + struct.pack(">h", len(name)) + name
        data = batch()
        body += struct.pack(">iii", 1, 0, len(data)) + data
        play.raw_frame(f"Produce v{version}", header(0, version, 5) + body)


@script
def every_acks(play: Play) -> None:
    topic = play.topic("a", 2)
    nowhere = unknown("nowhere")
    for value in (1, -1):
        play.ask(f"acks={value}", "Produce", 9, produce((topic, 0, batch()), acks=value))
    for value in (2, 7, -2, -128, 32767, -32768):
        play.ask(f"acks={value} is not one", "Produce", 9, produce((topic, 0, batch()), acks=value))
    play.ask(
        "acks=7 for a healthy partition, an unknown one and a bad batch",
        "Produce",
        9,
        produce((topic, 0, batch()), (topic, 9, batch()), (topic, 1, legacy_message_set(1)), acks=7),
    )
    play.ask("acks=7 for an unknown topic", "Produce", 9, produce((nowhere, 0, batch()), acks=7))
    play.ask("acks=7 for a batch with a wrong CRC", "Produce", 9, produce((topic, 0, batch(crc=1)), acks=7))
    play.ask("acks=7 for nothing", "Produce", 9, produce(acks=7))
    play.ask("a timeout of 0", "Produce", 9, produce((topic, 0, batch()), timeout_ms=0))
    play.ask("a negative timeout", "Produce", 9, produce((topic, 0, batch()), timeout_ms=-1))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0)))


@script
def acks_0_is_never_answered(play: Play) -> None:
    topic = play.topic("a", 2)
    for version in (3, 8, 9, 13):
        play.silent(f"a good batch (v{version})", "Produce", version, produce((topic, 0, batch()), acks=0))
    play.silent("no topics", "Produce", 9, produce(acks=0))
    play.silent("a topic without partitions", "Produce", 9, produce_nothing_for(topic) | {"acks": 0})
    play.silent("two partitions", "Produce", 9, produce((topic, 0, batch()), (topic, 1, batch()), acks=0))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0)))


@script
def acks_0_with_an_error_closes_the_connection(play: Play) -> None:
    topic = play.topic("a", 2)
    compacted = play.topic("compacted", cleanup_policy="compact")
    for case, request in {
        "an unknown topic": produce((unknown("nowhere"), 0, batch()), acks=0),
        "an unknown partition": produce((topic, 9, batch()), acks=0),
        "a wrong CRC": produce((topic, 0, batch(crc=1)), acks=0),
        "an old format": produce((topic, 0, legacy_message_set(1)), acks=0),
        "a record without a key": produce((compacted, 0, batch([record(key=None)])), acks=0),
        "a bad partition behind a good one": produce((topic, 1, batch()), (topic, 9, batch()), acks=0),
        "a transactional batch and no transactional id": produce(
            (topic, 0, batch(attributes=TRANSACTIONAL, producer_id=10**9, producer_epoch=0, base_sequence=0)),
            acks=0,
        ),
    }.items():
        play.silent(case, "Produce", 9, request)
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), (compacted, 0, 0)))


@script
def addresses(play: Play) -> None:
    """Names, ids and partitions that don't exist."""
    topic = play.topic("a", 2)
    for case, part in {
        "a negative partition": (topic, -1, batch()),
        "the partition behind the last": (topic, 2, batch()),
        "a huge partition": (topic, 2**31 - 1, batch()),
        "an empty name": (unknown(""), 0, batch()),
        "a name that is not allowed": (unknown("a/b"), 0, batch()),
        "a name that is too long": (unknown("x" * 300), 0, batch()),
        "an unknown topic with records that make no sense": (unknown("nowhere"), 0, b"nonsense"),
        "an unknown topic with no records": (unknown("nowhere"), 0, b""),
        "an unknown topic with null records": (unknown("nowhere"), 0, None),
    }.items():
        play.ask(case, "Produce", 9, produce(part))
    for case, part in {
        "a zero id": (unknown("", ZERO_ID), 0, batch()),
        "an unknown id": (unknown(""), 0, batch()),
        "a known id with an unknown partition": (topic, 5, batch()),
        "a known id with a negative partition": (topic, -1, batch()),
        "an unknown id with null records": (unknown(""), 0, None),
    }.items():
        play.ask(f"{case} (v13)", "Produce", 13, produce(part))
    play.ask(
        "good and bad ones together",
        "Produce",
        9,
        produce(
            (unknown("nowhere"), 0, batch()),
            (topic, 5, batch()),
            (topic, 1, batch()),
            (unknown("there"), 0, batch()),
        ),
    )
    play.ask(
        "good and bad ones together (v13)",
        "Produce",
        13,
        produce(
            (unknown(""), 0, batch()),
            (topic, 5, batch()),
            (topic, 1, batch()),
            (unknown("", ZERO_ID), 0, batch()),
        ),
    )
    play.ask(
        "nothing was created",
        "Metadata",
        9,
        {"topics": [{"name": "nowhere"}], "allow_auto_topic_creation": False},
    )


@script
def listed_twice(play: Play) -> None:
    """A partition or a topic occurs more than once in a request."""
    topic = play.topic("a", 3)
    other = play.topic("b")
    one, two = batch([record(b"one")]), batch([record(b"two")])
    play.ask("a partition twice", "Produce", 9, produce((topic, 0, one), (topic, 0, two)))
    play.ask("a topic twice", "Produce", 9, produce((topic, 1, one), (other, 0, one), (topic, 2, two)))
    play.ask(
        "a partition twice, in two entries",
        "Produce",
        9,
        produce((topic, 1, one), (other, 0, one), (topic, 1, two)),
    )
    play.ask(
        "a partition twice, the first one bad",
        "Produce",
        9,
        produce((topic, 0, batch(crc=1)), (topic, 0, two)),
    )
    play.ask(
        "a partition twice, the last one bad",
        "Produce",
        9,
        produce((topic, 0, one), (topic, 0, batch(crc=1))),
    )
    play.ask(
        "a partition twice, the last one of an old format",
        "Produce",
        9,
        produce((topic, 0, one), (topic, 0, legacy_message_set(1))),
    )
    play.ask(
        "a partition twice, the first one of an old format",
        "Produce",
        9,
        produce((topic, 0, legacy_message_set(1)), (topic, 0, one)),
    )
    play.ask("a partition that isn't there, twice", "Produce", 9, produce((topic, 9, one), (topic, 9, two)))
    play.ask("a partition twice (v13)", "Produce", 13, produce((topic, 0, one), (topic, 0, two)))
    play.ask(
        "what was stored", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), (topic, 2, 0), (other, 0, 0))
    )


@script
def order_of_the_answer(play: Play) -> None:
    """Send good and bad partitions of several topics, mixed in one request."""
    first = play.topic("a", 4)
    second = play.topic("b", 4)
    good = batch()
    play.ask(
        "all good",
        "Produce",
        9,
        produce(*((topic, i, good) for i in (3, 1, 0, 2) for topic in (second, first))),
    )
    play.ask(
        "each topic's partitions in one entry",
        "Produce",
        9,
        produce(*((topic, i, good) for topic in (second, first) for i in (3, 1, 0, 2))),
    )
    play.ask(
        "bad ones first",
        "Produce",
        9,
        produce(
            (second, 8, good),
            (second, 3, legacy_message_set(1)),
            (second, 1, good),
            (unknown("nowhere"), 0, good),
            (first, 2, batch(crc=1)),
            (first, 0, good),
        ),
    )


@script
def transactional_batches(play: Play) -> None:
    """Send transactional batches that are refused before the broker looks for a transaction."""
    topic = play.topic("a", 2)
    flagged = batch(attributes=TRANSACTIONAL, producer_id=10**9, producer_epoch=0, base_sequence=0)
    for version in (3, 8, 9, 12, 13):
        play.ask(
            f"no transactional id (v{version})",
            "Produce",
            version,
            produce((topic, 0, flagged), (topic, 1, batch())),
        )
    play.ask(
        "no transactional id, in the second batch",
        "Produce",
        9,
        produce((topic, 0, batch()), (topic, 1, flagged)),
    )
    play.ask(
        "no transactional id, for an unknown topic", "Produce", 9, produce((unknown("nowhere"), 0, flagged))
    )
    play.ask("no transactional id, and acks=7", "Produce", 9, produce((topic, 0, flagged), acks=7))
    play.ask(
        "no transactional id, behind a plain batch", "Produce", 9, produce((topic, 0, batch() + flagged))
    )
    play.ask(
        "no transactional id, and a wrong CRC",
        "Produce",
        9,
        produce((topic, 0, _flagged(crc=1)), (topic, 1, batch())),
    )
    play.ask(
        "a transactional id and a plain batch",
        "Produce",
        9,
        produce((topic, 0, batch()), transactional_id="tx"),
    )
    play.ask(
        "an empty transactional id and a plain batch",
        "Produce",
        9,
        produce((topic, 0, batch()), transactional_id=""),
    )
    play.ask(
        "the flag alone and no transactional id",
        "Produce",
        9,
        produce((topic, 0, batch(attributes=TRANSACTIONAL))),
    )
    play.ask("the end", "ListOffsets", 4, list_offsets((topic.name, 0, -1), (topic.name, 1, -1)))


def _flagged(**lies: int) -> bytes:
    return batch(attributes=TRANSACTIONAL, producer_id=10**9, producer_epoch=0, base_sequence=0, **lies)
