"""Transactional batches: who has to be asked before they are appended, and what follows from the answer (KIP-890)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.controller.image import BROKER_RESOURCE
from broker.coordination.produce_verification import TransactionSupportedOperation
from broker.coordination.transactions import MARKERS_PER_TURN
from broker.network.answers import CloseConnectionError
from broker.replicas.replica import Follower
from broker.server import Server
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import Error
from protocol.messages.metadata_records import ConfigRecord
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import BATCH_LENGTH_POS, LOG_OVERHEAD, build_batch
from tests.node.transactional import (
    Producer,
    ask,
    batches,
    coordinating,
    create,
    delete,
    errors_of,
    markers,
    state,
)
from tests.support.answers import answered
from tests.support.whole_server import clock_of

VERIFICATION = "transaction.partition.verification.enable"


@pytest.mark.parametrize(
    ("version", "error"),
    [(3, Error.INVALID_TXN_STATE), (10, Error.INVALID_TXN_STATE), (11, Error.TRANSACTION_ABORTABLE)],
)
async def test_a_partition_that_was_not_added_is_refused(tmp_path: Path, version: int, error: Error) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()
    producer.add(("t", 1))

    assert producer.send(version=version) is error
    assert batches(node, "t") == []
    assert producer.send(index=1, version=version) is Error.NONE


async def test_a_partition_that_was_added_is_asked_about_once(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()
    producer.add(("t", 0))
    assert producer.send() is Error.NONE

    producer.transactional_id = "nobody's"

    assert producer.send() is Error.NONE, "as in Kafka"


async def test_version_2_adds_the_partition_by_the_batch_itself(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()

    assert producer.send() is Error.NONE

    assert [*node.transactions.shard_of("tx").describe("tx").partitions] == [("t", 0)]


async def test_a_first_batch_out_of_order_is_refused_and_yet_its_partition_was_added(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()

    [error] = errors_of(producer.produce(("t", 0), sequence=5))

    assert error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state(node) == "Ongoing"


@pytest.mark.parametrize("version", [1, 2])
async def test_a_producer_that_does_not_own_the_id_is_refused(tmp_path: Path, version: int) -> None:
    node = await coordinating(tmp_path)
    stranger = Producer(node, "unknown", version=version)
    stranger.producer_id = stranger.epoch = 0
    assert stranger.send() is Error.INVALID_PRODUCER_ID_MAPPING
    producer = Producer(node, version=version).begin()
    producer.producer_id += 1
    assert producer.send() is Error.INVALID_PRODUCER_ID_MAPPING
    producer.producer_id -= 1
    producer.epoch += 1
    assert producer.send() is Error.INVALID_PRODUCER_EPOCH


async def test_partitions_of_one_request_are_judged_separately(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()
    producer.add(("t", 1))

    [topic] = producer.produce(("t", 0), ("t", 1), version=10).responses

    told = {each.index: (Error(each.error_code), each.error_message) for each in topic.partition_responses}
    assert told[1] == (Error.NONE, None)
    error, message = told[0]
    assert error is Error.INVALID_TXN_STATE
    assert message


@pytest.mark.parametrize(
    ("size", "producer_id", "errors"),
    [
        (52, 7, [Error.UNKNOWN_SERVER_ERROR] * 2),
        (56, 7, [Error.UNKNOWN_SERVER_ERROR] * 2),
        (52, -1, [Error.CORRUPT_MESSAGE, Error.NONE]),
    ],
)
async def test_a_batch_that_ends_before_its_sequence_fails_the_whole_request(
    tmp_path: Path, size: int, producer_id: int, errors: list[Error]
) -> None:
    """Kafka looks for the sequence of a batch that has a producer id, and finds the end of the buffer."""

    node = await coordinating(tmp_path)
    whole = build_batch([(node.clock.now_ms(), b"k", b"v", ())])
    short = build_batch([(0, b"k", b"v", ())], producer_id=producer_id, transactional=True)[:size]
    short[BATCH_LENGTH_POS : BATCH_LENGTH_POS + 4] = (size - LOG_OVERHEAD).to_bytes(4, "big")
    data = [
        PartitionProduceData(index=index, records=memoryview(batch))
        for index, batch in enumerate((short, whole))
    ]
    request = ProduceRequest(
        transactional_id="tx", acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )

    assert sorted(errors_of(ask(node, request, 10))) == sorted(errors)


async def test_without_verification_version_1_is_believed_and_version_2_is_not(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, f"{VERIFICATION}=false")
    stranger = Producer(node, "unknown", version=1)
    stranger.producer_id, stranger.epoch = 77, 0
    assert stranger.send() is Error.NONE

    stranger.producer_id, stranger.version = 78, 2
    assert stranger.send() is Error.INVALID_PRODUCER_ID_MAPPING


async def test_verification_can_be_switched_off_while_the_broker_runs(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    stranger = Producer(node, "unknown", version=1)
    stranger.producer_id, stranger.epoch = 77, 0
    assert stranger.send() is Error.INVALID_PRODUCER_ID_MAPPING

    node.metadata.append(
        [ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=VERIFICATION, value="false")]
    )

    assert stranger.send() is Error.NONE


# --- what comes late ----------------------------------------------------------------------------------------


async def test_kafka_14402_a_batch_after_the_abort_opens_no_transaction(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    for version, error in ((1, Error.TRANSACTION_ABORTABLE), (2, Error.INVALID_PRODUCER_EPOCH)):
        producer = Producer(node, f"tx{version}", version=version).begin()
        if version == 1:
            producer.add(("t", 0))
        producer.send()
        producer_id, epoch = producer.producer_id, producer.epoch
        producer.end(commit=False)

        producer.producer_id, producer.epoch = producer_id, epoch
        assert errors_of(producer.produce(("t", 0), sequence=1)) == [error]

    log = node.partitions.get("t", 0).log
    assert log.last_stable_offset == log.log_end_offset


async def test_kafka_14402_a_marker_between_the_question_and_the_append_voids_the_answer(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()
    producer.add(("t", 0))
    shard = node.transactions.shard_of("tx")
    verify = shard.verify_partitions

    def verify_then_abort(*asked: Any) -> Any:
        answer = verify(*asked)
        assert producer.end(commit=False) is Error.NONE
        return answer

    setattr(shard, "verify_partitions", verify_then_abort)  # noqa: B010

    [answer] = producer.produce(("t", 0)).responses[0].partition_responses
    assert answer.error_code == Error.INVALID_TXN_STATE
    assert answer.log_start_offset == 0, "the log itself refused it"
    assert [header.is_control for header in batches(node, "t")] == [True]


# --- while the transaction before is being ended ------------------------------------------------------------


async def ending(node: Server, version: int) -> Producer:
    """Return a producer whose commit is logged. All its markers will be written after one more turn of the loop."""
    producer = Producer(node, version=version).begin()
    helper = Producer(node, version=1)
    helper.producer_id, helper.epoch = producer.producer_id, producer.epoch
    helper.add(*[("t", index) for index in range(MARKERS_PER_TURN + 1)])
    assert producer.end() is Error.NONE
    return producer


async def test_version_1_has_to_retry_while_the_previous_end_is_under_way(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, partitions=MARKERS_PER_TURN + 1)
    producer = await ending(node, 1)

    [answer] = producer.produce(("t", 0), version=11).responses[0].partition_responses

    assert answer.error_code == Error.NOT_ENOUGH_REPLICAS
    assert answer.error_message


async def test_version_2_waits_for_the_end_before(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, partitions=MARKERS_PER_TURN + 1)
    producer = await ending(node, 2)

    waiting = asyncio.ensure_future(answered(producer.produce(("t", 0))))
    for _ in range(3):
        await asyncio.sleep(0)
    assert state(node) == "CompleteCommit"
    assert not waiting.done()
    clock_of(node).advance_ms(20)
    node.timers.fire_due()

    assert errors_of(await waiting) == [Error.NONE]
    assert state(node) == "Ongoing"


async def test_version_2_waits_for_a_tenth_of_a_second_at_most(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, partitions=MARKERS_PER_TURN + 1)
    producer = await ending(node, 2)
    node.markers.stop()  # the rest of them is held back

    waiting = asyncio.ensure_future(answered(producer.produce(("t", 0))))
    for _ in range(5):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        clock_of(node).advance_ms(20)
        node.timers.fire_due()

    assert errors_of(await waiting) == [Error.CONCURRENT_TRANSACTIONS]


async def test_an_unanswered_batch_that_waits_in_vain_closes_its_connection(tmp_path: Path) -> None:
    node = await coordinating(
        tmp_path, "add.partitions.to.txn.retry.backoff.max.ms=20", partitions=MARKERS_PER_TURN + 1
    )
    producer = await ending(node, 2)
    node.markers.stop()

    waiting = asyncio.ensure_future(answered(producer.produce(("t", 0), acks=0)))
    await asyncio.sleep(0)
    clock_of(node).advance_ms(20)
    node.timers.fire_due()

    with pytest.raises(CloseConnectionError):
        await waiting


async def test_a_batch_that_waits_while_its_topic_is_deleted_finds_nothing(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, partitions=MARKERS_PER_TURN + 1)
    create(node, "gone")
    producer = await ending(node, 2)

    waiting = asyncio.ensure_future(answered(producer.produce(("gone", 0))))
    await asyncio.sleep(0)
    delete(node, "gone")
    await asyncio.sleep(0)
    clock_of(node).advance_ms(20)
    node.timers.fire_due()

    assert errors_of(await waiting) == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(markers(node)) == 1


async def test_an_announcement_that_nothing_came_of_is_forgotten_in_time(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    stranger = Producer(node, "unknown")
    stranger.producer_id = stranger.epoch = 5
    stranger.send()
    log = node.partitions.get("t", 0).log
    assert [*log.producers.verifications] == [5]

    clock_of(node).advance_ms(86_400_000)
    node.housekeeping.expire_producers()

    assert [*log.producers.verifications] == []


async def test_a_partition_that_is_not_led_here_is_not_added_to_the_transaction(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    partition = node.partitions.get("t", 0)
    role, partition.role = partition.role, Follower(partition.log, partition.waiting)

    assert producer.send() is Error.NOT_LEADER_OR_FOLLOWER

    assert state(node) == "Empty"
    partition.role = role


async def test_a_partition_whose_disk_failed_is_reported_as_such_and_not_as_unknown(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    partition = node.partitions.get("t", 0)
    node.partitions.take_offline(partition.directory)

    announced = node.add_partitions_manager._announce(
        TransactionalProducer("tx", producer.producer_id, producer.epoch),
        {partition: 0},
        TransactionSupportedOperation.ADD_PARTITION,
    )

    assert announced.errors == {partition: Error.KAFKA_STORAGE_ERROR}
