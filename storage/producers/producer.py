"""What is known of one producer of a partition (Kafka: `ProducerStateEntry`)."""

from collections.abc import Iterable
from typing import NamedTuple

from protocol.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

NO_OFFSET = -1


class CachedBatch(NamedTuple):
    """One of a producer's last batches, by which its duplicate is known and answered."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class Producer:
    """A producer's state. `txn_first_offset` is -1 outside of a transaction; `batches` are the last five."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
        "txn_first_offset",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp_ms: int = NO_TIMESTAMP,
        txn_first_offset: int = NO_OFFSET,
        batches: Iterable[CachedBatch] = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.txn_first_offset = txn_first_offset
        self.batches = list(batches)

    @property
    def last_sequence(self) -> int:
        """-1 where no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in reversed(self.__slots__))
        return f"Producer({fields})"


def is_expired(producer: Producer, now_ms: int, expiration_ms: int) -> bool:
    return producer.txn_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms
