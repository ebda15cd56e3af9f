"""A partition as leader and as follower, as the metadata says, and what requests are answered by its role."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.controller.image import UNASSIGNED
from broker.handlers.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from broker.replicas.replica import Follower
from broker.replicas.replica_fetcher import ReplicaFetcher
from protocol.errors import Error
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.messages.metadata_records import PartitionRecord
from protocol.messages.transactions import DescribeProducersRequest, DescribeProducersTopic
from protocol.records.batch import build_batch, patch_offset_and_epoch
from protocol.waiting import Later, at_once
from tests.node.replicated import (
    LONG_MS,
    ME,
    NOT_LEADER,
    OTHER,
    TOPIC_ID,
    change,
    errors,
    fetch,
    fetched,
    leader_of,
    list_offsets,
    listed,
    produce,
    produced,
    replicated,
)
from tests.node.transactional import ask
from tests.support.answers import answered
from tests.support.manual_clock import ManualClock
from tests.support.replication_quota import AdjustableQuota
from tests.support.whole_server import crash, started, take_turns


async def test_a_partition_takes_the_roles_that_the_metadata_gives_it(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    partition = node.partitions.get("t", 0)
    assert set(errors(node).values()) == {Error.NONE}

    change(node, leader=OTHER)
    assert isinstance(partition.role, Follower)
    assert (partition.leader_id, partition.leader_epoch) == (OTHER, 1)
    assert set(errors(node).values()) == {NOT_LEADER}

    change(node, leader=-1)
    assert (partition.leader_id, partition.leader_epoch) == (-1, 2)
    assert set(errors(node).values()) == {NOT_LEADER}

    change(node, leader=ME)
    assert node.partitions.get("t", 0) is partition
    assert leader_of(node).leader_epoch == 3
    assert partition.log.leader_epochs.entries == [(0, 0), (3, 1)]
    fetch(node, 1, replica_id=OTHER)
    assert set(errors(node).values()) == {Error.NONE}
    crash(node)


async def test_a_late_answer_of_an_old_leader_is_not_taken_by_the_new_one(tmp_path: Path) -> None:
    """The partition's role changes first. The fetcher learns of it once all partitions have their roles."""
    node = await replicated(tmp_path)
    change(node, leader=OTHER)
    partition = node.partitions.get("t", 0)
    assert isinstance(partition.role, Follower)
    clock = ManualClock()
    fetcher = ReplicaFetcher(ME, lambda: 99, clock, AdjustableQuota(clock))
    fetcher.follow(TOPIC_ID, "t", 0, partition.role)
    request = fetcher.request()
    assert isinstance(request, FetchRequest)
    record = build_batch([(0, None, b"late", ())])
    end_offset = partition.log.log_end_offset
    patch_offset_and_epoch(record, 0, end_offset, partition.leader_epoch)
    data = PartitionData(high_watermark=0, log_start_offset=0, records=bytes(record))
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])

    change(node, leader=ME)
    at_once(fetcher.answered(request, FetchResponse(responses=[topic])))
    assert partition.log.log_end_offset == end_offset
    crash(node)


@pytest.mark.parametrize("leader", [ME, OTHER])
async def test_the_leader_epoch_is_looked_at_before_the_role(tmp_path: Path, leader: int) -> None:
    node = await replicated(tmp_path)
    change(node, leader=leader)
    assert set(errors(node, 0).values()) == {Error.FENCED_LEADER_EPOCH}
    assert set(errors(node, 1).values()) == {Error.NONE if leader == ME else NOT_LEADER}
    assert set(errors(node, 2).values()) == {Error.UNKNOWN_LEADER_EPOCH}
    crash(node)


