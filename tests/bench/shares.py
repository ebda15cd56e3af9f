"""Share groups: how fast one member takes and accepts records, with a raw client and with confluent-kafka's consumer.

The records are 1 KiB each, in batches of 16 KiB, which Java's producer fills by default: a share group works by the
batch. Each request accepts the records of the answer before. The pace doesn't include joining. The broker's processor
time does, but it adds little.
"""

from __future__ import annotations

import itertools
import os
import time

from confluent_kafka import ShareConsumer

from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.records import batch as records
from protocol.wire.codec import decode
from tests.bench.heartbeats import SHARE, Group
from tests.bench.measures import IN_FLIGHT, PATIENCE_S, RECORD_BYTES, Pace
from tests.bench.report import Row
from tests.clients.confluent import begin_at_the_start
from tests.support.ready_requests import produce_frame, produce_in_flight
from tests.support.wire import Client, request_frame

ROWS = [
    Row("share-raw", "share group, raw client", "records/s"),
    Row(
        "share-raw-cpu", "broker's processor time, share group", "µs/record", less_is_better=True, decimals=2
    ),
    Row("share", "share group, confluent-kafka", "records/s"),
]

RECORDS = 300_000
RECORDS_IN_BATCH = 15
MOST_RECORDS = 500  # Java's and librdkafka's consumers request this many at a time by default
MOST_BYTES = 50 * 1024 * 1024
ACCEPT = 1
VERSION = 2
_BEFORE_BODY = 5  # correlation id and tags

_numbers = itertools.count()


def fill(bootstrap: str, topic: str) -> dict[str, float]:
    """Write what the other measurements read."""
    now_ms = time.time_ns() // 1_000_000
    value = os.urandom(RECORD_BYTES)
    batch = bytes(records.build_batch([(now_ms, None, value, ())] * RECORDS_IN_BATCH))
    client = Client.of(bootstrap)
    produce_in_flight(client, produce_frame(topic, batch, acks=-1), RECORDS // RECORDS_IN_BATCH, IN_FLIGHT)
    client.close()
    return {}


def read_raw(bootstrap: str, topic: str) -> Pace:
    """Send ShareFetch requests, each after the previous answer, accepting that answer's records."""
    group = Group(SHARE, bootstrap, topic, 1)
    begin_at_the_start(bootstrap, group.name)
    group.settle()
    client = Client.of(bootstrap)
    topic_id = group.members[0].assigned[0].topic_id
    accepted: list[AcknowledgementBatch] = []
    read, epoch = 0, 0
    started_s = time.perf_counter()
    while read < RECORDS or accepted:
        asked = FetchPartition(partition_index=0, acknowledgement_batches=accepted)
        request = ShareFetchRequest(
            group_id=group.name,
            member_id=group.members[0].member_id,
            share_session_epoch=epoch,
            max_wait_ms=500 if read < RECORDS else 0,
            min_bytes=1,
            max_bytes=MOST_BYTES,
            max_records=MOST_RECORDS,
            batch_size=MOST_RECORDS,
            topics=[FetchTopic(topic_id=topic_id, partitions=[asked])] if accepted or epoch == 0 else [],
        )
        client.send_bytes(request_frame(request, VERSION))
        answer = decode(ShareFetchResponse, VERSION, client.next_frame()[_BEFORE_BODY:])
        assert answer.error_code == 0, answer
        accepted = _accepted(answer)
        read += sum(each.last_offset - each.first_offset + 1 for each in accepted)
        epoch += 1
    took_s = time.perf_counter() - started_s
    client.close()
    group.leave()
    return Pace(read, took_s)


def _accepted(answer: ShareFetchResponse) -> list[AcknowledgementBatch]:
    parts = [part for topic in answer.responses for part in topic.partitions]
    assert not any(part.error_code or part.acknowledge_error_code for part in parts), parts
    return [
        AcknowledgementBatch(
            first_offset=each.first_offset, last_offset=each.last_offset, acknowledge_types=[ACCEPT]
        )
        for part in parts
        for each in part.acquired_records
    ]


def read_with_confluent(bootstrap: str, topic: str) -> Pace:
    """Read with confluent-kafka's share consumer, which makes a Python object of each record; from its first records
    on."""
    group = f"share-{os.getpid()}-{next(_numbers)}"
    begin_at_the_start(bootstrap, group)
    read, first_came_s, first = 0, 0.0, 0
    deadline_s = time.perf_counter() + PATIENCE_S
    with ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}) as consumer:
        consumer.subscribe([topic])
        while read < RECORDS:
            read += len(consumer.poll(0.2))
            if read and not first:
                first, first_came_s = read, time.perf_counter()
            assert time.perf_counter() < deadline_s, f"only {read} of {RECORDS} came"
        consumer.commit_sync(PATIENCE_S)
        took_s = time.perf_counter() - first_came_s
    return Pace(read - first, took_s)
