"""The documentation of settings in DescribeConfigs. Nothing else imports this file.

It has our own words, for settings that a user would look up. A broker's setting that backs a topic's has the
topic's text, with an introduction.
"""

from __future__ import annotations

from broker.config.topic_config import TOPIC_SYNONYMS

TOPIC: dict[str, str] = {
    "cleanup.policy": "What happens to old records. delete: retention.ms and retention.bytes remove segments. "
    "compact: each key's last record stays. Both may be given; with neither, everything is kept.",
    "compression.gzip.level": "How hard gzip tries, 1 to 9, if compression.type is gzip; -1 is its own default.",
    "compression.lz4.level": "How hard lz4 tries, 1 to 17, if compression.type is lz4.",
    "compression.type": "How batches are stored: as the producer compressed them (producer), or compressed again with "
    "gzip, snappy, lz4 or zstd, or uncompressed.",
    "compression.zstd.level": "How hard zstd tries, up to 22, if compression.type is zstd.",
    "delete.retention.ms": "How long the deletion of a key (a record without a value) stays in a compacted log, in "
    "milliseconds. A consumer that reads from the start has that long to see it.",
    "errors.deadletterqueue.group.enable": "Whether share groups may write rejected records to the topic (KIP-1191).",
    "file.delete.delay.ms": "How long a file that isn't needed any more stays on the disk, in milliseconds.",
    "flush.messages": "After how many records the log is synced to the disk. Without it the operating system decides: "
    "a record survives the broker's death, not the machine's.",
    "flush.ms": "After how many milliseconds unsynced records are synced to the disk. See flush.messages.",
    "follower.replication.throttled.replicas": "Replicas whose followers copy at a limited rate, as "
    "partition:broker, or * for all.",
    "index.interval.bytes": "How many bytes of records lie between two entries of an index. Less makes reads start "
    "closer to their offset, and indexes larger.",
    "leader.replication.throttled.replicas": "Replicas whose leaders serve copies at a limited rate, as "
    "partition:broker, or * for all.",
    "local.retention.bytes": "With tiered storage: how many bytes stay on this broker; -2 means retention.bytes.",
    "local.retention.ms": "With tiered storage: how long records stay on this broker; -2 means retention.ms.",
    "max.compaction.lag.ms": "After how many milliseconds at the latest a record can be compacted.",
    "max.decompressed.message.bytes": "The largest record of a compressed batch, in bytes, once it is decompressed. "
    "If it is below the size of stored records, lookups by timestamp and compaction fail.",
    "max.message.bytes": "The largest batch that is accepted, in bytes, as it was compressed.",
    "message.timestamp.after.max.ms": "How far ahead of the broker's clock a record's timestamp may be, in "
    "milliseconds. Not checked with LogAppendTime.",
    "message.timestamp.before.max.ms": "How far behind the broker's clock a record's timestamp may be, in "
    "milliseconds. Not checked with LogAppendTime.",
    "message.timestamp.type": "Whose time a record has: its producer's (CreateTime) or the broker's at the append "
    "(LogAppendTime).",
    "min.cleanable.dirty.ratio": "Which fraction of a compacted log has to be new before it is compacted again.",
    "min.compaction.lag.ms": "How long a record stays uncompacted at least, in milliseconds.",
    "min.insync.replicas": "How many replicas need a record before a producer with acks=all gets its answer. "
    "Never more than there are replicas.",
    "preallocate": "Whether a new segment's file gets its full size at once.",
    "remote.copy.lag.bytes": "With tiered storage: after how many newer bytes a segment is copied to it; -1 means "
    "local.retention.bytes.",
    "remote.copy.lag.ms": "With tiered storage: after how long a segment is copied to it; -1 means local.retention.ms.",
    "remote.log.copy.disable": "With tiered storage: whether copying to it is off.",
    "remote.log.delete.on.disable": "With tiered storage: whether its data is deleted when it is turned off.",
    "remote.storage.enable": "Whether segments go to tiered storage too.",
    "retention.bytes": "The most bytes that a partition keeps, if cleanup.policy includes delete. Beyond that, the "
    "oldest segments are deleted. -1 means no limit.",
    "retention.ms": "How long records are kept, in milliseconds, if cleanup.policy includes delete. A segment is "
    "deleted once its newest record is older. -1 means forever.",
    "segment.bytes": "How large a segment, the file that a log is made of, may become. Records are deleted and "
    "compacted by whole segments.",
    "segment.index.bytes": "How large a segment's index may become.",
    "segment.jitter.ms": "How much earlier than segment.ms a segment may roll, at random, so that not all roll at "
    "once.",
    "segment.ms": "After how many milliseconds a segment rolls even if it isn't full. A log without appends doesn't "
    "roll.",
    "unclean.leader.election.enable": "Whether a replica that isn't in sync may become leader, which loses the "
    "records that it lacks.",
}

