"""Produce: whom it's for, acks, the shape of what is sent, and the answer's fields in every version."""

from __future__ import annotations

import struct

from ..batches import GZIP, T0, TRANSACTIONAL, ZSTD, batch, legacy_message_set, record, records_of
from ..play import Play, script, versions
from ..requests import ZERO_ID, fetch, list_offsets, produce, unknown


@script
def every_version(play: Play) -> None:
    """The same requests in each version: success, an unknown topic, a bad record, a bad batch."""
    topic = play.topic("a")
    other = play.topic("compacted", cleanup_policy="compact")
    for version in versions("Produce"):
        play.ask(f"one batch (v{version})", "Produce", version, produce((topic, 0, batch(2))))
        play.ask(f"a topic that isn't there (v{version})", "Produce", version, produce((unknown("nowhere"), 0, batch())))
        play.ask(f"a partition that isn't there (v{version})", "Produce", version, produce((topic, 7, batch())))
        play.ask(f"a record without a key (v{version})", "Produce", version, produce((other, 0, batch([record(key=None)]))))
        play.ask(f"a wrong CRC (v{version})", "Produce", version, produce((topic, 0, batch(crc=1))))
        play.ask(f"zstd (v{version})", "Produce", version, produce((topic, 0, batch(2, codec=ZSTD))))
        play.ask(f"no topics (v{version})", "Produce", version, produce())
        play.ask(f"a topic without partitions (v{version})", "Produce", version, produce_nothing_for(topic))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


def produce_nothing_for(topic):  # type: ignore[no-untyped-def]
    return produce() | {"topic_data": [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": []}]}


@script
def versions_that_are_listed_but_refused(play: Play) -> None:
    """Produce 0 to 2 are advertised for old librdkafka's sake (KAFKA-18659)."""
    from ..wire import header

    topic = play.topic("a")
    for version in (0, 1, 2):
        name = topic.name.encode()
        body = struct.pack(">hi", 1, 1000) + struct.pack(">i", 1) + struct.pack(">h", len(name)) + name
        data = batch()
        body += struct.pack(">iii", 1, 0, len(data)) + data
        play.raw_frame(f"Produce v{version}", header(0, version, 5) + body)


@script
def acks(play: Play) -> None:
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
            (topic, 0, batch(attributes=TRANSACTIONAL, producer_id=10**9, producer_epoch=0, base_sequence=0)), acks=0
        ),
    }.items():
        play.silent(case, "Produce", 9, request)
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), (compacted, 0, 0)))


@script
def addresses(play: Play) -> None:
    """Names, ids and partitions that lead nowhere."""
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
        produce((unknown("nowhere"), 0, batch()), (topic, 5, batch()), (topic, 1, batch()), (unknown("there"), 0, batch())),
    )
    play.ask(
        "good and bad ones together (v13)",
        "Produce",
        13,
        produce((unknown(""), 0, batch()), (topic, 5, batch()), (topic, 1, batch()), (unknown("", ZERO_ID), 0, batch())),
    )
    play.ask("nothing was created", "Metadata", 9, {"topics": [{"name": "nowhere"}], "allow_auto_topic_creation": False})


