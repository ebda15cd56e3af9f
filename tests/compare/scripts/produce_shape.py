"""Produce: other data in place of one whole batch of v2, and the checks on its header."""

from __future__ import annotations

from ..batches import GZIP, T0, TRANSACTIONAL, batch, legacy_message_set, record, records_of
from ..play import Play, script
from ..requests import fetch, list_offsets, produce, unknown


@script
def shape(play: Play) -> None:
    """Send other data in place of one whole batch of v2."""
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
    """A magic above 2 or a length below the minimum causes an exception that fails the healthy partitions as well."""
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
        play.ask(
            f"{case}, for an unknown topic",
            "Produce",
            9,
            produce((unknown("nowhere"), 0, records), (topic, 2, good)),
        )
    play.ask(
        "acks=7 and magic 3", "Produce", 9, produce((topic, 0, good), (topic, 1, batch(magic=3)), acks=7)
    )
    play.silent(
        "acks=0 and magic 3", "Produce", 9, produce((topic, 0, good), (topic, 1, batch(magic=3)), acks=0)
    )
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), (topic, 2, 0)))


@script
def null_records(play: Play) -> None:
    """Kafka never answers null records: its handler fails without an answer."""
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
        "a base offset that is not 0, too large, wrong CRC": batch(
            [record(b"x" * 2000)], base_offset=5, crc=1
        ),
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
        "the last offset delta and a count that fit and overflow": batch(
            1, last_offset_delta=2**31 - 1, count=-(2**31)
        ),
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
    """A batch of max.message.bytes, by default."""
    topic = play.topic("a")
    overhead = len(batch([record(b"x" * 1_000_000)])) - 1_000_000
    limit = 1_048_588
    play.ask(
        "as large as may be", "Produce", 9, produce((topic, 0, batch([record(b"x" * (limit - overhead))])))
    )
    play.ask(
        "one byte more", "Produce", 9, produce((topic, 0, batch([record(b"x" * (limit - overhead + 1))])))
    )
    play.ask(
        "small when compressed, large when not",
        "Produce",
        9,
        produce((topic, 0, batch([record(b"x" * 2_000_000)], codec=GZIP))),
    )
    play.write(topic.name, batch([record(b"y" * 1_000_000)]))
    play.ask(
        "an answer of two megabytes",
        "Fetch",
        12,
        fetch((topic, 0, 0), max_bytes=1 << 24, partition_max_bytes=1 << 24),
    )
    play.ask("the end", "ListOffsets", 4, list_offsets((topic.name, 0, -1)))