BROKER: dict[str, str] = {
    "advertised.listeners": "The addresses that clients connect to, for each listener; by default the listeners.",
    "authorizer.class.name": "The class that decides who may do what; empty: everybody may do everything.",
    "auto.create.topics.enable": "Whether a topic is created when a client asks for it.",
    "auto.leader.rebalance.enable": "Whether leadership goes back to preferred replicas by itself.",
    "background.threads": "How many threads Kafka has for work in the background.",
    "broker.heartbeat.interval.ms": "How often a broker tells the controller that it lives, in milliseconds.",
    "broker.id": "The old name of node.id.",
    "broker.rack": "The broker's location, for spreading replicas and reading from near ones.",
    "broker.session.timeout.ms": "After how long without a heartbeat a broker is fenced, in milliseconds.",
    "connections.max.idle.ms": "After how long without any traffic a connection is closed, in milliseconds. A Fetch "
    "that waits counts as idle.",
    "controller.listener.names": "The listeners that controllers use.",
    "controller.quorum.bootstrap.servers": "The addresses of controllers, host:port each.",
    "controller.quorum.voters": "The controllers that vote, id@host:port each.",
    "cordoned.log.dirs": "Log directories that get no new partitions; * for all.",
    "default.replication.factor": "How many replicas a topic has, if its creator doesn't say.",
    "delete.topic.enable": "Whether topics can be deleted.",
    "errors.deadletterqueue.auto.create.topics.enable": "Whether a share group's dead letter queue is created "
    "when it is needed.",
    "errors.deadletterqueue.topic.name.prefix": "The prefix that the names of dead letter queues need.",
    "fetch.max.bytes": "The largest answer to a Fetch, in bytes; a single larger batch is still sent.",
    "group.consumer.assignors": "The assignors of the consumer protocol (KIP-848), the first one by default.",
    "group.consumer.migration.policy": "Whether groups may switch between the classic and the consumer protocol.",
    "group.coordinator.rebalance.protocols": "The protocols that groups may use.",
    "group.initial.rebalance.delay.ms": "How long an empty classic group waits for more members before its first "
    "rebalance, in milliseconds.",
    "group.max.session.timeout.ms": "The longest session timeout that a member of a classic group may ask for.",
    "group.max.size": "How many members a classic group may have.",
    "group.min.session.timeout.ms": "The shortest session timeout that a member of a classic group may ask for.",
    "inter.broker.listener.name": "The listener for connections between brokers.",
    "listener.security.protocol.map": "The security protocol of each listener, NAME:PROTOCOL each.",
    "listeners": "The addresses that the broker binds, NAME://host:port each; an empty host means all addresses.",
    "log.cleaner.enable": "Whether logs are compacted.",
    "log.cleaner.threads": "How many threads compact.",
    "log.dir": "The directory for data, if log.dirs isn't given.",
    "log.dirs": "The directories for data, separated by commas.",
    "log.flush.offset.checkpoint.interval.ms": "How often the broker records how far logs are synced.",
    "log.flush.scheduler.interval.ms": "How often the broker checks whether logs have to be synced.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often the broker records where logs start.",
    "log.retention.check.interval.ms": "How often the broker checks whether segments can be deleted, in milliseconds.",
    "log.retention.hours": "log.retention.ms in hours, if neither that nor log.retention.minutes is given.",
    "log.retention.minutes": "log.retention.ms in minutes, if that isn't given.",
    "log.roll.hours": "log.roll.ms in hours, if that isn't given.",
    "log.roll.jitter.hours": "log.roll.jitter.ms in hours, if that isn't given.",
    "max.connection.creation.rate": "How many connections are accepted per second.",
    "max.connections": "How many connections there may be at once.",
    "max.connections.per.ip": "How many connections there may be at once from one address.",
    "max.connections.per.ip.overrides": "max.connections.per.ip for single hosts, host:number each.",
    "max.incremental.fetch.session.cache.slots": "How many incremental fetch sessions (KIP-227) there may be.",
    "max.request.partition.size.limit": "The most partitions in one answer to DescribeTopicPartitions.",
    "metadata.log.dir": "The directory of the cluster's metadata; by default the first of log.dirs.",
    "metadata.log.max.record.bytes.between.snapshots": "After how many bytes of metadata a snapshot is written.",
    "metadata.log.max.snapshot.interval.ms": "After how long a snapshot of the metadata is written, if it changed.",
    "node.id": "The number of this node in its cluster.",
    "num.io.threads": "How many threads handle requests in Kafka. There is one event loop here.",
    "num.network.threads": "How many threads a listener has in Kafka. There is one event loop here.",
    "num.partitions": "How many partitions a topic has, if its creator doesn't say.",
    "offset.metadata.max.bytes": "The longest text that a consumer may commit with an offset.",
    "offsets.commit.timeout.ms": "How long the commit of an offset may take.",
    "offsets.retention.check.interval.ms": "How often the broker checks whether committed offsets can be deleted.",
    "offsets.retention.minutes": "How long the offsets of a group without members are kept, in minutes.",
    "offsets.topic.num.partitions": "How many partitions __consumer_offsets is created with.",
    "offsets.topic.replication.factor": "How many replicas __consumer_offsets is created with.",
    "offsets.topic.segment.bytes": "How large a segment of __consumer_offsets may become.",
    "process.roles": "The roles of this process: broker, controller, or both.",
    "producer.id.expiration.ms": "After how long without a batch an idempotent producer is forgotten by a partition.",
    "queued.max.request.bytes": "The most memory for requests that arrive or are in work, over all connections;"
    " 0 or less means 256 MiB.",
    "queued.max.requests": "How many requests may wait to be handled.",
    "replica.fetch.max.bytes": "The most that a follower fetches from one partition at a time.",
    "replica.lag.time.max.ms": "After how long behind its leader a follower is out of sync.",
    "request.timeout.ms": "How long the broker waits for the answers to its own requests.",
    "sasl.enabled.mechanisms": "The SASL mechanisms that clients may use.",
    "security.inter.broker.protocol": "The security protocol between brokers, if inter.broker.listener.name isn't "
    "given.",
    "socket.listen.backlog.size": "How many connections may wait to be accepted.",
    "socket.receive.buffer.bytes": "The system's buffer for what a connection receives; -1 leaves it as it is.",
    "socket.request.max.bytes": "The largest request that is read, in bytes; a larger one closes its connection.",
    "socket.send.buffer.bytes": "The system's buffer for what a connection sends; -1 leaves it as it is.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "How often the broker looks for transactions that "
    "took too long, and aborts them.",
    "transaction.max.timeout.ms": "The longest timeout that a transactional producer may ask for.",
    "transaction.partition.verification.enable": "Whether a partition asks the transaction's coordinator before it "
    "accepts a transaction's first batch (KIP-890).",
    "transaction.state.log.min.isr": "How many replicas of __transaction_state have to be in sync.",
    "transaction.state.log.num.partitions": "How many partitions __transaction_state is created with.",
    "transaction.state.log.replication.factor": "How many replicas __transaction_state is created with.",
    "transaction.state.log.segment.bytes": "How large a segment of __transaction_state may become.",
    "transaction.two.phase.commit.enable": "Whether producers may leave the end of a transaction to a coordinator of "
    "their own (KIP-939).",
    "transactional.id.expiration.ms": "After how long without a transaction a transactional id is forgotten.",
}

