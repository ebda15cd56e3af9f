"""The transaction coordinators in a whole broker: how they come with their partitions, end transactions, are loaded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.coordination.transactions import MARKERS_PER_TURN, TRANSACTION_TOPIC
from broker.server import Server
from protocol.errors import Error
from protocol.messages.topics import CreatePartitionsTopic
from protocol.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from protocol.records.batch import build_batch
from storage.log.log_state import AppendOrigin
from tests.node.transactional import (
    Producer,
    ask,
    committed,
    coordinating,
    create,
    delete,
    find,
    markers,
    state,
)
from tests.support.topics import topics_of
from tests.support.whole_server import started


def list_of(node: Server) -> ListTransactionsRequest:
    return ask(node, ListTransactionsRequest(), 2)  # type: ignore[no-any-return]


async def turns(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# --- coming and going ---------------------------------------------------------------------------------------


async def test_the_first_question_for_a_coordinator_is_answered_at_once(node: Server) -> None:
    answer = find(node)

    assert (answer.error_code, answer.node_id) == (Error.NONE, node.node_id)
    assert len(node.partitions.by_name[TRANSACTION_TOPIC].partitions) == 50
    assert Producer(node).begin().epoch == 0


async def test_the_topic_of_transactions_is_made_as_kafka_makes_it(tmp_path: Path) -> None:
    node = await started(tmp_path, "transaction.state.log.segment.bytes=5000000")
    find(node)

    assert dict(node.metadata.image.config_of_topic(TRANSACTION_TOPIC)) == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "5000000",
        "unclean.leader.election.enable": "false",
    }


async def test_without_its_topic_no_transaction_is_coordinated_here(node: Server) -> None:
    create(node, "t")
    producer = Producer(node)
    producer.producer_id = producer.epoch = 0

    assert producer.init(known=False).error_code == Error.NOT_COORDINATOR
    assert producer.add(("t", 0)) == [Error.NOT_COORDINATOR]
    assert producer.add_offsets() is Error.NOT_COORDINATOR
    assert producer.end() is Error.NOT_COORDINATOR
    assert producer.send() is Error.NOT_ENOUGH_REPLICAS
    [described] = ask(node, DescribeTransactionsRequest(transactional_ids=["tx"]), 0).transaction_states
    assert described.error_code == Error.NOT_COORDINATOR
    assert list_of(node).transaction_states == []


async def test_a_nonsense_request_is_refused_before_any_lookup(node: Server) -> None:
    create(node, "t")
    nameless = Producer(node, "")

    assert nameless.init().error_code == Error.INVALID_REQUEST
    assert nameless.add(("t", 0)) == [Error.INVALID_REQUEST]
    assert nameless.add_offsets() is Error.INVALID_REQUEST
    assert nameless.end() is Error.INVALID_REQUEST
    for timeout_ms in (-1, 0, 900_001):
        assert Producer(node).init(timeout_ms=timeout_ms).error_code == Error.INVALID_TRANSACTION_TIMEOUT


async def test_partitions_that_are_added_do_not_move_any_transactional_id(tmp_path: Path) -> None:
    node = await started(tmp_path, "transaction.state.log.num.partitions=2")
    find(node)
    producers = [Producer(node, f"tx{number}").begin() for number in range(9)]

    topics_of(node).add_partitions([CreatePartitionsTopic(name=TRANSACTION_TOPIC, count=7, assignments=None)])

    assert [producer.end(commit=False) for producer in producers] == [Error.NONE] * 9


async def test_without_its_topic_a_coordinator_refuses_everybody(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()

    delete(node, TRANSACTION_TOPIC)

    assert producer.end() is Error.NOT_COORDINATOR
    assert find(node).error_code == Error.NONE
    assert producer.end() is Error.INVALID_PRODUCER_ID_MAPPING, "a new topic, without the old ids"


async def test_a_partition_that_can_not_be_read_is_loading_for_ever(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    partition = node.partitions.get(TRANSACTION_TOPIC, 0)
    senseless = build_batch([(1, b"\0\0\0\1t", b"\0\1\2", ())])
    partition.log.append(
        senseless, leader_epoch=partition.leader_epoch, now_ms=1, origin=AppendOrigin.COORDINATOR
    )
    await node.stop()

    again = await coordinating(tmp_path)

    assert Producer(again).init().error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    answer = ask(again, ListTransactionsRequest(), 2)
    assert answer.error_code == Error.COORDINATOR_LOAD_IN_PROGRESS


async def test_the_settings_of_transactions_are_those_of_the_file(tmp_path: Path) -> None:
    node = await coordinating(
        tmp_path,
        "transaction.max.timeout.ms=1000",
        "transaction.two.phase.commit.enable=true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms=11",
        "transaction.remove.expired.transaction.cleanup.interval.ms=12",
        "transactional.id.expiration.ms=13",
    )

    settings = node.transactions.settings

    assert (settings.max_timeout_ms, settings.two_phase_commit_enable) == (1000, True)
    assert (settings.abort_timed_out_interval_ms, settings.remove_expired_interval_ms) == (11, 12)
    assert settings.transactional_id_expiration_ms == 13


# --- ending -------------------------------------------------------------------------------------------------


async def test_a_commit_is_complete_before_the_next_request_is_served(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send(index=0)
    producer.send(index=1)

    assert producer.end() is Error.NONE

    assert state(node) == "CompleteCommit"
    assert [len(markers(node, index=index)) for index in range(2)] == [1, 1]
    assert producer.send() is Error.NONE, "the next transaction"


async def test_a_marker_says_in_which_epoch_its_coordinator_leads(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    await node.stop()
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    producer.end()

    known = node.partitions.get("t", 0).log.producers.producers[producer.producer_id]

    assert known.coordinator_epoch == node.partitions.get(TRANSACTION_TOPIC, 0).leader_epoch == 2


async def test_offsets_of_a_transaction_are_visible_once_it_is_committed(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    assert producer.commit_offsets(7) == [Error.NONE]
    assert committed(node) == (-1, Error.UNSTABLE_OFFSET_COMMIT)

    assert producer.end() is Error.NONE

    assert committed(node) == (7, Error.NONE)


async def test_offsets_of_a_transaction_that_is_aborted_never_count(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.commit_offsets(7)

    assert producer.end(commit=False) is Error.NONE

    assert committed(node) == (-1, Error.NONE)


@pytest.mark.limit("broker.coordination.transactions.MARKERS_PER_TURN")
async def test_others_are_served_while_markers_go_to_many_partitions(tmp_path: Path) -> None:
    count = 2 * MARKERS_PER_TURN + 50
    node = await coordinating(tmp_path, partitions=count)
    producer = Producer(node, version=1).begin()
    producer.add(*[("t", index) for index in range(count)])
    written = []

    assert producer.end() is Error.NONE
    for _ in range(3):
        written.append(sum(len(markers(node, index=index)) for index in range(count)))
        assert Producer(node, "other").begin().end(commit=False) is Error.NONE
        await turns()

    assert written == [MARKERS_PER_TURN, 2 * MARKERS_PER_TURN, count]
    assert state(node) == "CompleteCommit"


async def test_large_transactions_take_turns(tmp_path: Path) -> None:
    count = 3 * MARKERS_PER_TURN
    node = await coordinating(tmp_path, partitions=count)
    producers = [Producer(node, name, version=1).begin() for name in ("a", "b")]
    for producer in producers:
        producer.add(*[("t", index) for index in range(count)])
        producer.end()

    def written() -> list[int]:
        ids = [header.producer_id for index in range(count) for header in markers(node, index=index)]
        return [ids.count(producer.producer_id) for producer in producers]

    await turns(2)
    assert written() == [2 * MARKERS_PER_TURN, 2 * MARKERS_PER_TURN]
    await turns(2)
    assert [state(node, name) for name in ("a", "b")] == ["CompleteCommit", "CompleteCommit"]


async def test_a_partition_that_was_deleted_awaits_no_marker(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, partitions=1)
    create(node, "gone")
    producer = Producer(node).begin()
    producer.send("t")
    producer.send("gone")
    delete(node, "gone")

    assert producer.end() is Error.NONE

    assert state(node) == "CompleteCommit"
    assert len(markers(node)) == 1


async def test_a_topic_deleted_between_the_turns_of_its_markers_holds_nothing_up(tmp_path: Path) -> None:
    count = MARKERS_PER_TURN + 1
    node = await coordinating(tmp_path, partitions=count)
    producer = Producer(node, version=1).begin()
    producer.add(*[("t", index) for index in range(count)])
    producer.end()
    assert state(node) == "PrepareCommit"

    delete(node, "t")
    await turns()

    assert state(node) == "CompleteCommit"
