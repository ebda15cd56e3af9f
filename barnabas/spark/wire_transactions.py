"""What the cluster knows of a transaction, and markers from outside its coordinator. Part of the adapter (`wire`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from barnabas.spark.codes import COORDINATOR_MOVES, LEADER_MOVES, TRANSACTIONAL_ID_NOT_FOUND
from barnabas.spark.wire_connection import TRANSACTION, Connection, check

Leaders = Mapping[str, Mapping[int, int]]
"""Topic → partition → node id of its leader."""


class DescribedTransaction(NamedTuple):
    """A transactional id as its coordinator has it; `state` by Kafka's names ("Ongoing", "CompleteCommit", …)."""

    state: str
    producer_id: int
    epoch: int


class OpenTransaction(NamedTuple):
    """A transaction without a marker, as the partition that holds it sees it.

    coordinator_epoch: of the producer's last marker there, -1 before the first.
    last_sequence: of the producer's records there, from 0 on in each epoch.
    """

    topic: str
    partition: int
    leader: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int
    last_sequence: int


class TransactionConnection(Connection):
    """Raises ResponseError and NoAnswerError."""

    def describe_transaction(self, transactional_id: str) -> DescribedTransaction | None:
        """None for an id that is not known."""

        def attempt() -> DescribedTransaction | None:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id], max_version=0)
            (one,) = self._ask_coordinator(TRANSACTION, transactional_id, request).transaction_states
            if one.error_code == TRANSACTIONAL_ID_NOT_FOUND:
                return None
            check(one.error_code, f"DescribeTransactions of {transactional_id}")
            return DescribedTransaction(one.transaction_state, one.producer_id, one.producer_epoch)

        return self._repeat(attempt, COORDINATOR_MOVES)

    def open_transactions(self, leaders: Callable[[], Leaders]) -> list[OpenTransaction]:
        """Of all producers, in these partitions (DescribeProducers); one request a leader."""
        return self._repeat(lambda: self._open_transactions(leaders()), LEADER_MOVES)

    def _open_transactions(self, leaders: Leaders) -> list[OpenTransaction]:
        shape = DescribeProducersRequest.TopicRequest
        sent = []
        for leader, topics in _by_leader(leaders).items():
            asked = [shape(name=topic, partition_indexes=numbers) for topic, numbers in topics.items()]
            request = DescribeProducersRequest(topics=asked, max_version=0)
            sent.append((leader, self._begin(leader, request)))
        found = []
        for leader, future in sent:
            for topic in self._finish(future).topics:
                for partition in topic.partitions:
                    check(
                        partition.error_code, f"DescribeProducers of {topic.name}-{partition.partition_index}"
                    )
                    found += [
                        OpenTransaction(
                            topic.name,
                            partition.partition_index,
                            leader,
                            one.producer_id,
                            one.producer_epoch,
                            one.coordinator_epoch,
                            one.current_txn_start_offset,
                            one.last_sequence,
                        )
                        for one in partition.active_producers
                        if one.current_txn_start_offset >= 0
                    ]
        return found

    def write_markers(self, transactions: Iterable[OpenTransaction], *, commit: bool) -> None:
        """End them where they lie, as `kafka-transactions.sh abort` does."""
        shape = WriteTxnMarkersRequest.WritableTxnMarker
        for one in transactions:
            marker = shape(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                transaction_result=commit,
                topics=[shape.WritableTxnMarkerTopic(name=one.topic, partition_indexes=[one.partition])],
                coordinator_epoch=max(0, one.coordinator_epoch),
            )
            request = WriteTxnMarkersRequest(markers=[marker], max_version=1)
            (result,) = self._finish(self._begin(one.leader, request)).markers
            (topic,) = result.topics
            (partition,) = topic.partitions
            check(partition.error_code, f"WriteTxnMarkers of {one.topic}-{one.partition}")


def _by_leader(leaders: Leaders) -> dict[int, dict[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, partitions in leaders.items():
        for partition, leader in partitions.items():
            found[leader][topic].append(partition)
    return found
