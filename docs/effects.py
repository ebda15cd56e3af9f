"""Which of Kafka's settings do nothing here, or less than in Kafka, and why: what `tables.py` writes into the book.

Names as patterns of `fnmatch`; the first that fits counts. A test holds them against the code.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

NONE = "none"
_ONE_LOOP = "none: one event loop does it, not a pool of threads"
_TIERED = "none: there is no tiered storage"
_ONE_VOTER = "none: the quorum has one voter"
_NO_CLASS = "none: Java classes aren't loaded"
_PURGATORY = "none: what waits is dropped at once when it is over"
_KERBEROS = "none: GSSAPI isn't built"
_OWN_LOGIN = "none: a node signs in at others by PLAIN or SCRAM"

EFFECTS: dict[str, str] = {
    "remote.log.storage.system.enable": "`true` is refused: there is no tiered storage",
    "remote.*": _TIERED,
    "log.remote.*": _TIERED,
    "log.local.*": _TIERED,
    "local.retention.*": _TIERED,
    "follower.fetch.last.tiered.offset.enable": _TIERED,
    "config.providers": "refused where it names one: write the values themselves",
    "authorizer.class.name": "Kafka's `StandardAuthorizer` alone, else refused",
    "principal.builder.class": "Kafka's own alone, else refused",
    "ssl.engine.factory.class": "Kafka's own alone, else refused",
    "replica.selector.class": "Kafka's `RackAwareReplicaSelector` alone",
    "sasl.server.callback.handler.class": "Kafka's own alone, else refused",
    "alter.config.policy.class.name": _NO_CLASS,
    "create.topic.policy.class.name": _NO_CLASS,
    "client.quota.callback.class": _NO_CLASS,
    "kafka.metrics.reporters": _NO_CLASS,
    "metric.reporters": _NO_CLASS,
    "security.providers": _NO_CLASS,
    "group.streams.topology.description.plugin.class": _NO_CLASS,
    "sasl.client.callback.handler.class": _NO_CLASS,
    "num.network.threads": _ONE_LOOP,
    "num.io.threads": _ONE_LOOP,
    "num.replica.fetchers": "none: one connection to each leader fetches all partitions",
    "num.replica.alter.log.dirs.threads": _ONE_LOOP,
    "num.recovery.threads.per.data.dir": _ONE_LOOP,
    "background.threads": _ONE_LOOP,
    "group.coordinator.threads": _ONE_LOOP,
    "group.coordinator.background.threads": _ONE_LOOP,
    "share.coordinator.threads": _ONE_LOOP,
    "queued.max.requests": "none: a connection has one request in work",
    "socket.send.buffer.bytes": "none: the system sizes it",
    "socket.receive.buffer.bytes": "none: the system sizes it",
    "replica.socket.receive.buffer.bytes": "none: the system sizes it",
    "socket.connection.setup.timeout*": NONE,
    "controller.socket.timeout.ms": NONE,
    "max.connection.creation.rate": "none: it isn't enforced",
    "controller.quorum.append.linger.ms": NONE,
    "controller.quorum.election.*": _ONE_VOTER,
    "controller.quorum.fetch.*": NONE,
    "controller.quorum.request.timeout.ms": NONE,
    "controller.quorum.retry.backoff.ms": NONE,
    "controller.quorum.auto.join.enable": "checked, else none: the quorum has one voter",
    "metadata.max.idle.interval.ms": NONE,
    "*.purgatory.purge.interval.requests": _PURGATORY,
    "kafka.metrics.polling.interval.secs": "none: metrics are read when they are asked for",
    "metrics.*": "none: metrics are counters, read when they are asked for",
    "alter.log.dirs.replication.quota.window.*": "none: the rate is kept second by second",
    "replication.quota.window.*": "none: the rate is kept second by second",
    "log.preallocate": NONE,
    "preallocate": NONE,
    "log.cleaner.io.buffer.size": NONE,
    "early.start.listeners": "checked, else none: no listener waits for the ACLs",
    "*.append.linger.ms": "none: what comes in one turn of the loop is written together",
    "*.cached.buffer.max.bytes": NONE,
    "offsets.load.buffer.size": "none: it is read in steps of some 500 records",
    "*.load.buffer.size": "none: it is read in steps of some 500 records",
    "offsets.topic.compression.codec": "none: offsets are stored as they are",
    "share.coordinator.state.topic.compression.codec": "none: states are stored as they are",
    "group.streams.assignors": "`sticky` alone",
    "sasl.kerberos.*": _KERBEROS,
    "sasl.login.*": _OWN_LOGIN,
    "sasl.oauthbearer.assertion.*": _OWN_LOGIN,
    "sasl.oauthbearer.client.credentials.*": _OWN_LOGIN,
    "sasl.oauthbearer.jwt.retriever.class": _OWN_LOGIN,
    "sasl.oauthbearer.jwt.validator.class": "Kafka's own alone, else refused",
    "sasl.oauthbearer.scope": _OWN_LOGIN,
    "sasl.oauthbearer.token.endpoint.url": _OWN_LOGIN,
    "ssl.provider": "none: OpenSSL, as Python has it",
    "ssl.keymanager.algorithm": NONE,
    "ssl.trustmanager.algorithm": NONE,
    "ssl.secure.random.implementation": NONE,
    "ssl.protocol": "checked, else none: `ssl.enabled.protocols` says it",
    "ssl.keystore.type": "PEM and PKCS12; JKS is refused, with the command that converts it",
    "ssl.truststore.type": "PEM and PKCS12; JKS is refused, with the command that converts it",
    "index.interval.bytes": "as in Kafka, up to 16 KiB",
    "log.index.interval.bytes": "as in Kafka, up to 16 KiB",
    "max.connections": "as in Kafka, but that one more is closed at once",
}

BY_PREFIX = ("group.consumer.", "group.share.", "group.streams.", "sasl.oauthbearer.", "ssl.")
"""Families whose names the code puts together."""


def effect(name: str) -> str:
    """What that setting of Kafka's does here: `yes`, or what it does instead."""
    return next((said for pattern, said in EFFECTS.items() if fnmatchcase(name, pattern)), "yes")
