"""What a topic's settings say of the batches that it takes."""

from dataclasses import dataclass

from protocol.records import compression

_INT64_MAX = 2**63 - 1

TARGET_CODECS = {
    "uncompressed": compression.NONE,
    "gzip": compression.GZIP,
    "snappy": compression.SNAPPY,
    "lz4": compression.LZ4,
    "zstd": compression.ZSTD,
}
"""The values of `compression.type` but for "producer", which keeps each batch's own codec."""


@dataclass(frozen=True, slots=True)
class RecordRules:
    """What a topic's configuration says of batches; the defaults are those of Kafka 4.3."""

    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    before_max_ms: int = _INT64_MAX
    after_max_ms: int = 3_600_000
    compacted: bool = False
    compression_type: str = "producer"
    compression_level: int | None = None
    """Of the codec in `compression_type`; None for its default."""
