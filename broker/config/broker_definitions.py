"""The 350 settings of a Kafka 4.4 broker, its hidden ones, those that can only be set at run time, and our
own.

They are grouped by family, in rows of `name: (type, default, validator, importance, update mode)`
(`broker.config.definitions.Row`): the node itself, logs, coordinators, security, tiered storage. Below the
rows, the families are put together, and settings are found by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.definitions import ConfigDef, definition_of

if TYPE_CHECKING:
    from broker.config.definitions import Row


SERVER_ROWS: dict[str, Row] = {
    "advertised.listeners": ("LIST", None, "distinct, non-empty or null", "HIGH", "read-only"),
    "alter.log.dirs.replication.quota.window.num": ("INT", "11", "[1,...]", "LOW", "read-only"),
    "alter.log.dirs.replication.quota.window.size.seconds": ("INT", "1", "[1,...]", "LOW", "read-only"),
    "auto.leader.rebalance.enable": ("BOOLEAN", "true", "", "HIGH", "read-only"),
    "background.threads": ("INT", "10", "[1,...]", "HIGH", "cluster-wide"),
    "broker.heartbeat.interval.ms": ("INT", "2000", "", "MEDIUM", "read-only"),
    "broker.id": ("INT", "-1", "", "HIGH", "read-only"),
    "broker.rack": ("STRING", None, "", "MEDIUM", "read-only"),
    "broker.session.timeout.ms": ("INT", "9000", "", "MEDIUM", "read-only"),
    "client.quota.callback.class": ("CLASS", None, "", "LOW", "read-only"),
    "config.providers": ("LIST", "", "distinct", "LOW", "cluster-wide"),
    "connection.failed.authentication.delay.ms": ("INT", "100", "[0,...]", "LOW", "read-only"),
    "connections.max.idle.ms": ("LONG", "600000", "", "MEDIUM", "read-only"),
    "controlled.shutdown.enable": ("BOOLEAN", "true", "", "MEDIUM", "read-only"),
    "controller.listener.names": ("LIST", None, "distinct, non-empty", "HIGH", "read-only"),
    "controller.quorum.append.linger.ms": ("INT", "25", "[0,...]", "MEDIUM", "read-only"),
    "controller.quorum.auto.join.enable": ("BOOLEAN", "false", "", "LOW", "read-only"),
    "controller.quorum.bootstrap.servers": ("LIST", "", "", "HIGH", "read-only"),
    "controller.quorum.election.backoff.max.ms": ("INT", "1000", "[0,...]", "HIGH", "read-only"),
    "controller.quorum.election.timeout.ms": ("INT", "1000", "[0,...]", "HIGH", "read-only"),
    "controller.quorum.fetch.max.bytes": ("INT", "1048576", "[1,...]", "LOW", "read-only"),
    "controller.quorum.fetch.snapshot.max.bytes": ("INT", "1048576", "[1,...]", "LOW", "read-only"),
    "controller.quorum.fetch.timeout.ms": ("INT", "2000", "[0,...]", "HIGH", "read-only"),
    "controller.quorum.request.timeout.ms": ("INT", "2000", "[0,...]", "MEDIUM", "read-only"),
    "controller.quorum.retry.backoff.ms": ("INT", "20", "[0,...]", "LOW", "read-only"),
    "controller.quorum.voters": ("LIST", "", "", "HIGH", "read-only"),
    "controller.quota.window.num": ("INT", "11", "[1,...]", "LOW", "read-only"),
    "controller.quota.window.size.seconds": ("INT", "1", "[1,...]", "LOW", "read-only"),
    "controller.socket.timeout.ms": ("INT", "30000", "", "MEDIUM", "read-only"),
    "default.replication.factor": ("INT", "1", "", "MEDIUM", "read-only"),
    "delete.records.purgatory.purge.interval.requests": ("INT", "1", "", "MEDIUM", "read-only"),
    "delete.topic.enable": ("BOOLEAN", "true", "", "HIGH", "read-only"),
    "early.start.listeners": ("LIST", None, "distinct or null", "HIGH", "read-only"),
    "fetch.max.bytes": ("INT", "57671680", "[1024,...]", "MEDIUM", "read-only"),
    "fetch.purgatory.purge.interval.requests": ("INT", "1000", "", "MEDIUM", "read-only"),
    "initial.broker.registration.timeout.ms": ("INT", "60000", "", "MEDIUM", "read-only"),
    "inter.broker.listener.name": ("STRING", None, "", "MEDIUM", "read-only"),
    "kafka.metrics.polling.interval.secs": ("INT", "10", "[1,...]", "LOW", "read-only"),
    "kafka.metrics.reporters": ("LIST", "", "distinct", "LOW", "read-only"),
    "leader.imbalance.check.interval.seconds": ("LONG", "300", "[1,...]", "HIGH", "read-only"),
    "listener.security.protocol.map": (
        "STRING",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "",
        "LOW",
        "per-broker",
    ),
    "listeners": ("LIST", "PLAINTEXT://:9092", "distinct, non-empty", "HIGH", "per-broker"),
    "max.connection.creation.rate": ("INT", "2147483647", "[0,...]", "MEDIUM", "cluster-wide"),
    "max.connections": ("INT", "2147483647", "[0,...]", "MEDIUM", "cluster-wide"),
    "max.connections.per.ip": ("INT", "2147483647", "[0,...]", "MEDIUM", "cluster-wide"),
    "max.connections.per.ip.overrides": ("STRING", "", "", "MEDIUM", "cluster-wide"),
    "max.incremental.fetch.session.cache.slots": ("INT", "1000", "[0,...]", "MEDIUM", "read-only"),
    "max.request.partition.size.limit": ("INT", "2000", "[1,...]", "MEDIUM", "read-only"),
    "metadata.log.dir": ("STRING", None, "", "HIGH", "read-only"),
    "metadata.log.max.record.bytes.between.snapshots": ("LONG", "20971520", "[1,...]", "HIGH", "read-only"),
    "metadata.log.max.snapshot.interval.ms": ("LONG", "3600000", "[0,...]", "HIGH", "read-only"),
    "metadata.log.segment.bytes": ("INT", "1073741824", "[8388608,...]", "HIGH", "read-only"),
    "metadata.log.segment.ms": ("LONG", "604800000", "", "HIGH", "read-only"),
    "metadata.max.idle.interval.ms": ("INT", "500", "[0,...]", "LOW", "read-only"),
    "metadata.max.retention.bytes": ("LONG", "104857600", "", "HIGH", "read-only"),
    "metadata.max.retention.ms": ("LONG", "604800000", "", "HIGH", "read-only"),
    "metric.reporters": (
        "LIST",
        "org.apache.kafka.common.metrics.JmxReporter",
        "distinct",
        "LOW",
        "cluster-wide",
    ),
    "metrics.num.samples": ("INT", "2", "[1,...]", "LOW", "read-only"),
    "metrics.recording.level": ("STRING", "INFO", "", "LOW", "read-only"),
    "metrics.sample.window.ms": ("LONG", "30000", "[1,...]", "LOW", "read-only"),
    "node.id": ("INT", None, "[0,...]", "HIGH", "read-only"),
    "num.io.threads": ("INT", "8", "[1,...]", "HIGH", "cluster-wide"),
    "num.network.threads": ("INT", "3", "[1,...]", "HIGH", "cluster-wide"),
    "num.replica.alter.log.dirs.threads": ("INT", None, "", "HIGH", "read-only"),
    "num.replica.fetchers": ("INT", "1", "[1,...]", "HIGH", "cluster-wide"),
    "process.roles": ("LIST", None, "[broker, controller] non-empty", "HIGH", "read-only"),
    "producer.purgatory.purge.interval.requests": ("INT", "1000", "", "MEDIUM", "read-only"),
    "queued.max.request.bytes": ("LONG", "-1", "", "MEDIUM", "read-only"),
    "queued.max.requests": ("INT", "500", "[1,...]", "HIGH", "read-only"),
    "quota.window.num": ("INT", "11", "[1,...]", "LOW", "read-only"),
    "quota.window.size.seconds": ("INT", "1", "[1,...]", "LOW", "read-only"),
    "replica.fetch.backoff.ms": ("INT", "1000", "[0,...]", "MEDIUM", "read-only"),
    "replica.fetch.max.bytes": ("INT", "1048576", "[0,...]", "MEDIUM", "read-only"),
    "replica.fetch.min.bytes": ("INT", "1", "", "HIGH", "read-only"),
    "replica.fetch.response.max.bytes": ("INT", "10485760", "[0,...]", "MEDIUM", "read-only"),
    "replica.fetch.wait.max.ms": ("INT", "500", "", "HIGH", "read-only"),
    "replica.high.watermark.checkpoint.interval.ms": ("LONG", "5000", "", "HIGH", "read-only"),
    "replica.lag.time.max.ms": ("LONG", "30000", "", "HIGH", "read-only"),
    "replica.selector.class": ("STRING", None, "", "MEDIUM", "read-only"),
    "replica.socket.receive.buffer.bytes": ("INT", "65536", "", "HIGH", "read-only"),
    "replica.socket.timeout.ms": ("INT", "30000", "", "HIGH", "read-only"),
    "replication.quota.window.num": ("INT", "11", "[1,...]", "LOW", "read-only"),
    "replication.quota.window.size.seconds": ("INT", "1", "[1,...]", "LOW", "read-only"),
    "request.timeout.ms": ("INT", "30000", "", "HIGH", "read-only"),
    "socket.connection.setup.timeout.max.ms": ("LONG", "30000", "", "MEDIUM", "read-only"),
    "socket.connection.setup.timeout.ms": ("LONG", "10000", "", "MEDIUM", "read-only"),
    "socket.listen.backlog.size": ("INT", "50", "[1,...]", "MEDIUM", "read-only"),
    "socket.receive.buffer.bytes": ("INT", "102400", "", "HIGH", "read-only"),
    "socket.request.max.bytes": ("INT", "104857600", "[1,...]", "HIGH", "read-only"),
    "socket.send.buffer.bytes": ("INT", "102400", "", "HIGH", "read-only"),
    "telemetry.max.bytes": ("INT", "1048576", "[1,...]", "LOW", "read-only"),
    "unclean.leader.election.enable": ("BOOLEAN", "false", "", "HIGH", "cluster-wide"),
}

# Hidden by Kafka (ConfigDef.defineInternal): accepted, but only described if they are set.
INTERNAL_SERVER_ROWS: dict[str, Row] = {
    "controller.performance.always.log.threshold.ms": ("LONG", "2000", "[0,...]", "MEDIUM", "read-only"),
    "controller.performance.sample.period.ms": ("LONG", "60000", "[100,...]", "MEDIUM", "read-only"),
    "internal.metadata.delete.delay.millis": ("LONG", "60000", "", "LOW", "read-only"),
    "internal.metadata.log.segment.bytes": ("INT", None, "", "LOW", "read-only"),
    "internal.metadata.max.batch.size.in.bytes": ("INT", "8388608", "", "LOW", "read-only"),
    "server.max.startup.time.ms": ("LONG", "9223372036854775807", "[0,...]", "MEDIUM", "read-only"),
    "unclean.leader.election.interval.ms": ("LONG", "300000", "[1,...]", "MEDIUM", "read-only"),
    "unstable.api.versions.enable": ("BOOLEAN", "false", "", "HIGH", "read-only"),
    "unstable.feature.versions.enable": ("BOOLEAN", "false", "", "HIGH", "read-only"),
}


# --- Logs: segments, retention, cleaning, compression, and what a new topic gets ----------------------------

LOG_ROWS: dict[str, Row] = {
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
    "log.remote.copy.lag.bytes": ("LONG", "-1", "[-1,...]", "MEDIUM", "cluster-wide"),
    "log.remote.copy.lag.ms": ("LONG", "0", "[-1,...]", "MEDIUM", "cluster-wide"),
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
    "max.decompressed.message.bytes": ("INT", "2147483639", "[1,...,2147483639]", "MEDIUM", "cluster-wide"),
    "message.max.bytes": ("INT", "1048588", "[0,...]", "HIGH", "cluster-wide"),
    "min.insync.replicas": ("INT", "1", "[1,...]", "HIGH", "cluster-wide"),
    "num.partitions": ("INT", "1", "[1,...]", "MEDIUM", "read-only"),
    "num.recovery.threads.per.data.dir": ("INT", "2", "[1,...]", "HIGH", "cluster-wide"),
}

# Hidden by Kafka (ConfigDef.defineInternal): accepted, but only described if they are set.
INTERNAL_LOG_ROWS: dict[str, Row] = {
    "log.initial.task.delay.ms": ("LONG", "30000", "[0,...]", "LOW", "read-only"),
}


# --- Groups, share groups, transactions, producer ids and their internal topics -----------------------------

COORDINATOR_ROWS: dict[str, Row] = {
    "add.partitions.to.txn.retry.backoff.max.ms": ("INT", "100", "[0,...]", "HIGH", "read-only"),
    "add.partitions.to.txn.retry.backoff.ms": ("INT", "20", "[1,...]", "HIGH", "read-only"),
    "errors.deadletterqueue.auto.create.topics.enable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "errors.deadletterqueue.topic.name.prefix": ("STRING", "dlq.", "", "MEDIUM", "cluster-wide"),
    "group.consumer.assignment.interval.ms": ("INT", "1000", "[0,...]", "MEDIUM", "cluster-wide"),
    "group.consumer.assignors": ("LIST", "uniform,range", "distinct, non-empty", "MEDIUM", "read-only"),
    "group.consumer.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "read-only"),
    "group.consumer.max.assignment.interval.ms": ("INT", "15000", "[0,...]", "MEDIUM", "read-only"),
    "group.consumer.max.heartbeat.interval.ms": ("INT", "15000", "[1,...]", "MEDIUM", "read-only"),
    "group.consumer.max.session.timeout.ms": ("INT", "60000", "[1,...]", "MEDIUM", "read-only"),
    "group.consumer.max.size": ("INT", "2147483647", "[1,...]", "MEDIUM", "read-only"),
    "group.consumer.migration.policy": (
        "STRING",
        "bidirectional",
        "(case insensitive) [DISABLED, DOWNGRADE, UPGRADE, BIDIRECTIONAL]",
        "MEDIUM",
        "read-only",
    ),
    "group.consumer.min.assignment.interval.ms": ("INT", "0", "[0,...]", "MEDIUM", "read-only"),
    "group.consumer.min.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "read-only"),
    "group.consumer.min.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "read-only"),
    "group.consumer.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "read-only"),
    "group.coordinator.append.linger.ms": ("INT", "-1", "[-1,...]", "MEDIUM", "read-only"),
    "group.coordinator.background.threads": ("INT", "2", "[1,...]", "HIGH", "read-only"),
    "group.coordinator.cached.buffer.max.bytes": ("INT", "1048588", "[524288,...]", "MEDIUM", "cluster-wide"),
    "group.coordinator.rebalance.protocols": (
        "LIST",
        "classic,consumer,streams",
        "[consumer, classic, share, streams] non-empty",
        "MEDIUM",
        "read-only",
    ),
    "group.coordinator.threads": ("INT", "4", "[1,...]", "HIGH", "read-only"),
    "group.initial.rebalance.delay.ms": ("INT", "3000", "", "MEDIUM", "read-only"),
    "group.max.session.timeout.ms": ("INT", "1800000", "", "MEDIUM", "read-only"),
    "group.max.size": ("INT", "2147483647", "[1,...]", "MEDIUM", "read-only"),
    "group.min.session.timeout.ms": ("INT", "6000", "", "MEDIUM", "read-only"),
    "group.share.assignment.interval.ms": ("INT", "1000", "[0,...]", "MEDIUM", "cluster-wide"),
    "group.share.assignors": ("LIST", "simple", "distinct, non-empty", "MEDIUM", "read-only"),
    "group.share.delivery.count.limit": ("INT", "5", "[2,...,10]", "MEDIUM", "read-only"),
    "group.share.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "read-only"),
    "group.share.max.assignment.interval.ms": ("INT", "15000", "[0,...]", "MEDIUM", "read-only"),
    "group.share.max.delivery.count.limit": ("INT", "10", "[5,...,25]", "MEDIUM", "read-only"),
    "group.share.max.heartbeat.interval.ms": ("INT", "15000", "[1,...]", "MEDIUM", "read-only"),
    "group.share.max.partition.max.record.locks": ("INT", "4000", "[2000,...,10000]", "MEDIUM", "read-only"),
    "group.share.max.record.lock.duration.ms": ("INT", "60000", "[30000,...,3600000]", "MEDIUM", "read-only"),
    "group.share.max.session.timeout.ms": ("INT", "60000", "[1,...]", "MEDIUM", "read-only"),
    "group.share.max.share.sessions": ("INT", "2000", "[1,...]", "MEDIUM", "read-only"),
    "group.share.max.size": ("INT", "200", "[1,...,1000]", "MEDIUM", "read-only"),
    "group.share.min.assignment.interval.ms": ("INT", "0", "[0,...]", "MEDIUM", "read-only"),
    "group.share.min.delivery.count.limit": ("INT", "2", "[2,...,5]", "MEDIUM", "read-only"),
    "group.share.min.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "read-only"),
    "group.share.min.partition.max.record.locks": ("INT", "100", "[100,...,2000]", "MEDIUM", "read-only"),
    "group.share.min.record.lock.duration.ms": ("INT", "15000", "[1000,...,30000]", "MEDIUM", "read-only"),
    "group.share.min.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "read-only"),
    "group.share.partition.max.record.locks": ("INT", "2000", "[100,...,10000]", "MEDIUM", "read-only"),
    "group.share.record.lock.duration.ms": ("INT", "30000", "[1000,...,3600000]", "MEDIUM", "read-only"),
    "group.share.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.assignment.interval.ms": ("INT", "1000", "[0,...]", "MEDIUM", "cluster-wide"),
    "group.streams.assignors": ("LIST", "sticky", "distinct, non-empty", "MEDIUM", "read-only"),
    "group.streams.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.initial.rebalance.delay.ms": ("INT", "3000", "[0,...]", "MEDIUM", "read-only"),
    "group.streams.max.assignment.interval.ms": ("INT", "15000", "[0,...]", "MEDIUM", "read-only"),
    "group.streams.max.heartbeat.interval.ms": ("INT", "15000", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.max.session.timeout.ms": ("INT", "60000", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.max.size": ("INT", "2147483647", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.max.standby.replicas": ("INT", "2", "[0,...]", "MEDIUM", "read-only"),
    "group.streams.min.assignment.interval.ms": ("INT", "0", "[0,...]", "MEDIUM", "read-only"),
    "group.streams.min.heartbeat.interval.ms": ("INT", "5000", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.min.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.num.standby.replicas": ("INT", "0", "[0,...]", "MEDIUM", "read-only"),
    "group.streams.rack.aware.assignment.tags": ("LIST", "", "distinct", "LOW", "read-only"),
    "group.streams.session.timeout.ms": ("INT", "45000", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.topology.description.plugin.class": ("CLASS", None, "", "MEDIUM", "read-only"),
    "offset.metadata.max.bytes": ("INT", "4096", "", "HIGH", "read-only"),
    "offsets.commit.timeout.ms": ("INT", "5000", "[1,...]", "HIGH", "read-only"),
    "offsets.load.buffer.size": ("INT", "5242880", "[1,...]", "HIGH", "read-only"),
    "offsets.retention.check.interval.ms": ("LONG", "600000", "[1,...]", "HIGH", "read-only"),
    "offsets.retention.minutes": ("INT", "10080", "[1,...]", "HIGH", "read-only"),
    "offsets.topic.compression.codec": ("INT", "0", "", "HIGH", "read-only"),
    "offsets.topic.num.partitions": ("INT", "50", "[1,...]", "HIGH", "read-only"),
    "offsets.topic.replication.factor": ("SHORT", "3", "[1,...]", "HIGH", "read-only"),
    "offsets.topic.segment.bytes": ("INT", "104857600", "[1,...]", "HIGH", "read-only"),
    "producer.id.expiration.ms": ("INT", "86400000", "[1,...]", "LOW", "cluster-wide"),
    "share.coordinator.append.linger.ms": ("INT", "-1", "[-1,...]", "MEDIUM", "read-only"),
    "share.coordinator.cached.buffer.max.bytes": ("INT", "1048588", "[524288,...]", "MEDIUM", "cluster-wide"),
    "share.coordinator.load.buffer.size": ("INT", "5242880", "[1,...]", "HIGH", "read-only"),
    "share.coordinator.snapshot.update.records.per.snapshot": (
        "INT",
        "500",
        "[0,...,500]",
        "MEDIUM",
        "read-only",
    ),
    "share.coordinator.state.topic.compression.codec": ("INT", "0", "", "HIGH", "read-only"),
    "share.coordinator.state.topic.min.isr": ("SHORT", "2", "[1,...]", "HIGH", "read-only"),
    "share.coordinator.state.topic.num.partitions": ("INT", "50", "[1,...]", "HIGH", "read-only"),
    "share.coordinator.state.topic.replication.factor": ("SHORT", "3", "[1,...]", "HIGH", "read-only"),
    "share.coordinator.state.topic.segment.bytes": ("INT", "104857600", "[1,...]", "HIGH", "read-only"),
    "share.coordinator.threads": ("INT", "1", "[1,...]", "MEDIUM", "read-only"),
    "share.coordinator.write.timeout.ms": ("INT", "5000", "[1,...]", "HIGH", "read-only"),
    "share.fetch.purgatory.purge.interval.requests": ("INT", "1000", "", "MEDIUM", "read-only"),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (
        "INT",
        "10000",
        "[1,...]",
        "LOW",
        "read-only",
    ),
    "transaction.max.timeout.ms": ("INT", "900000", "[1,...]", "HIGH", "read-only"),
    "transaction.partition.verification.enable": ("BOOLEAN", "true", "", "LOW", "cluster-wide"),
    "transaction.remove.expired.transaction.cleanup.interval.ms": (
        "INT",
        "3600000",
        "[1,...]",
        "LOW",
        "read-only",
    ),
    "transaction.state.log.load.buffer.size": ("INT", "5242880", "[1,...]", "HIGH", "read-only"),
    "transaction.state.log.min.isr": ("INT", "2", "[1,...]", "HIGH", "read-only"),
    "transaction.state.log.num.partitions": ("INT", "50", "[1,...]", "HIGH", "read-only"),
    "transaction.state.log.replication.factor": ("SHORT", "3", "[1,...]", "HIGH", "read-only"),
    "transaction.state.log.segment.bytes": ("INT", "104857600", "[1,...]", "HIGH", "read-only"),
    "transaction.two.phase.commit.enable": ("BOOLEAN", "false", "", "LOW", "read-only"),
    "transactional.id.expiration.ms": ("INT", "604800000", "[1,...]", "HIGH", "read-only"),
}

# Hidden by Kafka (ConfigDef.defineInternal): accepted, but only described if they are set.
INTERNAL_COORDINATOR_ROWS: dict[str, Row] = {
    "group.consumer.assignor.offload.enable": ("BOOLEAN", "true", "", "MEDIUM", "cluster-wide"),
    "group.consumer.regex.refresh.interval.ms": ("INT", "600000", "[10000,...]", "MEDIUM", "read-only"),
    "group.share.assignor.offload.enable": ("BOOLEAN", "true", "", "MEDIUM", "cluster-wide"),
    "group.share.dlq.manager.class.name": (
        "STRING",
        "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager",
        "",
        "MEDIUM",
        "read-only",
    ),
    "group.share.initialize.retry.interval.ms": ("INT", "30000", "[1,...]", "LOW", "read-only"),
    "group.share.persister.class.name": (
        "STRING",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "",
        "MEDIUM",
        "read-only",
    ),
    "group.streams.acceptable.recovery.lag": ("LONG", "10000", "[0,...]", "MEDIUM", "read-only"),
    "group.streams.assignor.offload.enable": ("BOOLEAN", "true", "", "MEDIUM", "cluster-wide"),
    "group.streams.max.warmup.replicas": ("INT", "20", "[0,...]", "MEDIUM", "read-only"),
    "group.streams.min.task.offset.interval.ms": ("INT", "15000", "[1,...]", "MEDIUM", "read-only"),
    "group.streams.num.warmup.replicas": ("INT", "2", "[0,...]", "MEDIUM", "read-only"),
    "group.streams.task.offset.interval.ms": ("INT", "60000", "[1,...]", "MEDIUM", "read-only"),
    "producer.id.expiration.check.interval.ms": ("INT", "600000", "[1,...]", "LOW", "read-only"),
    "share.coordinator.cold.partition.snapshot.interval.ms": ("INT", "300000", "[1,...]", "LOW", "read-only"),
    "share.coordinator.state.topic.prune.interval.ms": ("INT", "300000", "[1,...]", "LOW", "read-only"),
}


# --- TLS, SASL, delegation tokens, authorization -------------------------------------------------------------

SECURITY_ROWS: dict[str, Row] = {
    "authorizer.class.name": ("STRING", "", "non-null", "LOW", "read-only"),
    "connections.max.reauth.ms": ("LONG", "0", "", "MEDIUM", "read-only"),
    "delegation.token.expiry.check.interval.ms": ("LONG", "3600000", "[1,...]", "LOW", "read-only"),
    "delegation.token.expiry.time.ms": ("LONG", "86400000", "[1,...]", "MEDIUM", "read-only"),
    "delegation.token.max.lifetime.ms": ("LONG", "604800000", "[1,...]", "MEDIUM", "read-only"),
    "delegation.token.secret.key": ("PASSWORD", None, "", "MEDIUM", "read-only"),
    "principal.builder.class": (
        "CLASS",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "",
        "MEDIUM",
        "per-broker",
    ),
    "sasl.client.callback.handler.class": ("CLASS", None, "", "MEDIUM", "read-only"),
    "sasl.enabled.mechanisms": ("LIST", "GSSAPI", "distinct", "MEDIUM", "per-broker"),
    "sasl.jaas.config": ("PASSWORD", None, "", "MEDIUM", "per-broker"),
    "sasl.kerberos.kinit.cmd": ("STRING", "/usr/bin/kinit", "", "MEDIUM", "per-broker"),
    "sasl.kerberos.min.time.before.relogin": ("LONG", "60000", "", "MEDIUM", "per-broker"),
    "sasl.kerberos.principal.to.local.rules": ("LIST", "DEFAULT", "distinct", "MEDIUM", "per-broker"),
    "sasl.kerberos.service.name": ("STRING", None, "", "MEDIUM", "per-broker"),
    "sasl.kerberos.ticket.renew.jitter": ("DOUBLE", "0.05", "", "MEDIUM", "per-broker"),
    "sasl.kerberos.ticket.renew.window.factor": ("DOUBLE", "0.8", "", "MEDIUM", "per-broker"),
    "sasl.login.callback.handler.class": ("CLASS", None, "", "MEDIUM", "read-only"),
    "sasl.login.class": ("CLASS", None, "", "MEDIUM", "read-only"),
    "sasl.login.connect.timeout.ms": ("INT", None, "", "LOW", "read-only"),
    "sasl.login.read.timeout.ms": ("INT", None, "", "LOW", "read-only"),
    "sasl.login.refresh.buffer.seconds": ("SHORT", "300", "", "MEDIUM", "per-broker"),
    "sasl.login.refresh.min.period.seconds": ("SHORT", "60", "", "MEDIUM", "per-broker"),
    "sasl.login.refresh.window.factor": ("DOUBLE", "0.8", "", "MEDIUM", "per-broker"),
    "sasl.login.refresh.window.jitter": ("DOUBLE", "0.05", "", "MEDIUM", "per-broker"),
    "sasl.login.retry.backoff.max.ms": ("LONG", "10000", "", "LOW", "read-only"),
    "sasl.login.retry.backoff.ms": ("LONG", "100", "", "LOW", "read-only"),
    "sasl.mechanism.controller.protocol": ("STRING", "GSSAPI", "", "HIGH", "read-only"),
    "sasl.mechanism.inter.broker.protocol": ("STRING", "GSSAPI", "", "MEDIUM", "per-broker"),
    "sasl.oauthbearer.allow.unverified.audience": ("BOOLEAN", "false", "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.allow.unverified.issuer": ("BOOLEAN", "false", "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.assertion.algorithm": (
        "STRING",
        "RS256",
        "(case insensitive) [ES256, RS256]",
        "MEDIUM",
        "read-only",
    ),
    "sasl.oauthbearer.assertion.claim.aud": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.assertion.claim.exp.seconds": ("INT", "300", "[0,...,86400]", "LOW", "read-only"),
    "sasl.oauthbearer.assertion.claim.iss": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.assertion.claim.jti.include": ("BOOLEAN", "false", "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.assertion.claim.nbf.seconds": ("INT", "60", "[0,...,3600]", "LOW", "read-only"),
    "sasl.oauthbearer.assertion.claim.sub": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.assertion.file": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.assertion.private.key.file": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.assertion.private.key.passphrase": ("PASSWORD", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.assertion.template.file": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.client.credentials.client.id": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.client.credentials.client.secret": ("PASSWORD", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.clock.skew.seconds": ("INT", "30", "", "LOW", "read-only"),
    "sasl.oauthbearer.expected.audience": ("LIST", "", "distinct", "HIGH", "read-only"),
    "sasl.oauthbearer.expected.issuer": ("STRING", None, "", "HIGH", "read-only"),
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": ("LONG", "3600000", "", "LOW", "read-only"),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": ("LONG", "10000", "", "LOW", "read-only"),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": ("LONG", "100", "", "LOW", "read-only"),
    "sasl.oauthbearer.jwks.endpoint.url": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.jwt.retriever.class": (
        "CLASS",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "",
        "MEDIUM",
        "read-only",
    ),
    "sasl.oauthbearer.jwt.validator.class": (
        "CLASS",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "",
        "MEDIUM",
        "read-only",
    ),
    "sasl.oauthbearer.scope": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.oauthbearer.scope.claim.name": ("STRING", "scope", "", "LOW", "read-only"),
    "sasl.oauthbearer.sub.claim.name": ("STRING", "sub", "", "LOW", "read-only"),
    "sasl.oauthbearer.token.endpoint.url": ("STRING", None, "", "MEDIUM", "read-only"),
    "sasl.server.callback.handler.class": ("CLASS", None, "", "MEDIUM", "read-only"),
    "sasl.server.max.receive.size": ("INT", "524288", "", "MEDIUM", "read-only"),
    "security.inter.broker.protocol": (
        "STRING",
        "PLAINTEXT",
        "[PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL]",
        "MEDIUM",
        "read-only",
    ),
    "security.providers": ("STRING", None, "", "LOW", "read-only"),
    "ssl.allow.dn.changes": ("BOOLEAN", "false", "", "LOW", "read-only"),
    "ssl.allow.san.changes": ("BOOLEAN", "false", "", "LOW", "read-only"),
    "ssl.cipher.suites": ("LIST", "", "distinct", "MEDIUM", "per-broker"),
    "ssl.client.auth": ("STRING", "none", "[required, requested, none]", "MEDIUM", "per-broker"),
    "ssl.enabled.protocols": ("LIST", "TLSv1.2,TLSv1.3", "distinct", "MEDIUM", "per-broker"),
    "ssl.endpoint.identification.algorithm": ("STRING", "https", "", "LOW", "per-broker"),
    "ssl.engine.factory.class": ("CLASS", None, "", "LOW", "per-broker"),
    "ssl.key.password": ("PASSWORD", None, "", "MEDIUM", "per-broker"),
    "ssl.keymanager.algorithm": ("STRING", "SunX509", "", "MEDIUM", "per-broker"),
    "ssl.keystore.certificate.chain": ("PASSWORD", None, "", "MEDIUM", "per-broker"),
    "ssl.keystore.key": ("PASSWORD", None, "", "MEDIUM", "per-broker"),
    "ssl.keystore.location": ("STRING", None, "", "MEDIUM", "per-broker"),
    "ssl.keystore.password": ("PASSWORD", None, "", "MEDIUM", "per-broker"),
    "ssl.keystore.type": ("STRING", "JKS", "", "MEDIUM", "per-broker"),
    "ssl.principal.mapping.rules": ("STRING", "DEFAULT", "", "LOW", "read-only"),
    "ssl.protocol": ("STRING", "TLSv1.3", "", "MEDIUM", "per-broker"),
    "ssl.provider": ("STRING", None, "", "MEDIUM", "per-broker"),
    "ssl.secure.random.implementation": ("STRING", None, "", "LOW", "per-broker"),
    "ssl.trustmanager.algorithm": ("STRING", "PKIX", "", "MEDIUM", "per-broker"),
    "ssl.truststore.certificates": ("PASSWORD", None, "", "MEDIUM", "per-broker"),
    "ssl.truststore.location": ("STRING", None, "", "MEDIUM", "per-broker"),
    "ssl.truststore.password": ("PASSWORD", None, "", "MEDIUM", "per-broker"),
    "ssl.truststore.type": ("STRING", "JKS", "", "MEDIUM", "per-broker"),
}


# --- Tiered storage: known by name and type, but not supported ----------------------------------------------

REMOTE_ROWS: dict[str, Row] = {
    "follower.fetch.last.tiered.offset.enable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "remote.fetch.max.wait.ms": ("INT", "500", "[1,...]", "MEDIUM", "cluster-wide"),
    "remote.list.offsets.request.timeout.ms": ("LONG", "30000", "[1,...]", "MEDIUM", "cluster-wide"),
    "remote.log.index.file.cache.total.size.bytes": ("LONG", "1073741824", "[1,...]", "LOW", "cluster-wide"),
    "remote.log.manager.copier.thread.pool.size": ("INT", "10", "[1,...]", "MEDIUM", "cluster-wide"),
    "remote.log.manager.copy.max.bytes.per.second": (
        "LONG",
        "9223372036854775807",
        "[1,...]",
        "MEDIUM",
        "cluster-wide",
    ),
    "remote.log.manager.copy.quota.window.num": ("INT", "11", "[1,...]", "MEDIUM", "read-only"),
    "remote.log.manager.copy.quota.window.size.seconds": ("INT", "1", "[1,...]", "MEDIUM", "read-only"),
    "remote.log.manager.expiration.thread.pool.size": ("INT", "10", "[1,...]", "MEDIUM", "cluster-wide"),
    "remote.log.manager.fetch.max.bytes.per.second": (
        "LONG",
        "9223372036854775807",
        "[1,...]",
        "MEDIUM",
        "cluster-wide",
    ),
    "remote.log.manager.fetch.quota.window.num": ("INT", "11", "[1,...]", "MEDIUM", "read-only"),
    "remote.log.manager.fetch.quota.window.size.seconds": ("INT", "1", "[1,...]", "MEDIUM", "read-only"),
    "remote.log.manager.follower.thread.pool.size": ("INT", "2", "[1,...]", "MEDIUM", "cluster-wide"),
    "remote.log.manager.task.interval.ms": ("LONG", "30000", "[1,...]", "LOW", "read-only"),
    "remote.log.manager.thread.pool.size": ("INT", "2", "[1,...]", "MEDIUM", "read-only"),
    "remote.log.metadata.custom.metadata.max.bytes": ("INT", "128", "[0,...]", "LOW", "read-only"),
    "remote.log.metadata.manager.class.name": (
        "STRING",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "non-empty string",
        "MEDIUM",
        "read-only",
    ),
    "remote.log.metadata.manager.class.path": ("STRING", None, "", "MEDIUM", "read-only"),
    "remote.log.metadata.manager.impl.prefix": (
        "STRING",
        "rlmm.config.",
        "non-empty string",
        "MEDIUM",
        "read-only",
    ),
    "remote.log.metadata.manager.listener.name": ("STRING", None, "non-empty string", "MEDIUM", "read-only"),
    "remote.log.reader.max.pending.tasks": ("INT", "100", "[1,...]", "MEDIUM", "read-only"),
    "remote.log.reader.threads": ("INT", "10", "[1,...]", "MEDIUM", "cluster-wide"),
    "remote.log.storage.manager.class.name": ("STRING", None, "non-empty string", "MEDIUM", "read-only"),
    "remote.log.storage.manager.class.path": ("STRING", None, "", "MEDIUM", "read-only"),
    "remote.log.storage.manager.impl.prefix": (
        "STRING",
        "rsm.config.",
        "non-empty string",
        "MEDIUM",
        "read-only",
    ),
    "remote.log.storage.system.enable": ("BOOLEAN", "false", "", "MEDIUM", "read-only"),
}

# Hidden by Kafka (ConfigDef.defineInternal): accepted, but only described if they are set.
INTERNAL_REMOTE_ROWS: dict[str, Row] = {
    "remote.log.index.file.cache.ttl.ms": ("LONG", "900000", "[-1,...]", "LOW", "read-only"),
    "remote.log.manager.task.retry.backoff.max.ms": ("LONG", "30000", "[1,...]", "LOW", "read-only"),
    "remote.log.manager.task.retry.backoff.ms": ("LONG", "500", "[1,...]", "LOW", "read-only"),
    "remote.log.manager.task.retry.jitter": ("DOUBLE", "0.2", "[0,...,0.5]", "LOW", "read-only"),
}


# --- All together -------------------------------------------------------------------------------------------

BROKER_ROWS: dict[str, Row] = {
    **SERVER_ROWS,
    **LOG_ROWS,
    **COORDINATOR_ROWS,
    **REMOTE_ROWS,
    **SECURITY_ROWS,
}
"""By name. DescribeConfigs lists these for a broker."""

INTERNAL_BROKER_ROWS: dict[str, Row] = {
    **INTERNAL_SERVER_ROWS,
    **INTERNAL_LOG_ROWS,
    **INTERNAL_COORDINATOR_ROWS,
    **INTERNAL_REMOTE_ROWS,
}

# QuotaConfig.brokerQuotaConfigs: files can't have these, but IncrementalAlterConfigs can set them.
DYNAMIC_ONLY_ROWS: dict[str, Row] = {
    "follower.replication.throttled.rate": (
        "LONG",
        "9223372036854775807",
        "[0,...]",
        "MEDIUM",
        "cluster-wide",
    ),
    "leader.replication.throttled.rate": ("LONG", "9223372036854775807", "[0,...]", "MEDIUM", "cluster-wide"),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "LONG",
        "9223372036854775807",
        "[0,...]",
        "MEDIUM",
        "cluster-wide",
    ),
}

INTER_BROKER_REQUESTS = "barnabas.inter.broker.requests"

METRICS_LISTENER = "barnabas.metrics.listener"
"""HOST:PORT of the listener for `/metrics`, `/health` and `/ready`. Empty: none."""

CONTROL_LISTENER, CONTROL_TOKEN = "barnabas.control.listener", "barnabas.control.token"
"""HOST:PORT where tests ask for faults, another time or an empty broker; and the token that they need."""

JOURNAL_SIZE = "barnabas.journal.size"
"""How many requests to keep for those who ask what a broker was asked. 0: none."""

OWN_ROWS: dict[str, Row] = {
    INTER_BROKER_REQUESTS: ("BOOLEAN", "true", "", "MEDIUM", "read-only"),
    CONTROL_LISTENER: ("STRING", "", "", "MEDIUM", "read-only"),
    CONTROL_TOKEN: ("PASSWORD", None, "", "MEDIUM", "read-only"),
    JOURNAL_SIZE: ("INT", "0", "[0,...,1000000]", "LOW", "read-only"),
    METRICS_LISTENER: ("STRING", "", "", "MEDIUM", "read-only"),
}
"""Settings that Kafka doesn't have, and ignores in a file. Only described if they are set."""

