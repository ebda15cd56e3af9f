"""Which of Kafka's settings do nothing here, or less than in Kafka, and why: what `tables.py` writes into the book.

Names as patterns of `fnmatch`; the first that fits counts. A test holds them against the code.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

NONE = "none"
_ONE_LOOP = "none: one event loop does this work"
_TIERED = "none: there is no tiered storage"
_ONE_VOTER = "none: the quorum has one voter"
_NO_CLASS = "none: Java classes aren't loaded"
_PURGATORY = "none: a finished request leaves the purgatory at once"
_KERBEROS = "none: GSSAPI isn't supported"
_OWN_LOGIN = "none: nodes sign in to each other with PLAIN or SCRAM"

EFFECTS: dict[str, str] = {
    "remote.log.storage.system.enable": "`true` is refused: there is no tiered storage",
    "remote.*": _TIERED,
    "log.remote.*": _TIERED,
    "log.local.*": _TIERED,
    "local.retention.*": _TIERED,
    "follower.fetch.last.tiered.offset.enable": _TIERED,
    "config.providers": "only empty, else refused: write the values into the settings",
    "authorizer.class.name": "only Kafka's `StandardAuthorizer`, else refused",
    "principal.builder.class": "only Kafka's own class, else refused",
    "ssl.engine.factory.class": "only Kafka's own class, else refused",
    "replica.selector.class": "only Kafka's `RackAwareReplicaSelector`",
    "sasl.server.callback.handler.class": "only Kafka's own class, else refused",
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
    "queued.max.requests": "none: each connection has one request in work",
    "socket.send.buffer.bytes": "none: the operating system chooses the size",
    "socket.receive.buffer.bytes": "none: the operating system chooses the size",
    "replica.socket.receive.buffer.bytes": "none: the operating system chooses the size",
    "socket.connection.setup.timeout*": NONE,
    "controller.socket.timeout.ms": NONE,
    "max.connection.creation.rate": "none: it isn't enforced",
    "controller.quorum.append.linger.ms": NONE,
    "controller.quorum.election.*": _ONE_VOTER,
    "controller.quorum.fetch.*": NONE,
    "controller.quorum.request.timeout.ms": NONE,
    "controller.quorum.retry.backoff.ms": NONE,
    "controller.quorum.auto.join.enable": "checked, but has no effect: the quorum has one voter",
    "metadata.max.idle.interval.ms": NONE,
    "*.purgatory.purge.interval.requests": _PURGATORY,
    "kafka.metrics.polling.interval.secs": "none: metrics are read at each scrape",
    "metrics.*": "none: metrics are counters, read at each scrape",
    "log.preallocate": NONE,
    "preallocate": NONE,
    "log.cleaner.io.buffer.size": NONE,
    "early.start.listeners": "checked, but has no effect: all listeners open once the ACLs are loaded",
    "*.append.linger.ms": "none: records of one turn of the loop are written together",
    "*.cached.buffer.max.bytes": NONE,
    "offsets.load.buffer.size": "none: the topic is read in steps of some 500 records",
    "*.load.buffer.size": "none: the topic is read in steps of some 500 records",
    "offsets.topic.compression.codec": "none: offsets are stored uncompressed",
    "share.coordinator.state.topic.compression.codec": "none: states are stored uncompressed",
    "group.streams.assignors": "only `sticky`",
    "sasl.kerberos.*": _KERBEROS,
    "sasl.login.*": _OWN_LOGIN,
    "sasl.oauthbearer.assertion.*": _OWN_LOGIN,
    "sasl.oauthbearer.client.credentials.*": _OWN_LOGIN,
    "sasl.oauthbearer.jwt.retriever.class": _OWN_LOGIN,
    "sasl.oauthbearer.jwt.validator.class": "only Kafka's own class, else refused",
    "sasl.oauthbearer.scope": _OWN_LOGIN,
    "sasl.oauthbearer.token.endpoint.url": _OWN_LOGIN,
    "ssl.provider": "none: it is always Python's OpenSSL",
    "ssl.keymanager.algorithm": NONE,
    "ssl.trustmanager.algorithm": NONE,
    "ssl.secure.random.implementation": NONE,
    "ssl.protocol": "checked, but has no effect: use `ssl.enabled.protocols`",
    "ssl.keystore.type": "PEM and PKCS12; JKS is refused, with the command that converts it",
    "ssl.truststore.type": "PEM and PKCS12; JKS is refused, with the command that converts it",
    "index.interval.bytes": "yes, but 16 KiB at most",
    "log.index.interval.bytes": "yes, but 16 KiB at most",
    "max.connections": "yes, but connections above the limit are closed at once, and don't wait",
}

BY_PREFIX = (
    "alter.log.dirs.replication.quota.",
    "group.consumer.",
    "group.share.",
    "group.streams.",
    "replication.quota.",
    "sasl.oauthbearer.",
    "ssl.",
)
"""Families whose names the code puts together."""


def effect(name: str) -> str:
    """What that setting of Kafka's does here: `yes`, or what it does instead."""
    return next((said for pattern, said in EFFECTS.items() if fnmatchcase(name, pattern)), "yes")
