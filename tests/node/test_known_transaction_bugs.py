"""Bugs that Kafka had with transactions, each by its number, as a whole broker shows them.

Those that the coordinator shows alone are in `coordinator/transaction/test_known_bugs.py` and `test_rotation.py`, the
log's in `storage/test_known_bugs.py`, KAFKA-14402 and 14884 beside the rest of verification.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.transactions import MARKERS_PER_TURN
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from tests.node.transactional import (
    Producer,
    ask,
    batches,
    committed,
    coordinating,
    errors_of,
    markers,
    state,
)
from tests.support.answers import answered
from tests.support.whole_server import clock_of, crash

MINUTE_MS = 60_000


def refuse_once(shard: object, method: str, error: Error) -> None:
    """Have the coordinator answer its next call of this method with the error."""
    real = getattr(shard, method)

    def refused(*arguments: Any, **options: Any) -> Any:
        setattr(shard, method, real)
        if method == "add_partitions":
            return KafkaError(error)
        _, partitions = arguments
        return dict.fromkeys(partitions, error)

    setattr(shard, method, refused)


async def produced(producer: Producer, sequence: int) -> Error:
    answer = producer.produce(("t", 0), sequence=sequence)
    return errors_of(await answer if asyncio.iscoroutine(answer) else answer)[0]


@pytest.mark.parametrize(("version", "question"), [(1, "verify_partitions"), (2, "add_partitions")])
async def test_kafka_14920_18202_a_second_batch_does_not_overtake_the_first_that_could_not_be_verified(
    tmp_path: Path, version: int, question: str
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=version).begin()
    if version == 1:
        producer.add(("t", 0))
    refuse_once(node.transactions.shard_of("tx"), question, Error.COORDINATOR_LOAD_IN_PROGRESS)

    assert await produced(producer, 0) is Error.NOT_ENOUGH_REPLICAS
    assert await produced(producer, 1) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER, "it was in flight"
    assert batches(node, "t") == []
    assert [await produced(producer, sequence) for sequence in (0, 1)] == [Error.NONE] * 2

    assert producer.end() is Error.NONE
    assert [header.base_sequence for header in batches(node, "t")] == [0, 1, -1]


async def test_kafka_14904_a_batch_is_verified_while_its_transaction_gets_another_partition(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()
    producer.add(("t", 0))
    shard = node.transactions.shard_of("tx")
    append = shard.runtime.append
    seen: list[Error] = []

    def sending_meanwhile(*arguments: Any, **options: Any) -> Any:
        assert shard.transactions["tx"].pending_state is not None
        seen.append(producer.send(index=0))
        return append(*arguments, **options)

    shard.runtime.append = sending_meanwhile  # type: ignore[method-assign]
    assert producer.add(("t", 1)) == [Error.NONE]
    assert seen == [Error.NONE]


async def test_kafka_5376_a_fetch_that_waited_over_an_abort_names_it(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    aborted, committed_ = Producer(node, "aborted").begin(), Producer(node, "committed").begin()
    aborted.send()
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=sum(header.size_bytes for header in batches(node, "t")) + 200,
        max_bytes=1_000_000,
        isolation_level=1,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)],
            )
        ],
    )
    waiting = ask(node, request, 11)
    [reader] = node.partitions.get("t", 0).waiting
    producer_id = aborted.producer_id
    aborted.end(commit=False)
    assert not reader.is_over, "what is stable isn't enough yet"

    committed_.send()
    assert not reader.is_over, "what is open doesn't count"
    committed_.end()

    [found] = (await answered(waiting)).responses[0].partitions
    assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions] == [
        (producer_id, 0)
    ]
    assert found.last_stable_offset == 4


async def test_kafka_17507_offsets_of_the_next_transaction_wait_until_the_markers_have_let_the_last_ones_count(
    tmp_path: Path,
) -> None:
    """The marker for the offsets is the last of many, and is still under way when the producer goes on."""
    node = await coordinating(tmp_path, partitions=MARKERS_PER_TURN + 1)
    producer = Producer(node, version=1).begin()
    producer.add(*[("t", index) for index in range(MARKERS_PER_TURN + 1)])
    producer.add_offsets()
    assert producer.commit_offsets(7) == [Error.NONE]
    assert producer.end() is Error.NONE
    assert committed(node) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    assert producer.add_offsets() is Error.CONCURRENT_TRANSACTIONS

    while producer.add_offsets() is Error.CONCURRENT_TRANSACTIONS:
        await asyncio.sleep(0)
    assert committed(node) == (7, Error.NONE), "the end was told when they counted"
    assert producer.commit_offsets(8) == [Error.NONE]
    assert committed(node) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    assert producer.end(commit=False) is Error.NONE
    while state(node) != "CompleteAbort":
        await asyncio.sleep(0)
    assert committed(node) == (7, Error.NONE)


def groups(node: Server) -> list[str]:
    return [each.group_id for each in ask(node, ListGroupsRequest(), 4).groups]


async def test_kafka_19163_a_group_with_pending_offsets_does_not_expire(tmp_path: Path) -> None:
    node = await coordinating(
        tmp_path, "offsets.retention.minutes=1", "offsets.retention.check.interval.ms=1000"
    )
    producer = Producer(node)
    assert producer.init(timeout_ms=15 * MINUTE_MS).error_code == Error.NONE
    for offset in (6, 7):
        assert producer.commit_offsets(offset) == [Error.NONE]
        clock_of(node).advance_ms(10 * MINUTE_MS)
        node.timers.fire_due()
        assert groups(node) == ["g"]

        assert producer.end() is Error.NONE
        assert committed(node) == (offset, Error.NONE)

    clock_of(node).advance_ms(10 * MINUTE_MS)
    node.timers.fire_due()
    assert groups(node) == [], "what is committed expires"


@pytest.mark.parametrize("commit", [True, False])
async def test_kafka_19163_a_group_deleted_with_pending_offsets_is_gone_and_its_transaction_ends_all_the_same(
    tmp_path: Path, commit: bool
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    assert producer.commit_offsets(7) == [Error.NONE]
    answer = ask(node, DeleteGroupsRequest(groups_names=["g"]), 2)
    assert [result.error_code for result in answer.results] == [Error.NONE]

    assert producer.end(commit=commit) is Error.NONE
    assert state(node).startswith("Complete")
    assert committed(node) == (-1, Error.NONE)
    crash(node)
    again = await coordinating(tmp_path)
    assert committed(again) == (-1, Error.NONE), "nor does a replay bring it back"


async def test_kafka_19999_a_marker_repeated_after_a_crash_completes_the_prepared_transaction(
    tmp_path: Path,
) -> None:
    """The first answer to the marker is lost with the coordinator. The partition has the marker, but Complete* was
    never logged."""
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    shard = node.transactions.shard_of("tx")
    append = shard.runtime.append
    appended: list[bool] = []

    def only_once(*arguments: Any, **options: Any) -> Any:
        if appended:
            raise KafkaError(Error.NOT_COORDINATOR)
        appended.append(True)
        return append(*arguments, **options)

    shard.runtime.append = only_once  # type: ignore[method-assign]
    assert producer.end() is Error.NONE
    assert (state(node), len(markers(node))) == ("PrepareCommit", 1)
    crash(node)

    again = await coordinating(tmp_path)
    assert state(again) == "CompleteCommit"
    assert len(markers(again)) == 2, "as Kafka appends it again"
    assert {header.producer_epoch for header in markers(again)} == {1}
    producer.node = again
    assert producer.send() is Error.NONE
    assert producer.end() is Error.NONE


async def test_kafka_17754_a_commit_that_comes_late_does_not_touch_the_next_transactions_records(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    late = Producer(node)
    late.producer_id, late.epoch = producer.producer_id, producer.epoch
    assert producer.end() is Error.NONE
    producer.send()

    assert late.end() is Error.PRODUCER_FENCED

    log = node.partitions.get("t", 0).log
    assert (state(node), log.last_stable_offset, log.log_end_offset) == ("Ongoing", 2, 3)
    assert producer.end(commit=False) is Error.NONE
