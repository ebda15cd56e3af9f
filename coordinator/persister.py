"""The way to the durable state of share partitions: a port of who needs it, the group coordinator and the leaders of
share partitions. Behind it is the share coordinator (`coordinator.share`), on this node or on another one.

Source: KIP-932; `Persister`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from protocol.errors import KafkaError
from protocol.waiting import Later

NO_START_OFFSET = -1
"""The start offset of a share partition that is initialized, and that nobody has written to since."""

NO_COMPLETE_COUNT = -1
"""The number of records that are done with, where it isn't known."""


class StateBatch(NamedTuple):
    """Offsets in a row that are in one state (Kafka: `PersisterStateBatch`)."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """0 available, 2 acknowledged, 3 archiving, 4 archived. What is acquired isn't durable."""
    delivery_count: int


class ShareState(NamedTuple):
    """What is durable of a share partition (Kafka: `PartitionAllData`)."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    """In the order of their offsets, none over another."""


class ShareStateSummary(NamedTuple):
    """What is durable of a share partition, without its batches (Kafka: `PartitionStateSummaryData`)."""

    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COMPLETE_COUNT


class Persister(Protocol):
    """Each is asked in the call, and answered exactly once, in that call or later, once what it changed is committed:
    also where nobody waits for the answer. None raises KafkaError: whatever goes wrong is an answer, with the share
    coordinator's code. What is asked of one share partition is carried out, and answered, in its order.
    """

    def initialize(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        state_epoch: int,
        start_offset: int,
    ) -> Later[KafkaError | None]:
        """Begin anew with no batches, at this offset or at NO_START_OFFSET.

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
        """What is durable. Earlier leader epochs are refused from now on.

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
        """Put these batches over what is durable, with the start and the number of records behind it that are done
        with.

        Errors: INVALID_REQUEST (not initialized), FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
        """
        ...

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> Later[KafkaError | None]:
        """Forget a share partition; one that isn't there is none to forget. Errors: UNKNOWN_TOPIC_OR_PARTITION."""
        ...

    def read_summary(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
    ) -> Later[ShareStateSummary | KafkaError]:
        """What is durable, without batches; the default values of one that isn't initialized.

        Errors: UNKNOWN_TOPIC_OR_PARTITION.
        """
        ...