async def test_a_new_leader_lists_no_end_below_its_predecessors(
    tmp_path: Path,
) -> None:
    node = await replicated(tmp_path)
    produced_ms = node.clock.now_ms()
    for _ in range(3):
        produce(node, acks=1)
    fetch(node, 1, replica_id=OTHER)
    assert listed(list_offsets(node, LATEST_TIMESTAMP)).offset == 1

    def answers(timestamp: int, **how: int) -> tuple[Error, int]:
        answer = listed(list_offsets(node, timestamp, **how))
        return Error(answer.error_code), answer.offset

    change(node, leader=ME)  # from offset 3 on
    fetch(node, 2, replica_id=OTHER)
    assert leader_of(node).log.high_watermark == 2
    not_yet = (Error.OFFSET_NOT_AVAILABLE, -1)
    assert answers(LATEST_TIMESTAMP) == not_yet
    assert answers(LATEST_TIMESTAMP, version=5) == not_yet
    assert answers(LATEST_TIMESTAMP, version=4) == (Error.LEADER_NOT_AVAILABLE, -1)
    assert answers(produced_ms + 1) == not_yet, "what is written and not committed may be as late"
    assert answers(produced_ms + 1, version=4) == (Error.LEADER_NOT_AVAILABLE, -1)
    assert answers(produced_ms) == (Error.NONE, 0), "it is committed"
    assert answers(EARLIEST_TIMESTAMP) == (Error.NONE, 0)
    assert answers(LATEST_TIMESTAMP, replica_id=OTHER) == (Error.NONE, 3)

    fetch(node, 3, replica_id=OTHER)
    assert answers(LATEST_TIMESTAMP) == (Error.NONE, 3)
    assert answers(produced_ms + 1) == (Error.NONE, -1)
    crash(node)


