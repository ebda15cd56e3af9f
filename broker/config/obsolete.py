"""Settings of earlier Kafkas that still stand in many files, and what became of them."""

from __future__ import annotations

_KRAFT = "ZooKeeper is gone since Kafka 4.0"
_METADATA_VERSION = "Kafka 4 goes by the metadata.version feature instead"
_LISTENERS = "gone since Kafka 3.0; listeners and advertised.listeners say it"

OBSOLETE: dict[str, str] = {
    "advertised.host.name": _LISTENERS,
    "advertised.port": _LISTENERS,
    "auto.include.jmx.reporter": "gone since Kafka 4.0",
    "broker.id.generation.enable": _KRAFT,
    "control.plane.listener.name": _KRAFT,
    "controlled.shutdown.max.retries": _KRAFT,
    "controlled.shutdown.retry.backoff.ms": _KRAFT,
    "delegation.token.master.key": "gone since Kafka 4.0; delegation.token.secret.key is its name",
    "group.coordinator.new.enable": "gone since Kafka 4.0; the new coordinator is the only one",
    "host.name": _LISTENERS,
    "inter.broker.protocol.version": _METADATA_VERSION,
    "leader.imbalance.per.broker.percentage": "gone since Kafka 4.0",
    "log.message.downconversion.enable": "gone since Kafka 4.0: old message formats are never read",
    "log.message.format.version": "gone since Kafka 4.0: record batches of version 2 are the only ones",
    "log.message.timestamp.difference.max.ms": (
        "gone since Kafka 4.0; log.message.timestamp.before.max.ms and its .after. counterpart say it"
    ),
    "offsets.commit.required.acks": "gone since Kafka 4.0: it is always -1",
    "port": _LISTENERS,
    "quota.consumer.default": "gone since Kafka 3.0; quotas are set with the admin API",
    "quota.producer.default": "gone since Kafka 3.0; quotas are set with the admin API",
    "reserved.broker.max.id": _KRAFT,
}


def what_became_of(name: str) -> str | None:
    """Why a setting is no more; None for one that never was, or still is."""
    if name.startswith(("zookeeper.", "password.encoder.")):
        return _KRAFT
    return OBSOLETE.get(name)
