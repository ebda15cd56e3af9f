"""A broker's partitions lose their leader and get it back, by a controller's decisions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from broker.controller.broker_records import supported_features
from broker.controller.image import ClusterImage
from broker.controller.partition_changes import BrokerChange, leader_and_isr_updates, updates_of
from protocol.messages import metadata_records as records
from protocol.waiting import at_once
from protocol.wire.schema import Message


def take_leadership_away(image: ClusterImage, node_id: int, topic: str | None = None) -> Sequence[Message]:
    """Return the records that fence the broker, for all topics or one."""
    change = BrokerChange(removed=node_id)
    if topic is None:
        return at_once(leader_and_isr_updates(image, change))
    found = image.topics[topic]
    return at_once(updates_of(image, change, [(found, found.partitions.items())]))


def elect(image: ClusterImage, node_id: int, online: Collection[bytes]) -> Sequence[Message]:
    """Return the records that unfence the broker, which has these directories."""
    with_it = image.copy()
    with_it.apply(register_broker(node_id, b"i" * 16, 5, [("PLAINTEXT", "h", 1)], [*online], None))
    return at_once(leader_and_isr_updates(with_it, BrokerChange(added=node_id)))


def register_broker(
    node_id: int,
    incarnation_id: bytes,
    broker_epoch: int,
    listeners: Iterable[tuple[str, str, int]],
    directory_ids: Sequence[bytes],
    rack: str | None,
) -> records.RegisterBrokerRecord:
    """Return a registration. Its broker epoch is the offset that the record will have."""
    return records.RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=incarnation_id,
        broker_epoch=broker_epoch,
        end_points=[
            records.BrokerEndpoint(name=name, host=host, port=port, security_protocol=0)
            for name, host, port in listeners
        ],
        features=[
            records.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_features().items()
        ],
        rack=rack,
        fenced=True,
        log_dirs=sorted(directory_ids),
    )
