"""Which run of a broker the controller listens to: the one that registered last (Kafka: `ClusterControlManager`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.controller.broker_image import BrokerImage
    from broker.controller.image import ClusterImage
    from broker.controller.registration import BrokerIncarnation


def check_broker_epoch(image: ClusterImage, broker: BrokerIncarnation) -> BrokerImage:
    """The broker that asks. Raises KafkaError (STALE_BROKER_EPOCH) where this run of it isn't the one that is
    registered (Kafka: `ClusterControlManager.checkBrokerEpoch`)."""
    registered = image.brokers.get(broker.node_id)
    if registered is None:
        raise KafkaError(
            Error.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker.node_id}"
        )
    if registered.broker_epoch != broker.broker_epoch:
        raise KafkaError(
            Error.STALE_BROKER_EPOCH,
            f"Expected broker epoch {registered.broker_epoch}, but got broker epoch {broker.broker_epoch}",
        )
    return registered
