"""The 33 settings of a topic, `internal.segment.bytes`, and the broker's settings that stand behind them.

Kafka's LogConfig and ServerTopicConfigSynonyms. The rows are in the order in which Kafka validates them, so
that of several wrong values the same one is complained of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.definitions import ConfigDef, definition_of

if TYPE_CHECKING:
    from broker.config.definitions import Row

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

TOPIC_ROWS: dict[str, Row] = {
    "segment.bytes": ("INT", "1073741824", "[1048576,...]", "MEDIUM", "cluster-wide"),
    "segment.ms": ("LONG", "604800000", "[1,...]", "MEDIUM", "cluster-wide"),
    "segment.jitter.ms": ("LONG", "0", "[0,...]", "MEDIUM", "cluster-wide"),
    "segment.index.bytes": ("INT", "10485760", "[4,...]", "MEDIUM", "cluster-wide"),
    "flush.messages": ("LONG", "9223372036854775807", "[1,...]", "MEDIUM", "cluster-wide"),
    "flush.ms": ("LONG", "9223372036854775807", "[0,...]", "MEDIUM", "cluster-wide"),
    "retention.bytes": ("LONG", "-1", "", "MEDIUM", "cluster-wide"),
    "retention.ms": ("LONG", "604800000", "[-1,...]", "MEDIUM", "cluster-wide"),
    "max.message.bytes": ("INT", "1048588", "[0,...]", "MEDIUM", "cluster-wide"),
    "index.interval.bytes": ("INT", "4096", "[0,...]", "MEDIUM", "cluster-wide"),
    "delete.retention.ms": ("LONG", "86400000", "[0,...]", "MEDIUM", "cluster-wide"),
    "min.compaction.lag.ms": ("LONG", "0", "[0,...]", "MEDIUM", "cluster-wide"),
    "max.compaction.lag.ms": ("LONG", "9223372036854775807", "[1,...]", "MEDIUM", "cluster-wide"),
    "file.delete.delay.ms": ("LONG", "60000", "[0,...]", "MEDIUM", "cluster-wide"),
    "min.cleanable.dirty.ratio": ("DOUBLE", "0.5", "[0,...,1]", "MEDIUM", "cluster-wide"),
    "cleanup.policy": ("LIST", "delete", "[compact, delete]", "MEDIUM", "cluster-wide"),
    "unclean.leader.election.enable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "min.insync.replicas": ("INT", "1", "[1,...]", "MEDIUM", "cluster-wide"),
    "compression.type": (
        "STRING",
        "producer",
        "[uncompressed, zstd, lz4, snappy, gzip, producer]",
        "MEDIUM",
        "cluster-wide",
    ),
    "compression.gzip.level": ("INT", "-1", "[1,...,9] or -1", "MEDIUM", "cluster-wide"),
    "compression.lz4.level": ("INT", "9", "[1,...,17]", "MEDIUM", "cluster-wide"),
    "compression.zstd.level": ("INT", "3", "[-131072,...,22]", "MEDIUM", "cluster-wide"),
    "preallocate": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "message.timestamp.type": (
        "STRING",
        "CreateTime",
        "[CreateTime, LogAppendTime]",
        "MEDIUM",
        "cluster-wide",
    ),
    "message.timestamp.before.max.ms": ("LONG", "9223372036854775807", "[0,...]", "MEDIUM", "cluster-wide"),
    "message.timestamp.after.max.ms": ("LONG", "3600000", "[0,...]", "MEDIUM", "cluster-wide"),
    "leader.replication.throttled.replicas": ("LIST", "", "throttled replicas", "MEDIUM", "cluster-wide"),
    "follower.replication.throttled.replicas": ("LIST", "", "throttled replicas", "MEDIUM", "cluster-wide"),
    "remote.storage.enable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "local.retention.ms": ("LONG", "-2", "[-2,...]", "MEDIUM", "cluster-wide"),
    "local.retention.bytes": ("LONG", "-2", "[-2,...]", "MEDIUM", "cluster-wide"),
    "remote.log.copy.disable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "remote.log.delete.on.disable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
}

INTERNAL_TOPIC_ROWS: dict[str, Row] = {
    "internal.segment.bytes": ("INT", None, "", "MEDIUM", "cluster-wide"),
}

TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "max.message.bytes": (("message.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
}
"""A topic's setting -> the broker's (name, factor to the topic's unit), the strongest first."""


def topic_definition(name: str) -> ConfigDef | None:
    """The definition of a topic's setting, the hidden one included; None for a name that isn't known."""
    row = TOPIC_ROWS.get(name)
    if row is not None:
        return definition_of(name, row)
    row = INTERNAL_TOPIC_ROWS.get(name)
    return None if row is None else definition_of(name, row, internal=True)
