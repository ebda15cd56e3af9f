"""Produce: the checks on a batch's records, and the stored form of a batch."""

from __future__ import annotations

from ..batches import (
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    T0,
    ZSTD,
    batch,
    compress,
    lz4_frame,
    record,
    records_of,
    varint,
    xerial_snappy,
)
from ..play import Play, script, versions
from ..requests import fetch, produce

HOUR_MS = 3_600_000


@script
def records_that_do_not_parse(play: Play) -> None:
    topic = play.topic("a")
    whole = record()
    for case, records in {
        "more records than the count": batch(
            [record(), record(offset_delta=1)], count=1, last_offset_delta=0
        ),
        "fewer records than the count": batch([record()], count=2, last_offset_delta=1),
        "no record at all": batch([], count=1, last_offset_delta=0),
        "bytes behind the last record": batch(payload=whole + b"\0"),
        "many bytes behind the last record": batch(payload=whole + b"\1" * 50),
        "a record cut short": batch(payload=whole[:-1]),
        "a record's length too large": batch([record(length=100)]),
        "a record's length too small": batch([record(length=5)]),
        "a record's length of 0": batch([record(length=0)]),
        "a negative record length": batch([record(length=-1)]),
        "the greatest record length": batch([record(length=2**31 - 1)]),
        "a record length of ten bytes": batch(payload=b"\xff" * 9 + b"\x01" + whole),
        "a record with bytes left over": batch([record(behind=b"\0\0")]),
        "a key's length beyond the record": batch([record(key_length=100)]),
        "the greatest key length": batch([record(key_length=2**31 - 1)]),
        "a key length of -2": batch([record(key=None, key_length=-2)]),
        "a value's length beyond the record": batch([record(value_length=100)]),
        "a value length of -2": batch([record(value=None, value_length=-2)]),
        "the least value length": batch([record(value=None, value_length=-(2**31))]),
        "a header count too large": batch([record(header_count=1)]),
        "a huge header count": batch([record(header_count=2**31 - 1)]),
        "a negative header count": batch([record(header_count=-1)]),
        "a header with a null key": batch([record(headers=[(None, b"x")])]),
        "a header with a null value": batch([record(headers=[(b"h", None)])]),
        "a header with an empty key": batch([record(headers=[(b"", b"x")])]),
        "a header whose key is no UTF-8": batch([record(headers=[(b"\xff\xfe", b"x")])]),
        "the same header twice": batch([record(headers=[(b"h", b"1"), (b"h", b"2")])]),
        "a record's attributes": batch([record(attributes=0x7F)]),
        "null key, null value": batch([record(None, key=None)]),
        "empty key, empty value": batch([record(b"", key=b"")]),
        "a varint of six bytes as a length": batch(payload=b"\xa0\x80\x80\x80\x80\x00" + whole[1:]),
        "a length in five bytes where one would do": batch(payload=_wide(whole[0]) + whole[1:]),
        "a timestamp delta of eleven bytes": batch([_record_of(b"\xff" * 10 + b"\x01")]),
        "the second of two records cut short": batch(
            payload=whole + record(offset_delta=1)[:-3], count=2, last_offset_delta=1
        ),
    }.items():
        play.ask(case, "Produce", 9, produce((topic, 0, records)))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


def _wide(first: int) -> bytes:
    return bytes([first | 0x80, 0x80, 0x80, 0x80, 0x00])


def _record_of(timestamp_delta: bytes) -> bytes:
    body = b"\0" + timestamp_delta + varint(0) + varint(-1) + varint(-1) + varint(0)
    return varint(len(body)) + body


@script
def record_lengths_once_decompressed(play: Play) -> None:
    """Kafka ignores the lengths of compressed records, and stores batches that its consumers can't read."""
    for name, length in (("large", 100), ("small", 5), ("negative", -1), ("greatest", 2**31 - 1)):
        topic = play.topic(name)
        payload = compress(GZIP, record(length=length))
        play.ask(
            f"a {name} record length",
            "Produce",
            9,
            produce((topic, 0, batch([record()], codec=GZIP, payload=payload))),
        )


