"""Transactions according to coordinators and to partitions' leaders, and ways to end them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cli.client.answers import check, the_one
from cli.client.cluster import TRANSACTION, KafkaCluster
from cli.client.offsets import NO_LEADER, Partition, leaders_of, raise_for
from protocol.errors import Error
from protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

TRANSACTION_TOPIC: Final = "__transaction_state"
NEVER_MS: Final = 2**31 - 1
"""The timeout of a producer with two-phase commit (KIP-939): the broker never ends its transactions."""
TIMEOUT_OF_FENCING_MS: Final = 60_000
PARTITIONS_AT_ONCE: Final = 500
LAST_WITHOUT_TWO_PHASES: Final = 5
"""A version of InitProducerId: the next one adds what only the application itself needs."""


@dataclass(frozen=True)
class CoordinatedTransaction:
    """A transactional id according to its coordinator. `started_ms` is None if it has no transaction."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int | None
    timeout_ms: int
    partitions: frozenset[Partition]

    @property
    def is_open(self) -> bool:
        """True if it is neither committed nor aborted yet."""
        return self.state == "Ongoing"

    @property
    def is_ending(self) -> bool:
        """True if the outcome is certain, and markers are being written."""
        return self.state in ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")

    @property
    def ends_ms(self) -> int | None:
        """When the broker aborts it by itself, or None."""
        if self.started_ms is None or not self.is_open or self.timeout_ms >= NEVER_MS:
            return None
        return self.started_ms + self.timeout_ms


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction without a marker in one partition, according to the leader."""

    partition: Partition
    producer_id: int
    producer_epoch: int
    start_offset: int
    coordinator_epoch: int
    last_timestamp_ms: int


def list_transactions(
    cluster: KafkaCluster, producer_ids: Iterable[int] = (), states: Iterable[str] = ()
) -> list[CoordinatedTransaction]:
    """Return all brokers' transactions, sorted by id. `producer_ids` and `states` select some, if given. Raises
    CommandError."""
    request = ListTransactionsRequest(state_filters=[*states], producer_id_filters=sorted(producer_ids))
    answers = cluster.ask_all(request, ListTransactionsResponse, lambda answer: answer.error_code)
    found = []
    for node, answer in answers.items():
        ids = [each.transactional_id for each in answer.transaction_states]
        found += described(cluster, node, ids)
    return sorted(found, key=lambda each: each.transactional_id)


def describe_transaction(cluster: KafkaCluster, transactional_id: str) -> CoordinatedTransaction | None:
    """Return the transaction, or None if its coordinator doesn't know it. Raises CommandError."""
    node = cluster.coordinator(TRANSACTION, transactional_id)
    found = described(cluster, node, [transactional_id])
    return found[0] if found else None


def described(
    cluster: KafkaCluster, node: int, transactional_ids: Sequence[str]
) -> list[CoordinatedTransaction]:
    """Return the transactions of these ids according to the node that coordinates them. Unknown ids are left out.
    Raises CommandError."""
    if not transactional_ids:
        return []
    request = DescribeTransactionsRequest(transactional_ids=[*transactional_ids])

    def ask() -> DescribeTransactionsResponse:
        return cluster.ask(request, DescribeTransactionsResponse, node)

    def worst(answer: DescribeTransactionsResponse) -> int:
        errors = {each.error_code for each in answer.transaction_states}
        return max(errors - {Error.TRANSACTIONAL_ID_NOT_FOUND}, default=0)

    answer = cluster.until_passed(ask, worst)
    found = []
    for each in answer.transaction_states:
        if each.error_code == Error.TRANSACTIONAL_ID_NOT_FOUND:
            continue
        check(each.error_code, None, f"transactional id {each.transactional_id}")
        partitions = {(topic.topic, index) for topic in each.topics for index in topic.partitions}
        started_ms = each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None
        found.append(
            CoordinatedTransaction(
                each.transactional_id,
                node,
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                started_ms,
                each.transaction_timeout_ms,
                frozenset(partitions),
            )
        )
    return found


def coordinators_are_complete(cluster: KafkaCluster) -> bool:
    """True if each partition of the transactions' topic has a leader. Otherwise a missing coordinator may know what no
    other does."""
    topic = the_one(cluster.metadata([TRANSACTION_TOPIC]).topics, TRANSACTION_TOPIC)
    if topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION:
        return True
    return not topic.error_code and NO_LEADER not in leaders_of([topic]).values()


