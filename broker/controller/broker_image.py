"""What the metadata says of one broker."""

from __future__ import annotations

from protocol.messages import metadata_records as records


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

    def copy(self) -> BrokerImage:
        """Another one that says the same."""
        other = BrokerImage(self.record)
        other.broker_epoch = self.broker_epoch
        other.fenced = self.fenced
        other.in_controlled_shutdown = self.in_controlled_shutdown
        other.log_dirs = self.log_dirs
        other.cordoned_log_dirs = self.cordoned_log_dirs
        return other
