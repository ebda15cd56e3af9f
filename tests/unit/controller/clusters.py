"""Images of clusters whose brokers are described in one line, and random numbers for them."""

from __future__ import annotations

from collections.abc import Iterable

from broker.controller.image import ClusterImage
from broker.controller.replica_placer import ReplicaPlacer
from protocol.messages import metadata_records as records

LATEST = 30


def directory(broker_id: int, number: int = 0) -> bytes:
    """Return the id of one of a broker's log directories."""
    return bytes((68, number)) + broker_id.to_bytes(14, "big")


def cluster(brokers: str = "", metadata_version: int = LATEST) -> ClusterImage:
    """Return an image with brokers such as `3`, `3/rack` or `3/` (an empty rack), each with one directory. A `!`
    behind a broker says that it is fenced, a `~` that it is in controlled shutdown."""
    image = ClusterImage()
    image.apply(records.FeatureLevelRecord(name="metadata.version", feature_level=metadata_version))
    for each in brokers.split():
        told = each.rstrip("!~")
        broker_id, slash, rack = told.partition("/")
        register(
            image,
            int(broker_id),
            rack if slash else None,
            fenced="!" in each[len(told) :],
            in_controlled_shutdown="~" in each[len(told) :],
        )
    return image


def register(
    image: ClusterImage,
    broker_id: int,
    rack: str | None = None,
    *,
    directories: Iterable[bytes] | None = None,
    cordoned: Iterable[bytes] | None = None,
    fenced: bool = False,
    in_controlled_shutdown: bool = False,
) -> None:
    image.apply(
        records.RegisterBrokerRecord(
            broker_id=broker_id,
            broker_epoch=100 + broker_id,
            rack=rack,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
            log_dirs=[directory(broker_id)] if directories is None else [*directories],
            cordoned_log_dirs=None if cordoned is None else [*cordoned],
        )
    )


def placed(placer: ReplicaPlacer, image: ClusterImage, count: int, replication_factor: int) -> str:
    """Place replicas, and return them as text: commas between replicas, spaces between partitions."""
    partitions = placer.place(image, count, replication_factor)
    return " ".join(",".join(map(str, replicas)) for replicas in partitions)


def first_of(bound: int) -> int:
    """Draw the first number every time."""
    return 0
