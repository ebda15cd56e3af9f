"""What the metadata says, made so: settings, quotas, partitions, coordinators (Kafka: `BrokerMetadataPublisher`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.config.dynamic_settings import set_dynamic
from broker.controller.image import BROKER_RESOURCE
from protocol.steps import Steps, at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cleaner.log_cleaner import LogCleaner
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import TopicChanges
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.groups import Groups
    from broker.coordination.transactions import Transactions
    from broker.disks.log_dirs import LogDirs
    from broker.network.connection_limits import ConnectionLimits
    from broker.quotas.client_quotas import ClientQuotas
    from broker.replicas.partitions import Partitions

log = logging.getLogger("barnabas.server")


class MetadataSubscribers(NamedTuple):
    """Who does as the metadata says."""

    config: BrokerConfig
    quotas: ClientQuotas
    connection_limits: ConnectionLimits
    log_dirs: LogDirs
    partitions: Partitions
    groups: Groups
    transactions: Transactions
    cleaner: LogCleaner
    follow_leaders: Callable[[TopicChanges], None] = lambda changes: None
    """Of partitions that other nodes lead."""


class BrokerMetadataPublisher:
    """Tells each of a node's parts what has changed for it."""

    def __init__(self, node_id: int, metadata: MetadataLog, subscribers: MetadataSubscribers) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._subscribers = subscribers

    def start(self) -> None:
        """At the start: settings first, then the partitions, then what is read from them."""
        to = self._subscribers
        at_once(self._publish_settings())
        changes = to.partitions.open_all(self._metadata.image)
        to.follow_leaders(changes)
        at_once(to.groups.follow(changes))
        to.transactions.follow()  # after the groups: it may end transactions, and their offsets
        self._metadata.on_change = self._publish

    def stop(self) -> None:
        self._metadata.on_change = lambda: None

    def _publish(self) -> Steps[None]:
        to = self._subscribers
        yield from self._publish_settings()
        changes = yield from to.partitions.follow(self._metadata.image)
        to.follow_leaders(changes)
        yield from to.groups.follow(changes)
        to.transactions.follow()

    def _publish_settings(self) -> Steps[None]:
        image, to = self._metadata.image, self._subscribers
        if image.kept.take_quota_change():
            yield from to.quotas.follow(image)
        if image.take_broker_config_change():
            complaints = set_dynamic(
                to.config,
                broker=image.configs.get((BROKER_RESOURCE, str(self._node_id)), {}),
                cluster=image.configs.get((BROKER_RESOURCE, ""), {}),
            )
            for complaint in complaints:
                log.warning("%s", complaint)
            self._apply_settings()
            yield from to.partitions.configure_all()

    def _apply_settings(self) -> None:
        """Hand on what can be altered while we run, and isn't asked for each time."""
        config, to = self._subscribers.config, self._subscribers
        to.connection_limits.configure(
            config.get_int("max.connections"),
            config.get_int("max.connections.per.ip"),
            config.max_connections_per_host,
        )
        to.log_dirs.cordon(config.get_list("cordoned.log.dirs"))
        to.cleaner.configure()
