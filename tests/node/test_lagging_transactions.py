"""Transactions of a broker whose partitions have another replica in sync: answers and markers wait until it has all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.replicas.leader import Leader
from broker.replicas.replica import Follower
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    EndTxnRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.waiting import Later, at_once
from tests.node.replicated import without_a_controller
from tests.node.transactional import Producer, ask, committed, coordinating, markers, state
from tests.support.whole_server import clock_of, take_turns

OTHER = 2


def leader_of(node: Server, topic: str, index: int = 0) -> Leader:
    return node.partitions.get(topic, index).leader()


def replicate(node: Server, topic: str) -> Leader:
    """Give the partition another replica in sync, which has fetched nothing yet."""
    leader = leader_of(node, topic)
    lead(node, leader, leader.leader_epoch, [node.node_id, OTHER])
    return leader


def lead(node: Server, leader: Leader, leader_epoch: int, isr: list[int]) -> None:
    """Lead as the metadata says next: in this epoch, and with this ISR."""
    leader.begin_replication((bytes(16), 0), without_a_controller())
    assert leader.replicas is not None
    leader.lead(leader_epoch, leader.replicas.in_sync.partition_epoch + 1, [node.node_id, OTHER], isr)


def fetch(leader: Leader) -> None:
    """Have the other replica fetch everything that the log has."""
    leader.follower_fetched(OTHER, leader.log.log_end_offset, leader.log.log_start_offset)


def resign(node: Server, topic: str) -> None:
    """Have the partition be led elsewhere from now on."""
    partition = node.partitions.get(topic, 0)
    leader = partition.leader()
    partition.role = Follower(partition.log, partition.waiting)
    leader.resign(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))
    at_once(node.transactions.hosted.follow())


def end_of(producer: Producer) -> Any:
    request = EndTxnRequest(
        transactional_id="tx",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    return ask(producer.node, request, 5)


async def test_an_end_is_answered_and_marked_once_the_other_replica_has_it(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    leader = replicate(node, TRANSACTION_TOPIC)

    later = end_of(producer)
    assert isinstance(later.answer(), Later)
    assert (state(node), markers(node)) == ("Ongoing", [])
    assert producer.end() is Error.CONCURRENT_TRANSACTIONS

    fetch(leader)
    take_turns(node)
    assert later.result().error_code == Error.NONE
    assert (state(node), len(markers(node))) == ("PrepareCommit", 1)
    fetch(leader)
    assert state(node) == "CompleteCommit"


async def test_an_end_is_sent_to_another_coordinator_where_the_leadership_is_lost_before_it_is_committed(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    replicate(node, TRANSACTION_TOPIC)
    later = end_of(producer)

    resign(node, TRANSACTION_TOPIC)
    take_turns(node)

    assert later.result().error_code == Error.NOT_COORDINATOR
    assert markers(node) == []
    assert producer.end() is Error.NOT_COORDINATOR


async def test_a_transaction_is_complete_once_its_markers_are_committed(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    leader = replicate(node, "t")

    assert producer.end() is Error.NONE
    assert (state(node), len(markers(node))) == ("PrepareCommit", 1)
    fetch(leader)
    assert (state(node), len(markers(node))) == ("CompleteCommit", 1)


async def test_nothing_is_written_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    leader = leader_of(node, TRANSACTION_TOPIC)
    leader.log.config = replace(leader.log.config, min_insync_replicas=2)
    lead(node, leader, leader.leader_epoch, [node.node_id])

    assert producer.add(("t", 0)) == [Error.COORDINATOR_NOT_AVAILABLE]
    assert state(node) == "Empty"


async def test_no_marker_is_written_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    leader = leader_of(node, "t")
    leader.log.config = replace(leader.log.config, min_insync_replicas=2)
    lead(node, leader, leader.leader_epoch, [node.node_id])

    assert producer.end() is Error.NONE
    assert (state(node), markers(node)) == ("PrepareCommit", [])

    lead(node, leader, leader.leader_epoch, [node.node_id, OTHER])
    clock_of(node).advance_ms(1_000)
    node.timers.fire_due()  # it is tried again
    fetch(leader)
    assert (state(node), len(markers(node))) == ("CompleteCommit", 1)


async def test_a_groups_marker_is_answered_once_it_is_committed(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    assert producer.commit_offsets(5) == [Error.NONE]
    leader = replicate(node, OFFSETS_TOPIC)
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=True,
                topics=[WritableTxnMarkerTopic(name=OFFSETS_TOPIC, partition_indexes=[0])],
                coordinator_epoch=0,
            )
        ]
    )

    later = ask(node, request, 1)
    assert isinstance(later.answer(), Later)
    fetch(leader)
    take_turns(node)
    [marker] = later.result().markers
    assert marker.topics[0].partitions[0].error_code == Error.NONE
    assert committed(node) == (5, Error.NONE)


async def test_a_transaction_loaded_as_prepared_gets_its_markers_once_it_is_committed(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    leader = replicate(node, TRANSACTION_TOPIC)
    end_of(producer)
    assert markers(node) == []

    lead(node, leader, leader.leader_epoch + 1, [node.node_id, OTHER])
    at_once(node.transactions.hosted.follow())  # loads the shard anew, with a Prepare that isn't committed
    assert markers(node) == []

    fetch(leader)
    assert len(markers(node)) == 1