@script
def listed_twice(play: Play) -> None:
    """A partition or a topic more than once in a request."""
    topic = play.topic("a", 3)
    other = play.topic("b")
    one, two = batch([record(b"one")]), batch([record(b"two")])
    play.ask("a partition twice", "Produce", 9, produce((topic, 0, one), (topic, 0, two)))
    play.ask("a topic twice", "Produce", 9, produce((topic, 1, one), (other, 0, one), (topic, 2, two)))
    play.ask("a partition twice, in two entries", "Produce", 9, produce((topic, 1, one), (other, 0, one), (topic, 1, two)))
    play.ask("a partition twice, the first one bad", "Produce", 9, produce((topic, 0, batch(crc=1)), (topic, 0, two)))
    play.ask("a partition twice, the last one bad", "Produce", 9, produce((topic, 0, one), (topic, 0, batch(crc=1))))
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
    """Many partitions of several topics in one request, good ones and bad ones mixed."""
    first = play.topic("a", 4)
    second = play.topic("b", 4)
    good = batch()
    play.ask(
        "all good", "Produce", 9, produce(*((topic, i, good) for i in (3, 1, 0, 2) for topic in (second, first)))
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
def shape(play: Play) -> None:
    """What comes where one whole batch of v2 is due."""
    topic = play.topic("a", 2)
    whole = batch(2)
    for version in (7, 9, 13):
        for case, records in {
            "no bytes": b"",
            "one byte": b"\0",
            "16 bytes": whole[:16],
            "a header and no more": whole[:61],
            "a batch without its last byte": whole[:-1],
            "an old format, v0": legacy_message_set(0),
            "an old format, v1": legacy_message_set(1),
            "an old format cut short": legacy_message_set(1)[:-1],
            "two batches": whole + batch(),
            "a batch and an old message": whole + legacy_message_set(1),
            "a batch with a few bytes behind it": whole + b"\0\0\0",
            "a batch with the start of another": whole + whole[:40],
            "a batch with all but one byte of another": whole + whole[:-1],
        }.items():
            play.ask(f"{case} (v{version})", "Produce", version, produce((topic, 0, records)))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script
def one_impossible_batch_fails_the_whole_request(play: Play) -> None:
    """A magic above 2 or a length below the least is an exception that takes the healthy partitions along."""
    topic = play.topic("a", 3)
    good = batch()
    for case, records in {
        "magic 3": batch(magic=3),
        "magic 127": batch(magic=127),
        "a negative magic": batch(magic=-1),
        "a batch length of 0": batch(length=0),
        "a batch length of 13": batch(length=13),
        "a batch length of 14": batch(length=14),
        "a batch length of 48": batch(length=48),
        "a negative batch length": batch(length=-1),
        "the least batch length there is": batch(length=-(2**31)),
        "a batch length beyond all": batch(length=2**31 - 1),
        "the least batch length whose sum overflows": batch(length=2**31 - 12),
        "the greatest batch length that makes sense": batch(length=2**31 - 13),
        "a length of 13 with no more than its 12 bytes": batch(length=13)[:12],
        "magic 3 behind a whole batch": good + batch(magic=3),
        "a length of 13 behind a whole batch": good + batch(length=13),
        "a length of 13 behind an old message": legacy_message_set(1) + batch(length=13),
    }.items():
        play.ask(
            case,
            "Produce",
            9,
            produce((topic, 0, good), (topic, 1, records), (unknown("nowhere"), 0, good), (topic, 2, good)),
        )
        play.ask(f"{case}, alone (v7)", "Produce", 7, produce((topic, 1, records)))
        play.ask(f"{case}, for an unknown topic", "Produce", 9, produce((unknown("nowhere"), 0, records), (topic, 2, good)))
    play.ask("acks=7 and magic 3", "Produce", 9, produce((topic, 0, good), (topic, 1, batch(magic=3)), acks=7))
    play.silent("acks=0 and magic 3", "Produce", 9, produce((topic, 0, good), (topic, 1, batch(magic=3)), acks=0))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), (topic, 2, 0)))


@script
def null_records(play: Play) -> None:
    """Kafka never answers these: its handler fails without an answer."""
    topic = play.topic("a")
    play.ask("null records", "Produce", 9, produce((topic, 0, None)), within_s=0.3)
    play.ask("the topic lives on", "Produce", 9, produce((topic, 0, batch())))


