"""Logs: segments, retention, cleaning, compression, and what a new topic gets.

Rows of `name: (type, default, validator, importance, update mode)`, see `broker.config.definitions.Row`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.config.definitions import Row

ROWS: dict[str, Row] = {
    "alter.config.policy.class.name": ("CLASS", None, "", "LOW", "read-only"),
    "auto.create.topics.enable": ("BOOLEAN", "true", "", "HIGH", "read-only"),
    "compression.gzip.level": ("INT", "-1", "[1,...,9] or -1", "MEDIUM", "cluster-wide"),
    "compression.lz4.level": ("INT", "9", "[1,...,17]", "MEDIUM", "cluster-wide"),
    "compression.type": (
        "STRING",
        "producer",
        "[uncompressed, zstd, lz4, snappy, gzip, producer]",
        "HIGH",
        "cluster-wide",
    ),
    "compression.zstd.level": ("INT", "3", "[-131072,...,22]", "MEDIUM", "cluster-wide"),
    "cordoned.log.dirs": ("LIST", "", "distinct or null", "MEDIUM", "per-broker"),
    "create.topic.policy.class.name": ("CLASS", None, "", "LOW", "read-only"),
    "log.cleaner.backoff.ms": ("LONG", "15000", "[0,...]", "MEDIUM", "cluster-wide"),
    "log.cleaner.dedupe.buffer.size": ("LONG", "134217728", "", "MEDIUM", "cluster-wide"),
    "log.cleaner.delete.retention.ms": ("LONG", "86400000", "[0,...]", "MEDIUM", "cluster-wide"),
    "log.cleaner.enable": ("BOOLEAN", "true", "", "MEDIUM", "read-only"),
    "log.cleaner.io.buffer.load.factor": ("DOUBLE", "0.9", "", "MEDIUM", "cluster-wide"),
    "log.cleaner.io.buffer.size": ("INT", "524288", "[0,...]", "MEDIUM", "cluster-wide"),
    "log.cleaner.io.max.bytes.per.second": ("DOUBLE", "1.7976931348623157E308", "", "MEDIUM", "cluster-wide"),
    "log.cleaner.max.compaction.lag.ms": ("LONG", "9223372036854775807", "[1,...]", "MEDIUM", "cluster-wide"),
    "log.cleaner.min.cleanable.ratio": ("DOUBLE", "0.5", "[0,...,1]", "MEDIUM", "cluster-wide"),
    "log.cleaner.min.compaction.lag.ms": ("LONG", "0", "[0,...]", "MEDIUM", "cluster-wide"),
    "log.cleaner.threads": ("INT", "1", "[0,...]", "MEDIUM", "cluster-wide"),
    "log.cleanup.policy": ("LIST", "delete", "[compact, delete]", "MEDIUM", "cluster-wide"),
    "log.dir": ("LIST", "/tmp/kafka-logs", "distinct, non-empty", "HIGH", "read-only"),  # noqa: S108
    "log.dir.failure.timeout.ms": ("LONG", "30000", "[1,...]", "LOW", "read-only"),
    "log.dirs": ("LIST", None, "distinct, non-empty or null", "HIGH", "read-only"),
    "log.flush.interval.messages": ("LONG", "9223372036854775807", "[1,...]", "HIGH", "cluster-wide"),
    "log.flush.interval.ms": ("LONG", None, "", "HIGH", "cluster-wide"),
    "log.flush.offset.checkpoint.interval.ms": ("INT", "60000", "[0,...]", "HIGH", "read-only"),
    "log.flush.scheduler.interval.ms": ("LONG", "9223372036854775807", "", "HIGH", "read-only"),
    "log.flush.start.offset.checkpoint.interval.ms": ("INT", "60000", "[0,...]", "HIGH", "read-only"),
    "log.index.interval.bytes": ("INT", "4096", "[0,...]", "MEDIUM", "cluster-wide"),
    "log.index.size.max.bytes": ("INT", "10485760", "[4,...]", "MEDIUM", "cluster-wide"),
    "log.local.retention.bytes": ("LONG", "-2", "[-2,...]", "MEDIUM", "cluster-wide"),
    "log.local.retention.ms": ("LONG", "-2", "[-2,...]", "MEDIUM", "cluster-wide"),
    "log.message.timestamp.after.max.ms": ("LONG", "3600000", "[0,...]", "MEDIUM", "cluster-wide"),
    "log.message.timestamp.before.max.ms": (
        "LONG",
        "9223372036854775807",
        "[0,...]",
        "MEDIUM",
        "cluster-wide",
    ),
    "log.message.timestamp.type": (
        "STRING",
        "CreateTime",
        "[CreateTime, LogAppendTime]",
        "MEDIUM",
        "cluster-wide",
    ),
    "log.preallocate": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "log.retention.bytes": ("LONG", "-1", "", "HIGH", "cluster-wide"),
    "log.retention.check.interval.ms": ("LONG", "300000", "[1,...]", "MEDIUM", "read-only"),
    "log.retention.hours": ("INT", "168", "", "HIGH", "read-only"),
    "log.retention.minutes": ("INT", None, "", "HIGH", "read-only"),
    "log.retention.ms": ("LONG", None, "", "HIGH", "cluster-wide"),
    "log.roll.hours": ("INT", "168", "[1,...]", "HIGH", "read-only"),
    "log.roll.jitter.hours": ("INT", "0", "[0,...]", "HIGH", "read-only"),
    "log.roll.jitter.ms": ("LONG", None, "", "HIGH", "cluster-wide"),
    "log.roll.ms": ("LONG", None, "", "HIGH", "cluster-wide"),
    "log.segment.bytes": ("INT", "1073741824", "[1048576,...]", "HIGH", "cluster-wide"),
    "log.segment.delete.delay.ms": ("LONG", "60000", "[0,...]", "HIGH", "cluster-wide"),
    "message.max.bytes": ("INT", "1048588", "[0,...]", "HIGH", "cluster-wide"),
    "min.insync.replicas": ("INT", "1", "[1,...]", "HIGH", "cluster-wide"),
    "num.partitions": ("INT", "1", "[1,...]", "MEDIUM", "read-only"),
    "num.recovery.threads.per.data.dir": ("INT", "2", "[1,...]", "HIGH", "cluster-wide"),
}

# Kafka hides these (ConfigDef.defineInternal): accepted, described only where set.
INTERNAL_ROWS: dict[str, Row] = {
    "log.initial.task.delay.ms": ("LONG", "30000", "[0,...]", "LOW", "read-only"),
}