def open_transactions(
    cluster: KafkaCluster, partitions: Iterable[Partition]
) -> dict[Partition, list[OpenTransaction]]:
    """Return the transactions without a marker, sorted by start. A partition without any has an empty list, one without
    a leader is missing. Raises CommandError."""
    left = sorted(partitions)
    found: dict[Partition, list[OpenTransaction]] = {}
    while left:
        some, left = left[:PARTITIONS_AT_ONCE], left[PARTITIONS_AT_ONCE:]
        found |= _open_in(cluster, some)
    return found


def _open_in(
    cluster: KafkaCluster, partitions: Sequence[Partition]
) -> dict[Partition, list[OpenTransaction]]:
    found: dict[Partition, list[OpenTransaction]] = {}

    def ask() -> tuple[int, Partition | None]:
        worst: tuple[int, Partition | None] = (Error.NONE, None)
        left = [each for each in partitions if each not in found]
        leaders = leaders_of(cluster.topics_left(sorted({topic for topic, _ in left}))) if left else {}
        by_node: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic, index in left:
            node = leaders.get((topic, index), NO_LEADER)
            if node != NO_LEADER:
                by_node[node][topic].append(index)
        for node, topics in by_node.items():
            asked = [DescribeProducersTopic(name=name, partition_indexes=of) for name, of in topics.items()]
            answer = cluster.ask(DescribeProducersRequest(topics=asked), DescribeProducersResponse, node)
            for of_topic in answer.topics:
                for each in of_topic.partitions:
                    key = (of_topic.name, each.partition_index)
                    if each.error_code:
                        worst = (each.error_code, key)
                        continue
                    found[key] = sorted(
                        (
                            OpenTransaction(
                                key,
                                producer.producer_id,
                                producer.producer_epoch,
                                producer.current_txn_start_offset,
                                producer.coordinator_epoch,
                                producer.last_timestamp,
                            )
                            for producer in each.active_producers
                            if producer.current_txn_start_offset >= 0
                        ),
                        key=lambda found_one: found_one.start_offset,
                    )
        return worst

    error_code, partition = cluster.until_passed(ask, lambda answer: answer[0])
    if partition is not None:
        raise_for(partition, error_code)
    return found


def write_abort_marker(cluster: KafkaCluster, hanging: OpenTransaction) -> None:
    """Write the same marker as Kafka's own tool: with the producer's epoch, and the least coordinator epoch if the
    partition has seen none. Raises CommandError."""
    topic, index = hanging.partition
    marker = WritableTxnMarker(
        producer_id=hanging.producer_id,
        producer_epoch=hanging.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=max(hanging.coordinator_epoch, 0),
    )

    def ask() -> int:
        leader = leaders_of(cluster.topics([topic])).get(hanging.partition, NO_LEADER)
        if leader == NO_LEADER:
            return Error.LEADER_NOT_AVAILABLE
        answer = cluster.ask(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, leader)
        of_topic = the_one(the_one(answer.markers, "the marker").topics, "the marker")
        return the_one(of_topic.partitions, "the marker").error_code

    raise_for(hanging.partition, cluster.until_passed(ask, lambda error_code: error_code))


def fence(cluster: KafkaCluster, transaction: CoordinatedTransaction) -> InitProducerIdResponse:
    """Take a new epoch for its transactional id. This aborts an open transaction and fences the id's producer. Raises
    CommandError."""
    # Without two-phase commit, no broker accepts a timeout that never ends.
    timeout_ms = transaction.timeout_ms if transaction.timeout_ms < NEVER_MS else TIMEOUT_OF_FENCING_MS
    request = InitProducerIdRequest(
        transactional_id=transaction.transactional_id, transaction_timeout_ms=timeout_ms
    )

    def ask() -> InitProducerIdResponse:
        node = cluster.coordinator(TRANSACTION, transaction.transactional_id)
        return cluster.ask(request, InitProducerIdResponse, node, at_most=LAST_WITHOUT_TWO_PHASES)

    answer = cluster.until_passed(ask, lambda found: found.error_code)
    check(answer.error_code, None, f"transactional id {transaction.transactional_id}")
    return answer