@script
def batch_header(play: Play) -> None:
    """The checks on a batch as a whole, in their order."""
    topic = play.topic("a", max_message_bytes="1000")
    big = batch([record(b"x" * 2000)])
    pid = {"producer_id": 5 * 10**9, "producer_epoch": 0}
    for case, records in {
        "a base offset that is not 0": batch(base_offset=5),
        "a negative base offset": batch(base_offset=-1),
        "a base offset that is not 0, too large, wrong CRC": batch([record(b"x" * 2000)], base_offset=5, crc=1),
        "too large": big,
        "too large, and a wrong CRC": batch([record(b"x" * 2000)], crc=1),
        "just as large as may be": batch([record(b"x" * 927)]),
        "one byte larger than may be": batch([record(b"x" * 928)]),
        "a wrong CRC": batch(crc=0),
        "a wrong CRC and a wrong count": batch(crc=0, count=5),
        "a leader epoch of the client's": batch(leader_epoch=9),
        "a count of 0": batch(count=0),
        "a negative count": batch(count=-1),
        "no records, count 0, delta -1": batch([], count=0, last_offset_delta=-1),
        "no records, count 0, delta 0": batch([], count=0, last_offset_delta=0),
        "a last offset delta below the count": batch(3, last_offset_delta=1),
        "a last offset delta above the count": batch(3, last_offset_delta=3),
        "a negative last offset delta": batch(3, last_offset_delta=-5),
        "the last offset delta that overflows": batch(1, last_offset_delta=2**31 - 1),
        "the last offset delta and a count that fit and overflow": batch(1, last_offset_delta=2**31 - 1, count=-(2**31)),
        "a control batch": batch(attributes=1 << 5),
        "a control batch with a wrong count": batch(attributes=1 << 5, count=3),
        "a control batch of a transaction without producer": batch(attributes=3 << 4),
        "a producer id without a sequence": batch(**pid),
        "a producer id with sequence -2": batch(**pid, base_sequence=-2),
        "a sequence and no producer id": batch(base_sequence=5),
        "an epoch and no producer id": batch(producer_epoch=5),
        "producer id -2": batch(producer_id=-2, producer_epoch=0, base_sequence=0),
        "a negative epoch": batch(producer_id=6 * 10**9, producer_epoch=-1, base_sequence=0),
        "the transactional flag and no producer id": batch(attributes=TRANSACTIONAL),
        "the flag of a delete horizon": batch(attributes=1 << 6, base_timestamp=T0 + 7),
        "attribute bits that nobody knows": batch(attributes=0x7F80),
        "the highest attribute bit": batch(attributes=-32768),
    }.items():
        play.ask(case, "Produce", 9, produce((topic, 0, records)))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script
def transactional_batches(play: Play) -> None:
    """As far as they are refused before anybody looks for a transaction."""
    topic = play.topic("a", 2)
    flagged = batch(attributes=TRANSACTIONAL, producer_id=10**9, producer_epoch=0, base_sequence=0)
    for version in (3, 8, 9, 12, 13):
        play.ask(f"no transactional id (v{version})", "Produce", version, produce((topic, 0, flagged), (topic, 1, batch())))
    play.ask("no transactional id, in the second batch", "Produce", 9, produce((topic, 0, batch()), (topic, 1, flagged)))
    play.ask("no transactional id, for an unknown topic", "Produce", 9, produce((unknown("nowhere"), 0, flagged)))
    play.ask("no transactional id, and acks=7", "Produce", 9, produce((topic, 0, flagged), acks=7))
    play.ask("no transactional id, behind a plain batch", "Produce", 9, produce((topic, 0, batch() + flagged)))
    play.ask("no transactional id, and a wrong CRC", "Produce", 9, produce((topic, 0, _flagged(crc=1)), (topic, 1, batch())))
    play.ask("a transactional id and a plain batch", "Produce", 9, produce((topic, 0, batch()), transactional_id="tx"))
    play.ask("an empty transactional id and a plain batch", "Produce", 9, produce((topic, 0, batch()), transactional_id=""))
    play.ask("the flag alone and no transactional id", "Produce", 9, produce((topic, 0, batch(attributes=TRANSACTIONAL))))
    play.ask("the end", "ListOffsets", 4, list_offsets((topic.name, 0, -1), (topic.name, 1, -1)))


def _flagged(**lies: int) -> bytes:
    return batch(attributes=TRANSACTIONAL, producer_id=10**9, producer_epoch=0, base_sequence=0, **lies)


@script
def compression_in_every_version(play: Play) -> None:
    topic = play.topic("a")
    for version in (3, 6, 7, 9, 13):
        for codec in range(8):
            payload = b"".join(records_of([b"one", b"two"])) if codec > 4 else None
            play.ask(
                f"codec {codec} (v{version})",
                "Produce",
                version,
                produce((topic, 0, batch(records_of([b"one", b"two"]), codec=codec, payload=payload))),
            )
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script
def a_batch_that_fills_a_request(play: Play) -> None:
    """max.message.bytes by default."""
    topic = play.topic("a")
    overhead = len(batch([record(b"x" * 1_000_000)])) - 1_000_000
    limit = 1_048_588
    play.ask("as large as may be", "Produce", 9, produce((topic, 0, batch([record(b"x" * (limit - overhead))]))))
    play.ask("one byte more", "Produce", 9, produce((topic, 0, batch([record(b"x" * (limit - overhead + 1))]))))
    play.ask(
        "small when compressed, large when not",
        "Produce",
        9,
        produce((topic, 0, batch([record(b"x" * 2_000_000)], codec=GZIP))),
    )
    play.ask("the end", "ListOffsets", 4, list_offsets((topic.name, 0, -1)))
