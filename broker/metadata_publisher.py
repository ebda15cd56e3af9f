"""Applying the metadata: settings, quotas, partitions, coordinators (Kafka: `BrokerMetadataPublisher`)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.config.alterations import set_dynamic
from broker.controller.image import BROKER_RESOURCE
from broker.coordination.imports import import_coordinators
from protocol.waiting import Waiting, at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.cleaner.log_cleaner import LogCleaner
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.groups import Groups
    from broker.coordination.share_states import ShareStates
    from broker.coordination.transactions import Transactions
    from broker.disks.log_dirs import LogDirs
    from broker.network.connection_limits import ConnectionLimits
    from broker.network.key_stores import KeyStores
    from broker.quotas import ClientQuotas, ReplicationQuotas
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer

log = logging.getLogger("barnabas.server")


class SettingsPublisher:
    """Applies it to the parts that every node has, whatever its role in the cluster."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        quotas: ClientQuotas,
        connection_limits: ConnectionLimits,
        authorizer: Authorizer,
        key_stores: KeyStores,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._quotas = quotas
        self._connection_limits = connection_limits
        self._authorizer = authorizer
        self._key_stores = key_stores

    async def publish(self, image: ClusterImage) -> bool:
        """Apply the settings. Returns True if settings of the node have changed."""
        await self._authorizer.follow(image.kept)
        if image.kept.take_quota_change():
            await self._quotas.follow(image)
        if not image.take_broker_config_change():
            return False
        config = self._config
        complaints = set_dynamic(
            config,
            broker=image.configs.get((BROKER_RESOURCE, str(self._node_id)), {}),
            cluster=image.configs.get((BROKER_RESOURCE, ""), {}),
        )
        for complaint in complaints:
            log.warning("%s", complaint)
        self._connection_limits.configure(
            config.get_int("max.connections"),
            config.get_int("max.connections.per.ip"),
            config.max_connections_per_host,
        )
        self._key_stores.follow(config)
        return True


class ControllerMetadataPublisher:
    """The publisher of a node that isn't a broker: only its settings follow the metadata."""

    def __init__(self, metadata: MetadataLog, settings: SettingsPublisher) -> None:
        self._metadata = metadata
        self._settings = settings

    def start(self) -> None:
        """Begin, at the start."""
        at_once(self._publish())
        self._metadata.on_change = self._publish

    def stop(self) -> None:
        self._metadata.on_change = lambda: None

    async def _publish(self) -> None:
        image = self._metadata.image
        await self._settings.publish(image)
        image.take_changes()


class MetadataSubscribers(NamedTuple):
    """The parts that follow the metadata."""

    config: BrokerConfig
    quotas: ClientQuotas
    connection_limits: ConnectionLimits
    authorizer: Authorizer
    log_dirs: LogDirs
    partitions: Partitions
    groups: Groups
    transactions: Transactions
    share_states: ShareStates
    cleaner: LogCleaner
    replication_quotas: ReplicationQuotas
    follow_share_version: Callable[[], Waiting[None]]
    key_stores: KeyStores
    follow_leaders: Callable[[TopicChanges], None] = lambda changes: None
    """The leaders on other nodes."""


class BrokerMetadataPublisher:
    """Tells each part of a node what has changed for it."""

    def __init__(self, node_id: int, metadata: MetadataLog, subscribers: MetadataSubscribers) -> None:
        self._metadata = metadata
        self._subscribers = subscribers
        self._settings = SettingsPublisher(
            node_id,
            subscribers.config,
            subscribers.quotas,
            subscribers.connection_limits,
            subscribers.authorizer,
            subscribers.key_stores,
        )

    def start(self) -> None:
        """Begin, at the start: settings first, then the partitions, then what is read from them."""
        to = self._subscribers
        at_once(self._publish_settings())
        changes = to.partitions.open_all(self._metadata.image)
        at_once(to.replication_quotas.follow(self._metadata.image, changes))
        to.follow_leaders(changes)
        at_once(to.share_states.follow(changes))
        at_once(to.groups.follow(changes))
        at_once(
            to.transactions.hosted.follow()
        )  # after the groups: it may end transactions, and their offsets
        self._metadata.on_change = self._publish

    def stop(self) -> None:
        self._metadata.on_change = lambda: None

    async def _publish(self) -> None:
        to = self._subscribers
        await import_coordinators(self._metadata.image.topics)
        await self._publish_settings()
        changes = await to.partitions.follow(self._metadata.image)
        await to.replication_quotas.follow(self._metadata.image, changes)
        to.follow_leaders(changes)
        await to.share_states.follow(changes)
        await to.follow_share_version()
        await to.groups.follow(changes)
        await to.transactions.hosted.follow()

    async def _publish_settings(self) -> None:
        to = self._subscribers
        if await self._settings.publish(self._metadata.image):
            to.log_dirs.cordon(to.config.get_list("cordoned.log.dirs"))
            to.cleaner.configure()
            await to.partitions.configure_all()
