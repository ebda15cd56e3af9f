"""Requests about settings, as dicts."""

from __future__ import annotations

from typing import Any

from .play import Play

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

NEEDS = ("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "ListConfigResources")

# Settings of every kind, except those that differ: folders, ports, and our own defaults.
SHOWN_BROKER_CONFIGS = (
    "auto.create.topics.enable",
    "broker.id",
    "compression.type",
    "delegation.token.secret.key",
    "log.cleanup.policy",
    "log.flush.interval.ms",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "max.connections.per.ip.overrides",
    "message.max.bytes",
    "metric.reporters",
    "min.insync.replicas",
    "node.id",
    "num.io.threads",
    "num.partitions",
    "process.roles",
    "sasl.jaas.config",
    "ssl.keystore.password",
)

# All of a group's except streams.initial.rebalance.delay.ms, which has a default of our own.
GROUP_CONFIGS = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
)


def resource(kind: int, name: str, *keys: str, every: bool = False) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": None if every else list(keys)}


def described(*resources: dict[str, Any], synonyms: bool = True) -> dict[str, Any]:
    return {"resources": list(resources), "include_synonyms": synonyms}


def change(kind: int, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": key, "config_operation": operation, "value": value} for key, operation, value in configs
        ],
    }


def changed(*resources: dict[str, Any], only: bool = False) -> dict[str, Any]:
    return {"resources": list(resources), "validate_only": only}


def replacement(kind: int, name: str, **configs: str | None) -> dict[str, Any]:
    """A config's dots are underscores here."""
    return {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def broker_name(play: Play) -> str:
    return str(play.quietly("DescribeCluster", 0, {}).brokers[0].broker_id)


def until_set(play: Play, kind: int, name: str, key: str, value: str | None) -> None:
    """Wait until clients see an alteration: in Kafka a moment after its answer."""

    def shown() -> bool:
        (result,) = play.quietly("DescribeConfigs", 4, described(resource(kind, name, key))).results
        return [config.value for config in result.configs] == ([] if value is None else [value])

    play.until(f"{key} is {value}", shown)