@script
def decompressed_records_that_do_not_parse(play: Play) -> None:
    """Send the same records in a compressed batch, which Kafka reads record by record."""
    topic = play.topic("a")
    whole = record()
    for case, payload in {
        "more records than the count": whole + record(offset_delta=1),
        "no record at all": b"",
        "bytes behind the last record": whole + b"\0",
        "a record cut short": whole[:-1],
        "a record with bytes left over": record(behind=b"\0\0"),
        "a key's length beyond the record": record(key_length=100),
        "a key length of -2": record(key=None, key_length=-2),
        "a value length of -2": record(value=None, value_length=-2),
        "a header count too large": record(header_count=1),
        "a negative header count": record(header_count=-1),
        "a header with a null key": record(headers=[(None, b"x")]),
        "a header with a null value": record(headers=[(b"h", None)]),
        "a record's attributes": record(attributes=0x7F),
        "null key, null value": record(None, key=None),
        "an offset delta of 1 in the first record": record(offset_delta=1),
        "a negative offset delta": record(offset_delta=-1),
    }.items():
        play.ask(
            case,
            "Produce",
            9,
            produce((topic, 0, batch([whole], codec=GZIP, payload=compress(GZIP, payload)))),
        )
    for case, records in {
        "fewer records than the count": batch([whole], codec=GZIP, count=2, last_offset_delta=1),
        "two records with swapped offset deltas": batch(
            [record(offset_delta=1), record(offset_delta=0)], codec=GZIP
        ),
        "two records with offset delta 0": batch([record(), record()], codec=GZIP),
        "a gap in the offset deltas": batch([record(), record(offset_delta=5)], codec=GZIP),
        "a gap in the offset deltas, and the header agrees": batch(
            [record(), record(offset_delta=5)], codec=GZIP, last_offset_delta=5, count=6
        ),
        "a wrong CRC": batch(2, codec=GZIP, crc=1),
    }.items():
        play.ask(case, "Produce", 9, produce((topic, 0, records)))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script
