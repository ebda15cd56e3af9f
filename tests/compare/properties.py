"""The server.properties from which both Kafka and barnabas start. They differ only in ports and folders."""

from __future__ import annotations

from pathlib import Path

from .principals import ADMIN, JAAS

SOCKET_REQUEST_MAX_BYTES = 3 * 1024 * 1024
LIMITED_HOST = "127.0.0.2"
LIMITED_HOST_CONNECTIONS = 3

# What the runner of Apache Kafka writes by itself.
_PLACES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""

_COMMON = f"""\
num.partitions=2
socket.request.max.bytes={SOCKET_REQUEST_MAX_BYTES}
max.connections.per.ip.overrides={LIMITED_HOST}:{LIMITED_HOST_CONNECTIONS}
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
share.coordinator.state.topic.num.partitions=3
log.initial.task.delay.ms=86400000
"""
"""Retention doesn't run: old records, which many scripts write, would be deleted at once."""

PROPERTIES = {
    # Kafka's defaults, with small limits where a limit is tried
    "plain": _COMMON,
    # the same, for scripts that restart their broker
    "second": _COMMON,
    # the same, for the script that finds the internal topics missing
    "third": _COMMON,
    # the same, for the script that moves the voters into the log
    "voters": _COMMON,
    # consumer groups that are assigned anew at every change, with few members and short times
    "consumers": _COMMON
    + """\
group.consumer.assignment.interval.ms=0
group.consumer.max.size=3
group.consumer.min.heartbeat.interval.ms=100
group.consumer.min.session.timeout.ms=500
group.consumer.regex.refresh.interval.ms=10000
""",
    # share groups that are assigned anew at every change, with few members, short times and many snapshots
    "shares": _COMMON
    + """\
group.share.assignment.interval.ms=0
group.share.max.size=3
group.share.min.heartbeat.interval.ms=100
group.share.min.record.lock.duration.ms=1000
group.share.min.session.timeout.ms=500
share.coordinator.snapshot.update.records.per.snapshot=5
""",
    # dead letter queues, which are made where they are missing
    "dead_letters": _COMMON
    + """\
errors.deadletterqueue.auto.create.topics.enable=true
group.share.assignment.interval.ms=0
group.share.min.record.lock.duration.ms=1000
""",
    # streams groups that are assigned at once, with few members and short times
    "streams": _COMMON
    + """\
group.streams.initial.rebalance.delay.ms=0
group.streams.assignment.interval.ms=0
group.streams.max.size=4
group.streams.min.heartbeat.interval.ms=100
group.streams.min.session.timeout.ms=500
""",
    # the same, with room for more
    "streams_many": _COMMON
    + """\
group.streams.initial.rebalance.delay.ms=0
group.streams.assignment.interval.ms=0
""",
    # transactions that time out, and scripts that restart their broker or change its features
    "transactions": _COMMON
    + """\
transaction.abort.timed.out.transaction.cleanup.interval.ms=50
""",
    # transactional ids and producers that are soon forgotten
    "expiring": _COMMON
    + """\
transactional.id.expiration.ms=1000
transaction.remove.expired.transaction.cleanup.interval.ms=50
producer.id.expiration.ms=1000
producer.id.expiration.check.interval.ms=50
""",
    # logs that are compacted as soon as they are dirty
    "compacting": _COMMON
    + """\
log.cleaner.backoff.ms=20
""",
    # several log directories
    "directories": _COMMON,
    # the switches turned, and other defaults for a topic's configs
    "strict": _COMMON
    + """\
auto.create.topics.enable=false
delete.topic.enable=false
max.incremental.fetch.session.cache.slots=7
max.request.partition.size.limit=3
fetch.max.bytes=4096
min.insync.replicas=2
message.max.bytes=2000
compression.type=gzip
log.message.timestamp.type=LogAppendTime
log.cleanup.policy=compact,delete
log.retention.hours=48
log.roll.hours=24
log.retention.bytes=123456789
log.segment.bytes=2097152
log.index.interval.bytes=512
log.flush.interval.messages=1000
""",
}


SIGNED_IN = frozenset({"rights", "rights_open"})
"""The properties with a second listener, where clients sign in, and an authorizer. The first listener is for the scene,
whose clients may do everything."""

for _name, _open in (("rights", False), ("rights_open", True)):
    PROPERTIES[_name] = (
        _COMMON
        + f"""\
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={JAAS}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{ADMIN}
allow.everyone.if.no.acl.found={str(_open).lower()}
group.consumer.assignment.interval.ms=0
group.share.assignment.interval.ms=0
group.streams.initial.rebalance.delay.ms=0
"""
    )


UNWATCHED = frozenset({"plain"})
"""The properties with which ours has no metrics listener. With one, requests are observed, which mustn't change an
answer. But then the broker lists two more APIs, and its own setting."""


def sasl_listener(port: int, controller_port: int, sasl_port: int) -> list[str]:
    """Return the listener settings of a broker with such properties."""
    return [
        f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl_port}",
    ]


LOG_DIRS = {"directories": ("data", "second", "third")}
"""Log directories by properties, if there are several: their names in the broker's folder."""


def log_dirs(name: str, folder: Path) -> str | None:
    """Return the setting `log.dirs` of a broker in the folder, or None if the starter decides."""
    return ",".join(str(folder / part) for part in LOG_DIRS[name]) if name in LOG_DIRS else None


def server_properties(name: str, *, port: int, controller_port: int) -> str:
    """Return the whole file for a broker on these ports, without a folder."""
    return _PLACES.format(port=port, controller_port=controller_port) + PROPERTIES[name]