GROUP: dict[str, str] = {
    "consumer.assignment.interval.ms": "The least time between two assignments of a group.",
    "consumer.heartbeat.interval.ms": "How often a member of a consumer group (KIP-848) has to send a heartbeat.",
    "consumer.session.timeout.ms": "After how long without a heartbeat a member of a consumer group is removed.",
    "errors.deadletterqueue.copy.record.enable": "Whether a dead letter queue gets copies of rejected records, or "
    "only headers that say where they are.",
    "errors.deadletterqueue.topic.name": "The topic that a share group's rejected records go to; empty: none.",
    "share.assignment.interval.ms": "The least time between two assignments of a group.",
    "share.auto.offset.reset": "Where a share group begins: latest, earliest, or by_duration:PnDTnHnMn.nS before now.",
    "share.delivery.count.limit": "How often a record is delivered to a share group before it is archived.",
    "share.heartbeat.interval.ms": "How often a member of a share group (KIP-932) has to send a heartbeat.",
    "share.isolation.level": "Whether a share group also reads records of aborted transactions (read_uncommitted) or "
    "only committed ones (read_committed).",
    "share.partition.max.record.locks": "How many records of a partition a share group may have locked at once.",
    "share.record.lock.duration.ms": "How long a record stays locked for the member that it was delivered to.",
    "share.renew.acknowledge.enable": "Whether a member of a share group may renew the lock of a record.",
    "share.session.timeout.ms": "After how long without a heartbeat a member of a share group is removed.",
    "streams.assignment.interval.ms": "The least time between two assignments of a group.",
    "streams.assignor.name": "The assignor of a streams group, one of group.streams.assignors; by default the first.",
    "streams.heartbeat.interval.ms": "How often a member of a streams group (KIP-1071) has to send a heartbeat.",
    "streams.initial.rebalance.delay.ms": "How long an empty streams group waits for more members.",
    "streams.num.standby.replicas": "How many standby copies each stateful task of a streams group has.",
    "streams.rack.aware.assignment.tags": "The client tags by which a streams group's standby tasks are spread.",
    "streams.session.timeout.ms": "After how long without a heartbeat a member of a streams group is removed.",
}

CLIENT_METRICS: dict[str, str] = {
    "interval.ms": "How often clients push their metrics, in milliseconds.",
    "match": "Which clients push metrics, name=regular expression each; without any, all do.",
    "metrics": "Which metrics are pushed, by prefixes of their names; * for all.",
}


def of_broker(name: str) -> str | None:
    """The text for a broker's setting, or None."""
    if name in BROKER:
        return BROKER[name]
    for topic_name, synonyms in TOPIC_SYNONYMS.items():
        if name == synonyms[0][0]:
            return f"{topic_name} of topics that don't set it. {TOPIC[topic_name]}"
    if name.startswith("group."):
        return GROUP.get(name.removeprefix("group."))
    return None