def compressed_data_that_makes_no_sense(play: Play) -> None:
    topic = play.topic("a")
    plain = b"".join(records_of([b"one", b"two", b"three" * 100]))
    names = {GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
    for codec, name in names.items():
        good = compress(codec, plain)
        for case, payload in {
            "nothing": b"",
            "nonsense": b"nonsense" * 8,
            "uncompressed records": plain,
            "cut short by a byte": good[:-1],
            "cut in the middle": good[: len(good) // 2],
            "bytes behind it": good + b"\0" * 8,
            "twice in a row": good + good,
        }.items():
            records = batch(3, codec=codec, payload=payload)
            play.ask(f"{name}: {case}", "Produce", 9, produce((topic, 0, records)))
    for case, codec, payload in (
        ("snappy framed by xerial", SNAPPY, xerial_snappy(plain)),
        ("snappy framed by xerial in blocks of 100 bytes", SNAPPY, xerial_snappy(plain, block_bytes=100)),
        ("snappy framed by xerial and cut short", SNAPPY, xerial_snappy(plain)[:-1]),
        ("snappy, a xerial header alone", SNAPPY, xerial_snappy(b"")),
        ("lz4 with linked blocks", LZ4, lz4_frame(plain, linked=True)),
        ("lz4 with a wrong header checksum", LZ4, _flip(lz4_frame(plain), 6)),
        ("lz4 without its end mark", LZ4, lz4_frame(plain)[:-4]),
        ("gzip of two members", GZIP, compress(GZIP, plain[:40]) + compress(GZIP, plain[40:])),
        ("gzip with a wrong checksum", GZIP, _flip(compress(GZIP, plain), -6)),
        ("zstd of two frames", ZSTD, compress(ZSTD, plain[:40]) + compress(ZSTD, plain[40:])),
    ):
        play.ask(case, "Produce", 9, produce((topic, 0, batch(3, codec=codec, payload=payload))))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


def _flip(data: bytes, at: int) -> bytes:
    out = bytearray(data)
    out[at] ^= 0xFF
    return bytes(out)


@script
def offset_deltas_of_uncompressed_records_are_not_looked_at(play: Play) -> None:
    topic = play.topic("a")
    for case, deltas in {
        "a gap": (0, 5),
        "swapped": (1, 0),
        "both 0": (0, 0),
        "both negative": (-1, -2),
        "huge": (2**31 - 1, 7),
    }.items():
        records = batch([record(offset_delta=delta) for delta in deltas])
        play.ask(case, "Produce", 9, produce((topic, 0, records)))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script
def keys_of_compacted_topics(play: Play) -> None:
    compacted = play.topic("compacted", cleanup_policy="compact")
    both = play.topic("both", cleanup_policy="delete,compact")
    for topic, kind in ((compacted, "compact"), (both, "delete,compact")):
        for codec in (NONE, GZIP):
            for case, records in {
                "a key": [record()],
                "an empty key": [record(key=b"")],
                "no value": [record(None)],
                "no key": [record(key=None)],
                "a key length of -2": [record(key=None, key_length=-2)],
                "no key in the second of three": [
                    record(),
                    record(key=None, offset_delta=1),
                    record(offset_delta=2),
                ],
                "no key in any of five": [record(key=None, offset_delta=i) for i in range(5)],
                "no key, and a wrong time": [record(key=None, timestamp_delta=10**15)],
                "a wrong time before, no key behind": [
                    record(timestamp_delta=10**15),
                    record(key=None, offset_delta=1),
                ],
                "no key, then a record that does not parse": [record(key=None), record(length=100)],
            }.items():
                data = batch(records, codec=codec)
                play.ask(f"{case} ({kind}, codec {codec})", "Produce", 9, produce((topic, 0, data)))
    play.ask("what was stored", "Fetch", 12, fetch((compacted, 0, 0), (both, 0, 0)))


@script
def record_errors_in_every_version(play: Play) -> None:
    topic = play.topic("a", cleanup_policy="compact")
    late = play.now_ms + 2 * HOUR_MS
    for version in versions("Produce"):
        for case, records in {
            "no key in two of three": batch(
                [record(key=None), record(offset_delta=1), record(key=None, offset_delta=2)]
            ),
            "a time too late": batch([record()], base_timestamp=late),
            "both": batch([record(key=None), record(offset_delta=1, timestamp_delta=late - T0)]),
        }.items():
            play.ask(f"{case} (v{version})", "Produce", version, produce((topic, 0, records)))


@script
def many_record_errors(play: Play) -> None:
    """Each bad record gets its own entry, however many there are."""
    topic = play.topic("a", cleanup_policy="compact")
    records = batch([record(key=None, offset_delta=i) for i in range(50)])
    play.ask("50 records without a key", "Produce", 9, produce((topic, 0, records)))
    records = batch([record(key=None if i % 3 else b"k", offset_delta=i) for i in range(50)])
    play.ask("two of three without a key", "Produce", 9, produce((topic, 0, records)))


@script
def times_of_records(play: Play) -> None:
    """message.timestamp.type=CreateTime and its limits."""
    now = play.now_ms
    default = play.topic("default")
    narrow = play.topic(
        "narrow", message_timestamp_before_max_ms="600000", message_timestamp_after_max_ms="600000"
    )
    for topic in (default, narrow):
        kind = topic.name.rsplit("-", 1)[-1]
        for codec in (NONE, GZIP):
            for case, timestamp in {
                "now": now,
                "long ago": T0,
                "at 0": 0,
                "-1": -1,
                "-2": -2,
                "the least there is": -(2**63),
                "20 minutes ago": now - HOUR_MS // 3,
                "in 20 minutes": now + HOUR_MS // 3,
                "in 59 minutes": now + 59 * 60_000,
                "in 61 minutes": now + 61 * 60_000,
                "the greatest there is": 2**63 - 1,
            }.items():
                data = batch([record(b"x")], base_timestamp=timestamp, codec=codec)
                play.ask(f"{case} ({kind}, codec {codec})", "Produce", 9, produce((topic, 0, data)))
            for case, deltas in {
                "the second of three too late": (0, 2 * HOUR_MS, 0),
                "all three too late": (2 * HOUR_MS, 2 * HOUR_MS + 1, 2 * HOUR_MS + 2),
                "deltas that overflow": (2**63 - 1, 0, 0),
            }.items():
                records = [record(b"x", timestamp_delta=d, offset_delta=i) for i, d in enumerate(deltas)]
                data = batch(records, base_timestamp=now, codec=codec)
                play.ask(f"{case} ({kind}, codec {codec})", "Produce", 9, produce((topic, 0, data)))
            data = batch(
                [record(b"x", offset_delta=i) for i in range(3)],
                base_timestamp=now,
                attributes=LOG_APPEND_TIME,
                codec=codec,
            )
            play.ask(
                f"log append time claimed by the client ({kind}, codec {codec})",
                "Produce",
                9,
                produce((topic, 0, data)),
            )
            data = batch(
                [record(b"x", timestamp_delta=2 * HOUR_MS)],
                base_timestamp=now,
                max_timestamp=now,
                attributes=LOG_APPEND_TIME,
                codec=codec,
            )
            play.ask(
                f"log append time claimed, a record too late ({kind}, codec {codec})",
                "Produce",
                9,
                produce((topic, 0, data)),
            )
    play.ask("what was stored", "Fetch", 12, fetch((default, 0, 0), (narrow, 0, 0)))
