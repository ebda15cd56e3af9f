"""The port to the durable state of share partitions, for the group coordinator and the leaders of share partitions.

Behind it is the share coordinator (`coordinator.share`), on this node or another one. Source: KIP-932; `Persister`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from protocol.errors import KafkaError
from protocol.waiting import Later

NO_START_OFFSET = -1
"""The start offset of an initialized share partition that nobody has written to yet."""

NO_COMPLETE_COUNT = -1
"""The number of completed records, if unknown."""


class StateBatch(NamedTuple):
    """Consecutive offsets in the same state (Kafka: `PersisterStateBatch`)."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """0 available, 2 acknowledged, 3 archiving, 4 archived. Acquired records have no durable state."""
    delivery_count: int


class ShareState(NamedTuple):
    """The durable state of a share partition (Kafka: `PartitionAllData`)."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    """In the order of their offsets, without overlaps."""


class ShareStateSummary(NamedTuple):
    """The durable state of a share partition, without its batches (Kafka: `PartitionStateSummaryData`)."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COMPLETE_COUNT


class Persister(Protocol):
    """Reads and writes the durable state of share partitions.

    Each method starts in the call. It answers exactly once, in the call or later, once its change is
    committed, even if nobody waits for the answer. None raises KafkaError: each failure is an answer, with
    the share coordinator's code. Requests for one share partition are carried out and answered in order.
    """

    def initialize(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        state_epoch: int,
        start_offset: int,
    ) -> Later[KafkaError | None]:
        """Start anew without batches, at this offset or at NO_START_OFFSET.

        Errors: FENCED_STATE_EPOCH; UNKNOWN_TOPIC_OR_PARTITION.
        """
        ...

    def read(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
    ) -> Later[ShareState | KafkaError]:
        """Return the durable state. From now on earlier leader epochs are refused.

        Errors: INVALID_REQUEST (not initialized), FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        ...

    def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Later[KafkaError | None]:
        """Merge these batches over the durable ones, and set the start and the number of completed records
        after it.

        Errors: INVALID_REQUEST (not initialized), FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        ...

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> Later[KafkaError | None]:
        """Forget a share partition. One that doesn't exist is no error. Errors: UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def read_summary(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
    ) -> Later[ShareStateSummary | KafkaError]:
        """Return the durable state without batches, or the default values if it isn't initialized.

        Errors: UNKNOWN_TOPIC_OR_PARTITION.
        """
        ...
