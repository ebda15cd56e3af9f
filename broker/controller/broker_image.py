"""What the metadata says of one broker."""

from __future__ import annotations

from typing import NamedTuple

from broker.controller.directory_ids import LOST, MIGRATING, UNASSIGNED
from protocol.messages import metadata_records as records


class BrokerNode(NamedTuple):
    """Where clients of one listener find a broker (Kafka: `Node`)."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


class BrokerImage:
    """One broker's registration (Kafka: `BrokerRegistration`)."""

    __slots__ = (
        "broker_epoch",
        "cordoned_log_dirs",
        "fenced",
        "in_controlled_shutdown",
        "log_dirs",
        "record",
    )

    def __init__(self, record: records.RegisterBrokerRecord) -> None:
        self.record = record
        self.broker_epoch = record.broker_epoch
        self.fenced = record.fenced
        self.in_controlled_shutdown = record.in_controlled_shutdown
        self.log_dirs = record.log_dirs
        self.cordoned_log_dirs = record.cordoned_log_dirs

    @property
    def is_active(self) -> bool:
        """Whether it can be in sync and lead (Kafka: `ClusterControlManager.isActive`)."""
        return not (self.fenced or self.in_controlled_shutdown)

    def node(self, listener_name: str) -> BrokerNode | None:
        """None where it isn't advertised to clients of the listener."""
        record = self.record
        for endpoint in record.end_points:
            if endpoint.name == listener_name:
                return BrokerNode(record.broker_id, endpoint.host, endpoint.port, record.rack, self.fenced)
        return None

    def has_online_dir(self, directory_id: bytes) -> bool:
        """Whether it can have what is said to be in the directory. One that has registered none, by a metadata.version
        that knows of none, has any (Kafka: `DirectoryId.isOnline`)."""
        if directory_id in (UNASSIGNED, MIGRATING):
            return True
        return directory_id != LOST and (not self.log_dirs or directory_id in self.log_dirs)

    def copy(self) -> BrokerImage:
        """Another one that says the same."""
        other = BrokerImage(self.record)
        other.broker_epoch = self.broker_epoch
        other.fenced = self.fenced
        other.in_controlled_shutdown = self.in_controlled_shutdown
        other.log_dirs = self.log_dirs
        other.cordoned_log_dirs = self.cordoned_log_dirs
        return other
