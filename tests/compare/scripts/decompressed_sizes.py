"""max.decompressed.message.bytes, and the other limits that came with Kafka 4.4."""

from __future__ import annotations

from ..batches import GZIP, LZ4, NONE, SNAPPY, T0, ZSTD, batch, record
from ..config_requests import NEEDS, SET, TOPIC, change, changed, until_set
from ..play import Play, script
from ..requests import list_offsets, produce

BODY_BYTES = 110
"""The size of a record with 100 bytes, the key "key" and no headers."""


@script(needs=NEEDS)
def produced(play: Play) -> None:
    exactly = play.topic("a", 1, max_decompressed_message_bytes=str(BODY_BYTES))
    less = play.topic("b", 1, max_decompressed_message_bytes=str(BODY_BYTES - 1))
    packed = play.topic("c", 1, max_decompressed_message_bytes="1", compression_type="gzip")
    compacted = play.topic("d", 1, max_decompressed_message_bytes="50", cleanup_policy="compact")
    records = [record(b"v"), record(bytes(100), offset_delta=1), record(b"v", offset_delta=2)]
    for codec in (NONE, GZIP, SNAPPY, LZ4, ZSTD):
        for case, topic in {"as large": exactly, "larger": less}.items():
            sent = produce((topic, 0, batch(records, codec=codec)))
            play.ask(f"codec {codec}: {case}", "Produce", 9, sent)
    play.ask("packed here", "Produce", 9, produce((packed, 0, batch(records))))
    wrong = [record(b"v", key=None), record(bytes(100), offset_delta=1)]
    play.ask("behind a null key", "Produce", 9, produce((compacted, 0, batch(wrong, codec=GZIP))))
    play.ask("small behind a null key", "Produce", 9, produce((compacted, 0, batch(wrong[:1], codec=GZIP))))


@script(needs=NEEDS)
def looked_up(play: Play) -> None:
    for codec in (NONE, GZIP):
        topic = play.topic(f"a{codec}")
        records = [
            record(b"v", timestamp_delta=10),
            record(bytes(100), offset_delta=1, timestamp_delta=20),
            record(b"v", offset_delta=2, timestamp_delta=30),
        ]
        sent = produce((topic, 0, batch(records, codec=codec, max_timestamp=T0 + 30)))
        play.ask(f"codec {codec}: stored", "Produce", 9, sent)
        name = "max.decompressed.message.bytes"
        asked = changed(change(TOPIC, topic.name, (name, SET, "50")))
        play.ask(f"codec {codec}: lowered", "IncrementalAlterConfigs", 1, asked)
        until_set(play, TOPIC, topic.name, name, "50")
        play.until(
            "the log is told too",
            lambda topic=topic, codec=codec: (  # type: ignore[misc]
                codec == NONE
                or play.quietly("ListOffsets", 7, list_offsets((topic.name, 0, T0 + 30)))
                .topics[0]
                .partitions[0]
                .error_code
                != 0
            ),
        )
        for at in (10, 15, 30, 31):
            play.ask(f"codec {codec}: at {at}", "ListOffsets", 7, list_offsets((topic.name, 0, T0 + at)))
        play.ask(f"codec {codec}: the largest", "ListOffsets", 7, list_offsets((topic.name, 0, -3)))