# DynamicBrokerConfig.brokerConfigSynonyms: names of one setting in several units. The first one that is set
# counts.
BROKER_SYNONYMS: dict[str, tuple[str, ...]] = {
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.hours": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.hours": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}

# SASL settings that a listener may set for each mechanism: listener.name.<listener>.<mechanism>.<setting>.
_PER_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def broker_definition(name: str) -> ConfigDef | None:
    """Return the definition of a broker's setting of any kind, or None if there is none."""
    row = BROKER_ROWS.get(name)
    if row is not None:
        return definition_of(name, row)
    row = INTERNAL_BROKER_ROWS.get(name)
    if row is not None:
        return definition_of(name, row, internal=True)
    row = DYNAMIC_ONLY_ROWS.get(name) or OWN_ROWS.get(name)
    return None if row is None else definition_of(name, row)


def listener_prefix(listener: str) -> str:
    """The prefix of settings for one listener (Kafka: `ListenerName.configPrefix`)."""
    return f"listener.name.{listener.lower()}."


def without_listener(name: str) -> str | None:
    """Return the setting that `listener.name.<listener>.<setting>` sets for a listener. None for other
    names."""
    if not name.startswith("listener.name."):
        return None
    listener, dot, setting = name[len("listener.name.") :].partition(".")
    if not dot or not listener:
        return None
    if name.endswith(f".{INTER_BROKER_REQUESTS}"):
        return INTER_BROKER_REQUESTS
    for per_mechanism in _PER_MECHANISM:
        if setting.endswith(per_mechanism):
            return per_mechanism
    of_tokens = setting.removeprefix("oauthbearer.")
    return of_tokens if of_tokens.startswith("sasl.oauthbearer.") else setting


def synonyms_of(name: str) -> tuple[str, ...]:
    """The names that may set a value, in order of precedence, including the setting itself."""
    synonyms = BROKER_SYNONYMS.get(name)
    if synonyms is not None:
        return synonyms
    base = without_listener(name)
    return (name,) if base is None else (name, base)
