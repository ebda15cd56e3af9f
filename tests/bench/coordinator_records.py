"""Prepared records that transactions leave in the two internal topics.

One round is one transaction of each transactional id, and one commit of each group. Repeated, they are what a day's
transactions write.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from coordinator.group.records import CommittedOffset, OffsetRecord, encode_record
from coordinator.java.maps import partition_of_key
from coordinator.transaction.state_manager import TransitMetadata, encode_key, encode_value
from coordinator.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, TransactionState
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import NewRecord, build_batch
from tests.support.ready_requests import PRODUCE_VERSION
from tests.support.wire import request_frame

TRANSACTIONS, OFFSETS = "__transaction_state", "__consumer_offsets"
MAY_WRITE_THEM = "__admin_client"
"""The only client id that Kafka lets write to internal topics."""
COMMITTED = 4_711
LEVEL = 2  # of transaction.version
_TIMEOUT_MS = 60_000
_STATES = (ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)


def transactional_ids(count: int) -> list[str]:
    return [f"day-{number}" for number in range(count)]


def groups(count: int) -> list[str]:
    return [f"group-of-day-{number}" for number in range(count)]


def rounds_of_transactions(ids: Sequence[str], partitions: int, records_per_batch: int) -> Iterator[bytes]:
    """Yield frames: in each a batch for each partition, with the records of some transactions."""
    now_ms = time.time_ns() // 1_000_000
    by_partition: list[list[NewRecord]] = [[] for _ in range(partitions)]
    for number, name in enumerate(ids):
        of = by_partition[partition_of_key(name, partitions)]
        of += [(now_ms, encode_key(name), _value(state, number, now_ms), ()) for state in _STATES]
    return _frames(TRANSACTIONS, by_partition, records_per_batch)


def rounds_of_commits(group_ids: Sequence[str], partitions: int, records_per_batch: int) -> Iterator[bytes]:
    """Yield frames: in each a batch for each partition, with some commits."""
    now_ms = time.time_ns() // 1_000_000
    by_partition: list[list[NewRecord]] = [[] for _ in range(partitions)]
    for name in group_ids:
        committed = CommittedOffset(COMMITTED, -1, "", now_ms)
        key, value = encode_record(OffsetRecord((name, "flights", 0), committed))
        by_partition[partition_of_key(name, partitions)].append((now_ms, key, value, ()))
    return _frames(OFFSETS, by_partition, records_per_batch)


def _value(state: TransactionState, number: int, now_ms: int) -> bytes:
    partitions = {("flights", number % 8): None} if state not in (EMPTY, COMPLETE_COMMIT) else {}
    transit = TransitMetadata(
        state=state,
        producer_id=1_000 + number,
        previous_producer_id=-1,
        next_producer_id=-1,
        producer_epoch=0,
        last_producer_epoch=-1,
        timeout_ms=_TIMEOUT_MS,
        partitions=partitions,
        start_timestamp_ms=now_ms,
        last_update_timestamp_ms=now_ms,
        client_transaction_version=LEVEL,
    )
    return encode_value(transit, LEVEL)


def _frames(topic: str, by_partition: list[list[NewRecord]], records_per_batch: int) -> Iterator[bytes]:
    for first in range(0, max(map(len, by_partition)), records_per_batch):
        data = [
            PartitionProduceData(
                index=index, records=memoryview(build_batch(records[first : first + records_per_batch]))
            )
            for index, records in enumerate(by_partition)
            if first < len(records)
        ]
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        yield request_frame(request, PRODUCE_VERSION, client_id=MAY_WRITE_THEM)