async def test_a_capable_consumer_reads_the_records_that_a_follower_knows_committed(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    produce(node, acks=1)
    produce(node, acks=1)
    change(node, leader=OTHER)
    role = node.partitions.get("t", 0).role
    assert isinstance(role, Follower)
    role.learn_high_watermark(1)
    answer = fetched(fetch(node, 0))
    assert (answer.error_code, answer.high_watermark) == (Error.NONE, 1)
    assert len(answer.records) > 0
    role.learn_high_watermark(99)
    assert fetched(fetch(node, 0)).high_watermark == 2, "no more than it has"
    role.learn_high_watermark(1)
    assert fetched(fetch(node, 0)).high_watermark == 2, "and it never goes back"
    crash(node)


async def test_a_restart_remembers_the_committed_offset(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    for _ in range(3):
        produce(node, acks=1)
    leader_of(node).follower_fetched(OTHER, 2, 0)
    await node.stop()
    again = await started(tmp_path)
    partition = again.partitions.get("t", 0)
    assert isinstance(partition.role, Follower)
    assert (partition.log.high_watermark, partition.log.log_end_offset) == (2, 3)
    change(again, leader=ME, isr=[ME, OTHER])
    assert leader_of(again).log.high_watermark == 2
    crash(again)


async def test_acks_all_waits_until_the_others_in_sync_have_fetched_it(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    waiting = produce(node)
    assert isinstance(waiting, Later)
    assert not isinstance(produce(node, acks=1), Later)
    assert fetched(fetch(node, 0, replica_id=OTHER)).high_watermark == 0
    assert isinstance(waiting.answer(), Later), "it asked for it and doesn't have it yet"
    fetch(node, 1, replica_id=OTHER)
    answer = produced(await answered(waiting))
    assert (answer.error_code, answer.base_offset) == (Error.NONE, 0)
    assert fetched(fetch(node, 1, replica_id=OTHER)).high_watermark == 1
    assert len(leader_of(node)._waiters) == 0
    crash(node)


async def test_a_waiting_follower_is_woken_by_uncommitted_records(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    waiting = fetch(node, 0, replica_id=OTHER, max_wait_ms=LONG_MS)
    assert isinstance(waiting, Later)
    produce(node, acks=1)
    assert len(fetched(await answered(waiting)).records) > 0
    crash(node)


async def test_a_followers_excess_records_do_not_count(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    produce(node, acks=1)
    change(node, leader=ME)
    produce(node, acks=1)
    answer = fetched(fetch(node, 2, replica_id=OTHER, last_fetched_epoch=0))
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert leader_of(node).log.high_watermark == 0, "it has two records, of which the second is another one"
    fetch(node, 1, replica_id=OTHER, last_fetched_epoch=0)
    assert leader_of(node).log.high_watermark == 1
    crash(node)


async def test_below_the_log_start_nothing_parts_and_the_offset_is_out_of_range(tmp_path: Path) -> None:
    """Nothing is known below the log start, so an end of an epoch there would mislead the follower."""
    node = await replicated(tmp_path)
    for _ in range(3):
        produce(node, acks=1)
    change(node, leader=ME)
    change(node, leader=ME)
    produce(node, acks=1)
    log = leader_of(node).log
    log.update_high_watermark(4)
    log.delete_records_before(2)
    of_no_record_here = 1
    answer = fetched(fetch(node, 2, replica_id=OTHER, last_fetched_epoch=of_no_record_here))
    assert (answer.error_code, answer.diverging_epoch.end_offset) == (Error.NONE, 3)
    answer = fetched(fetch(node, 1, replica_id=OTHER, last_fetched_epoch=of_no_record_here))
    assert (answer.error_code, answer.diverging_epoch) == (Error.OFFSET_OUT_OF_RANGE, None)
    crash(node)


async def test_a_replica_that_the_leader_does_not_know_gets_nothing(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    assert fetched(fetch(node, 0, replica_id=5)).error_code == NOT_LEADER
    assert fetched(fetch(node, 0, replica_id=5, epoch=0)).error_code == Error.UNKNOWN_LEADER_EPOCH
    assert fetched(fetch(node, 0, replica_id=ME, epoch=0)).error_code == Error.UNKNOWN_LEADER_EPOCH
    crash(node)


async def test_with_acks_all_and_too_few_in_sync_nothing_is_appended(tmp_path: Path) -> None:
    node = await replicated(tmp_path, "min.insync.replicas=2")
    change(node, isr=[ME])
    answer = produced(produce(node))
    assert (answer.error_code, answer.base_offset) == (Error.NOT_ENOUGH_REPLICAS, -1)
    assert produced(produce(node, acks=1)).error_code == Error.NONE
    assert leader_of(node).log.log_end_offset == 1
    assert leader_of(node).log.high_watermark == 0
    crash(node)


async def test_too_few_in_sync_after_the_append_is_reported(tmp_path: Path) -> None:
    node = await replicated(tmp_path, "min.insync.replicas=2")
    leader = leader_of(node)
    waiting = produce(node)
    leader.replicas.others[OTHER].log_end_offset = 1
    leader.replicas.in_sync.maximal_isr = [ME]  # the other one left between its fetch and this
    leader.log.update_high_watermark(1)
    leader._waiters.tell_committed(1)
    answer = produced(await answered(waiting))
    assert (answer.error_code, answer.base_offset) == (Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)
    crash(node)


async def test_a_batch_not_committed_in_time_is_answered_with_its_offset(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    produce(node, acks=1)
    answer = produced(await asyncio.wait_for(answered(produce(node, timeout_ms=1)), 10))
    assert (answer.error_code, answer.base_offset) == (Error.REQUEST_TIMED_OUT, 1)
    assert leader_of(node).log.log_end_offset == 2
    assert len(leader_of(node)._waiters) == 0
    crash(node)


async def test_waiters_for_a_commit_learn_that_leadership_was_lost_and_who_leads(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    waiting = produce(node)
    change(node, leader=OTHER)
    response = await answered(waiting)
    answer = produced(response)
    assert answer.error_code == NOT_LEADER
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (OTHER, 1)
    assert response.node_endpoints == [], "the other one isn't registered"
    crash(node)


async def test_a_new_epoch_of_the_same_leader_lets_waiters_wait_on(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    waiting = produce(node)
    change(node, leader=ME)
    assert isinstance(waiting.answer(), Later)
    change(node, isr=[ME])
    take_turns(node)
    assert produced(waiting.answer()).error_code == Error.NONE
    crash(node)


async def test_a_producer_that_hangs_up_leaves_nothing_behind(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    waiting = produce(node)
    assert len(leader_of(node)._waiters) == 1
    waiting.abandon()
    assert len(leader_of(node)._waiters) == 0
    crash(node)


async def test_a_consumer_that_hangs_up_leaves_nothing_behind(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    waiting = fetch(node, 0, max_wait_ms=LONG_MS)
    assert len(node.partitions.get("t", 0).waiting) == 1
    waiting.abandon()
    assert len(node.partitions.get("t", 0).waiting) == 0
    crash(node)


async def test_a_fetch_that_waits_at_a_leader_is_answered_when_another_leads(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    waiting = fetch(node, 0, version=10, max_wait_ms=LONG_MS)
    change(node, leader=OTHER)
    assert fetched(await answered(waiting)).error_code == NOT_LEADER
    crash(node)


async def test_a_fetch_learns_the_leader_and_its_address(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    change(node, leader=ME)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1, current_leader_epoch=0)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
    )
    response = ask(node, request, 16)
    answer = fetched(response)
    assert answer.error_code == Error.FENCED_LEADER_EPOCH
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (ME, 1)
    assert [each.node_id for each in response.node_endpoints] == [ME]
    crash(node)


async def test_a_partition_that_moved_to_other_nodes_is_deleted_and_answered_so(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    waiting = produce(node)
    change(node, leader=OTHER, replicas=[OTHER], isr=[OTHER], directories=[UNASSIGNED])
    assert node.partitions.find("t", 0) is None
    take_turns(node)
    assert produced(waiting.answer()).error_code == NOT_LEADER
    assert set(errors(node).values()) == {NOT_LEADER}
    described = ask(
        node, DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0])]), 0
    )
    assert described.topics[0].partitions[0].error_code == NOT_LEADER
    assert node.partitions.missing("t", 1) is Error.UNKNOWN_TOPIC_OR_PARTITION
    crash(node)


async def test_a_fetch_of_a_partition_that_is_elsewhere_does_not_wait_for_the_others(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    change(node, leader=OTHER, replicas=[OTHER], isr=[OTHER], directories=[UNASSIGNED])
    here = PartitionRecord(
        partition_id=1, topic_id=TOPIC_ID, replicas=[ME], isr=[ME], leader=ME, directories=[UNASSIGNED]
    )
    node.metadata.append([here])
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000_000) for index in (0, 1)
    ]
    request = FetchRequest(
        max_wait_ms=LONG_MS,
        min_bytes=1,
        topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=partitions)],
    )
    [topic] = ask(node, request, 12).responses
    told = [(each.partition_index, each.error_code, each.aborted_transactions) for each in topic.partitions]
    assert told == [(0, NOT_LEADER, None), (1, Error.NONE, None)]
    crash(node)


async def test_a_replica_that_left_and_comes_again_goes_where_the_metadata_says(tmp_path: Path) -> None:
    """It doesn't go where the start had found it."""
    a, b = (tmp_path / name for name in "ab")
    log_dirs = f"log.dirs={a},{b}"
    node = await replicated(tmp_path, log_dirs)
    produce(node, acks=1)
    await node.stop()
    node = await started(tmp_path, log_dirs)
    found = node.partitions.get("t", 0).directory
    assert (Path(found.path) / "t-0").exists()
    other_id, other = next(each for each in node.log_dirs.online.items() if each[1] is not found)
    change(node, leader=OTHER, replicas=[OTHER], isr=[OTHER], directories=[UNASSIGNED])
    change(node, replicas=[OTHER, ME], directories=[UNASSIGNED, other_id])
    assert node.partitions.get("t", 0).directory is other
    crash(node)
