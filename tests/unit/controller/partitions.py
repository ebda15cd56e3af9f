"""The metadata of a cluster of several brokers, and what its controller does as brokers come and go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.controller.broker_records import FENCED, IN_CONTROLLED_SHUTDOWN, UNFENCED
from broker.controller.controller import ControllerResult
from broker.controller.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, PartitionImage
from broker.controller.metadata_versions import (
    DIRECTORIES_SINCE,
    ELR_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
)
from broker.controller.partition_changes import BrokerChange, OwnSettings, leader_and_isr_updates
from protocol.messages import metadata_records as records
from protocol.waiting import Waiting, at_once
from protocol.wire.schema import Message

OWN = OwnSettings()
NOBODY = BrokerChange(None, None, None, None)


def directory(broker_id: int, number: int = 0) -> bytes:
    """Return the id of one of a broker's log directories."""
    return b"directory" + broker_id.to_bytes(4, "big") + number.to_bytes(3, "big")


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"_")


def epoch_of(broker_id: int) -> int:
    """Return the broker epoch of a broker's first registration."""
    return broker_id + 100


class Cluster:
    """A cluster that applies each decision at once."""

    def __init__(self, *broker_ids: int, elr: bool = True, level: int = LATEST_METADATA_VERSION) -> None:
        """Begin with these brokers, registered and active."""
        self.image = ClusterImage()
        self._names_directories = level >= DIRECTORIES_SINCE
        self.apply(records.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
        if elr:
            self.apply(records.FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
        self.register(*broker_ids)
        self.unfence(*broker_ids)

    def apply(self, *decided: Message) -> None:
        for record in decided:
            self.image.apply(record)

    def do(self, steps: Waiting[list[Message]]) -> list[Message]:
        decided = at_once(steps)
        self.apply(*decided)
        return decided

    def done(self, steps: Waiting[ControllerResult[object]]) -> list[Message]:
        """Apply a decision's records, and return them."""
        decided = [*at_once(steps).records]
        self.apply(*decided)
        return decided

    def updates(
        self,
        removed: int | None = None,
        added: int | None = None,
        unclean: int | None = None,
        directories: Sequence[bytes] | None = None,
    ) -> list[Message]:
        change = BrokerChange(removed, added, unclean, directories)
        return self.do(leader_and_isr_updates(self.image, change))

    # --- brokers ----------------------------------------------------------------------------------------------

    def register(self, *broker_ids: int, epoch: int | None = None, directories: int = 1) -> None:
        """Register brokers anew. They are fenced."""
        for broker_id in broker_ids:
            self.apply(
                records.RegisterBrokerRecord(
                    broker_id=broker_id,
                    broker_epoch=epoch_of(broker_id) if epoch is None else epoch,
                    fenced=True,
                    log_dirs=[directory(broker_id, number) for number in range(directories)]
                    if self._names_directories
                    else [],
                )
            )

    def unfence(self, *broker_ids: int) -> list[Message]:
        """Unfence brokers, and return only the records of partitions, as the other methods do."""
        decided = []
        for broker_id in broker_ids:
            partitions = self.updates(added=broker_id)
            self.apply(self._change(broker_id, fenced=UNFENCED))
            decided += partitions
        return decided

    def fence(self, *broker_ids: int) -> list[Message]:
        decided = []
        for broker_id in broker_ids:
            decided += self.updates(removed=broker_id)
            self.apply(self._change(broker_id, fenced=FENCED))
        return decided

    def shut_down(self, broker_id: int) -> list[Message]:
        """Begin a broker's controlled shutdown."""
        decided = self.updates(removed=broker_id)
        self.apply(self._change(broker_id, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN))
        return decided

    def come_back_unclean(self, broker_id: int) -> list[Message]:
        """Register a broker again after an unclean stop. It is still fenced."""
        decided = self.updates(unclean=broker_id)
        self.register(broker_id, epoch=self.image.brokers[broker_id].broker_epoch + 1000)
        return decided

    def _change(
        self, broker_id: int, fenced: int = 0, in_controlled_shutdown: int = 0
    ) -> records.BrokerRegistrationChangeRecord:
        return records.BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=self.image.brokers[broker_id].broker_epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )

    # --- topics -----------------------------------------------------------------------------------------------

    def topic(self, name: str, *assignments: Sequence[int], isr: Iterable[int] | None = None) -> bytes:
        """Create a topic with these partitions. In sync are the active replicas, or those in `isr`."""
        self.apply(records.TopicRecord(name=name, topic_id=topic_id(name)))
        for index, replicas in enumerate(assignments):
            in_sync = [
                replica
                for replica in replicas
                if (self._is_active(replica) if isr is None else replica in isr)
            ]
            self.apply(
                records.PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id(name),
                    replicas=[*replicas],
                    isr=in_sync,
                    leader=in_sync[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[directory(replica) for replica in replicas if self._names_directories],
                )
            )
        return topic_id(name)

    def _is_active(self, broker_id: int) -> bool:
        broker = self.image.brokers[broker_id]
        return not (broker.fenced or broker.in_controlled_shutdown)

    def partition(self, name: str = "t", index: int = 0) -> PartitionImage:
        return self.image.topics[name].partitions[index]

    def change(self, name: str = "t", index: int = 0, **fields: object) -> None:
        """Apply a record that an earlier controller wrote. Each replica is in its broker's directory."""
        self.apply(changed(name, index, **fields))

    def configure(self, key: str, value: str, topic: str | None = "t", node: str = "") -> None:
        """Set a setting of a topic. If `topic` is None, it is a setting of a node, or of all nodes."""
        self.apply(
            records.ConfigRecord(
                resource_type=BROKER_RESOURCE if topic is None else TOPIC_RESOURCE,
                resource_name=node if topic is None else topic,
                name=key,
                value=value,
            )
        )


def changed(name: str = "t", index: int = 0, **fields: object) -> records.PartitionChangeRecord:
    """Return a record with these fields. All others say that nothing changes. Replicas bring their directories with
    them."""
    record = records.PartitionChangeRecord(partition_id=index, topic_id=topic_id(name))
    for field, value in fields.items():
        setattr(record, field, value)
    if record.replicas is not None and record.directories is None:
        record.directories = [directory(replica) for replica in record.replicas]
    return record
