"""What a change of a broker does to partitions: who stays in sync and eligible, and who leads.

Who calls it, and with what (Kafka: `ReplicationControlManager`):

| what happens to broker b | `BrokerChange` | its record |
|---|---|---|
| fenced (handleBrokerFenced) | removed=b | behind them |
| controlled shutdown (handleBrokerInControlledShutdown) | removed=b | before them |
| unregistered (handleBrokerUnregistered) | removed=b, and `eligible_updates` | behind them |
| unfenced (handleBrokerUnfenced) | added=b | before them |
| registered, after a clean end or without eligible replicas (handleBrokerShutdown) | removed=b | behind them |
| registered, after an unclean end (handleBrokerShutdown) | unclean=b | behind them |
| directories lost (handleDirectoriesOffline) | removed=b, directories: their ids | behind them |
| replicas assigned to a directory that is offline | `updates_of` those | behind the assignments |

Source: `ReplicationControlManager.generateLeaderAndIsrUpdates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from broker.controller.assigned_directories import directory_of
from broker.controller.broker_change import BrokerChange
from broker.controller.image import NO_LEADER
from broker.controller.partition_changes import TopicIdPartition, Wish, partition_change
from broker.controller.partition_terms import LeaderAcceptor, OwnSettings, PartitionTerms
from broker.controller.pause import Pause
from protocol.waiting import Waiting, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, PartitionImage, TopicImage
    from protocol.waiting import Waiting
    from protocol.wire.schema import Message

SomeOf: TypeAlias = "tuple[TopicImage, Iterable[tuple[int, PartitionImage]]]"
"""A topic, and some of its partitions with their numbers."""

NO_SETTINGS = OwnSettings()


def leader_and_isr_updates(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """The records for all partitions that the change concerns, in the order of the image: those that `removed` or
    `unclean` is in sync of, or `unclean` eligible for, and with `added` those that nobody leads."""
    return _updates(_terms(image, change, own), change, _topics(image), _concerned_by(change))


def eligible_updates(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """Those of the partitions that `removed` is eligible for, which Kafka looks at besides where a broker is
    unregistered. It stays eligible; where unclean elections are allowed, another one leads instead of waiting."""

    def is_eligible(partition: PartitionImage) -> bool:
        return change.removed in partition.elr

    return _updates(_terms(image, change, own), change, _topics(image), is_eligible)


async def updates_of_unregistered(
    image: ClusterImage, change: BrokerChange, *, own: OwnSettings = NO_SETTINGS
) -> list[Message]:
    """Both, in Kafka's order (handleBrokerUnregistered)."""
    in_sync = await leader_and_isr_updates(image, change, own=own)
    return in_sync + await eligible_updates(image, change, own=own)


def updates_of(
    image: ClusterImage, change: BrokerChange, topics: Iterable[SomeOf], *, own: OwnSettings = NO_SETTINGS
) -> Waiting[list[Message]]:
    """Those of certain partitions."""
    return _updates(_terms(image, change, own), change, topics, lambda partition: True)


async def _updates(
    all_terms: PartitionTerms,
    change: BrokerChange,
    topics: Iterable[SomeOf],
    is_concerned: Callable[[PartitionImage], bool],
) -> list[Message]:
    gone = _gone(change)
    unclean_shutdown = () if change.unclean is None else (change.unclean,)
    decided: list[Message] = []
    pause = Pause()
    for topic, partitions in topics:
        terms = all_terms.of(topic)
        election = terms.election
        stays = Wish(election=election, unclean_shutdown=unclean_shutdown)
        for partition_id, partition in partitions:
            if pause.is_due():
                await turn()
            if not is_concerned(partition):
                continue
            wish = stays
            isr = [replica for replica in partition.isr if replica not in gone]
            if len(isr) < len(partition.isr):
                wish = Wish(isr, election=election, unclean_shutdown=unclean_shutdown)
            record = partition_change(TopicIdPartition(topic.topic_id, partition_id), partition, wish, terms)
            if record is not None:
                decided.append(record)
    return decided


def _terms(image: ClusterImage, change: BrokerChange, own: OwnSettings) -> PartitionTerms:
    return PartitionTerms(image, own, LeaderAcceptor(image, added=change.added, without=_gone(change)))


def _gone(change: BrokerChange) -> list[int]:
    """Whoever is acceptable no more, and no more in sync."""
    return [broker_id for broker_id in (change.removed, change.unclean) if broker_id is not None]


def _topics(image: ClusterImage) -> Iterable[SomeOf]:
    return ((topic, topic.partitions.items()) for topic in image.topics.values())


def _concerned_by(change: BrokerChange) -> Callable[[PartitionImage], bool]:
    removed, added, unclean, directories = change

    def is_concerned(partition: PartitionImage) -> bool:
        if removed is not None:
            if directories is None:
                if removed in partition.isr:
                    return True
            elif removed in partition.replicas and directory_of(partition, removed) in directories:
                return True
        if unclean is not None and (unclean in partition.isr or unclean in partition.elr):
            return True
        return added is not None and partition.leader == NO_LEADER

    return is_concerned
