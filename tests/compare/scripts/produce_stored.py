"""Produce: what the broker stores of a batch unchanged, and what it rewrites."""

from __future__ import annotations

from ..batches import GZIP, LOG_APPEND_TIME, NONE, T0, batch, record
from ..play import Play, script
from ..requests import fetch, produce
from .produce_records import HOUR_MS


@script
def the_maximal_timestamp_is_what_the_records_say(play: Play) -> None:
    topic = play.topic("a")
    for codec in (NONE, GZIP):
        for case, how in {
            "a lie, too large": {"max_timestamp": T0 + 99},
            "a lie, too small": {"max_timestamp": T0 - 99},
            "none": {"max_timestamp": -1},
        }.items():
            records = [record(timestamp_delta=d, offset_delta=i) for i, d in enumerate((0, 7, 3))]
            play.ask(
                f"{case} (codec {codec})",
                "Produce",
                9,
                produce((topic, 0, batch(records, codec=codec, **how))),
            )
        records = [record(timestamp_delta=d, offset_delta=i) for i, d in enumerate((-5, -7))]
        play.ask(
            f"negative deltas (codec {codec})", "Produce", 9, produce((topic, 0, batch(records, codec=codec)))
        )
        records = [record(timestamp_delta=0, offset_delta=i) for i in range(2)]
        data = batch(records, codec=codec, base_timestamp=-1, max_timestamp=5)
        play.ask(f"no timestamps (codec {codec})", "Produce", 9, produce((topic, 0, data)))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script
def log_append_time(play: Play) -> None:
    topic = play.topic("a", message_timestamp_type="LogAppendTime")
    compacted = play.topic("compacted", message_timestamp_type="LogAppendTime", cleanup_policy="compact")
    now = play.now_ms
    for version in (3, 7, 9, 13):
        play.ask(f"a batch (v{version})", "Produce", version, produce((topic, 0, batch(3))))
    for codec in (NONE, GZIP):
        for case, data in {
            "a time far ahead": batch([record()], base_timestamp=now + 1000 * HOUR_MS, codec=codec),
            "a negative time": batch([record()], base_timestamp=-5, codec=codec),
            "log append time claimed by the client": batch(2, attributes=LOG_APPEND_TIME, codec=codec),
            "log append time claimed with three records": batch(3, attributes=LOG_APPEND_TIME, codec=codec),
            "deltas": batch(
                [record(timestamp_delta=9), record(timestamp_delta=4, offset_delta=1)], codec=codec
            ),
        }.items():
            play.ask(f"{case} (codec {codec})", "Produce", 9, produce((topic, 0, data)))
        both = batch([record(key=None)], attributes=LOG_APPEND_TIME, codec=codec)
        play.ask(
            f"log append time claimed and no key (codec {codec})", "Produce", 9, produce((compacted, 0, both))
        )
        none = batch([record(key=None)], codec=codec)
        play.ask(f"no key (codec {codec})", "Produce", 9, produce((compacted, 0, none)))
    idempotent = {"producer_id": 7 * 10**9, "producer_epoch": 0, "base_sequence": 0}
    play.ask("an idempotent batch", "Produce", 9, produce((topic, 0, batch(2, **idempotent))))
    play.ask("its duplicate", "Produce", 9, produce((topic, 0, batch(2, **idempotent))))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0), (compacted, 0, 0)))


@script
def what_recompression_makes_of_a_batch(play: Play) -> None:
    """Combine the topic's compression.type with the producer's codec. If they are equal, the bytes stay as sent."""
    values = [b"one", b"two", b"three" * 50]
    now = play.now_ms
    for kind in ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"):
        topic = play.topic(kind, compression_type=kind)
        for codec in range(5):
            records = [
                record(v, timestamp_delta=5 - i, offset_delta=i, headers=[(b"h", b"x")])
                for i, v in enumerate(values)
            ]
            data = batch(records, codec=codec, leader_epoch=9, attributes=1 << 9)
            play.ask(f"codec {codec} into {kind}", "Produce", 9, produce((topic, 0, data)))
        play.ask(f"idempotent, into {kind}", "Produce", 9, produce((topic, 0, _idempotent(codec=GZIP))))
        play.ask(
            f"idempotent, into {kind}, again", "Produce", 9, produce((topic, 0, _idempotent(codec=GZIP)))
        )
        play.ask(
            f"swapped offset deltas into {kind}",
            "Produce",
            9,
            produce((topic, 0, batch([record(offset_delta=1), record()]))),
        )
        play.ask(
            f"a time too late into {kind}",
            "Produce",
            9,
            produce((topic, 0, batch([record()], base_timestamp=now + 2 * HOUR_MS))),
        )
        play.ask(f"what was stored by {kind}", "Fetch", 12, fetch((topic, 0, 0)))
    timed = play.topic("timed", compression_type="lz4", message_timestamp_type="LogAppendTime")
    for codec in range(5):
        play.ask(
            f"codec {codec} into lz4 with log append time",
            "Produce",
            9,
            produce((timed, 0, batch(2, codec=codec))),
        )
    play.ask("what was stored with log append time", "Fetch", 12, fetch((timed, 0, 0)))


def _idempotent(codec: int) -> bytes:
    return batch(2, codec=codec, producer_id=8 * 10**9, producer_epoch=0, base_sequence=0)


@script
def sizes_after_recompression(play: Play) -> None:
    small = play.topic("small", compression_type="uncompressed", max_message_bytes="2000")
    squeezed = play.topic("squeezed", compression_type="gzip", max_message_bytes="2000")
    data = batch([record(b"x" * 5000)], codec=GZIP)
    play.ask("small as gzip, too large once uncompressed", "Produce", 9, produce((small, 0, data)))
    play.ask(
        "too large as it came, small as gzip",
        "Produce",
        9,
        produce((squeezed, 0, batch([record(b"x" * 5000)]))),
    )
    play.ask("small both ways", "Produce", 9, produce((squeezed, 0, batch([record(b"x" * 1500)]))))


@script
def a_batch_larger_than_a_segment(play: Play) -> None:
    topic = play.topic("a", internal_segment_bytes="500")
    fits = 500 - len(batch([record(b"x" * 400)])) + 400
    for case, size in {
        "small": 10,
        "just a segment": fits,
        "a byte more": fits + 1,
        "much more": 5000,
    }.items():
        play.ask(case, "Produce", 9, produce((topic, 0, batch([record(b"x" * size)]))))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))
