"""Transactions whose disks refuse operations, or whose brokers start again."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.coordination.transactions import MARKERS_PER_TURN, TRANSACTION_TOPIC
from broker.network.listener import Listener
from broker.server import Server
from coordinator.java.maps import partition_of_key
from protocol.errors import Error
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.node.transactional import (
    Producer,
    ask,
    committed,
    coordinating,
    find,
    markers,
    state,
)
from tests.support import kafka_folders
from tests.support.disk import files
from tests.support.nodes import check_nothing_is_left
from tests.support.whole_server import clock_of, crash, started


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def refuse_appends_to(*places: str) -> None:
    """Have the disk refuse appends, for lack of space, to files whose path contains one of these."""

    def hook(operation: str, path: str, size: int) -> int | None:
        if operation == "append" and any(place in path for place in places):
            raise OSError(errno.ENOSPC, "no space left", path)
        return None

    files.set_fault_hook(hook)


async def turns(count: int = 1) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def last_stable_offset(node: Server, index: int = 0) -> int:
    partition = ListOffsetsPartition(partition_index=index, timestamp=-1)
    topic = ListOffsetsTopic(name="t", partitions=[partition])
    answer = ask(node, ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[topic]), 7)
    return int(answer.topics[0].partitions[0].offset)


# --- disks --------------------------------------------------------------------------------------------------


async def test_an_end_that_cannot_be_logged_does_not_happen(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    refuse_appends_to(TRANSACTION_TOPIC)

    assert producer.end() is Error.NOT_COORDINATOR
    assert state(node) == "Ongoing"

    files.set_fault_hook(None)
    assert producer.end() is Error.NONE
    assert state(node) == "CompleteCommit"


async def test_a_marker_that_a_full_disk_refuses_is_written_later(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send(index=0)
    producer.send(index=1)
    refuse_appends_to("/t-1")

    assert producer.end() is Error.NONE
    assert [len(markers(node, index=index)) for index in range(2)] == [1, 0]
    assert state(node) == "PrepareCommit"

    files.set_fault_hook(None)
    clock_of(node).advance_ms(1_000)
    node.timers.fire_due()
    assert [len(markers(node, index=index)) for index in range(2)] == [1, 1]
    assert state(node) == "CompleteCommit"


async def test_a_producer_id_that_can_not_be_recorded_is_to_be_asked_for_again(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    refuse_appends_to("__cluster_metadata")

    assert Producer(node).init().error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    files.set_fault_hook(None)


# --- starting again -----------------------------------------------------------------------------------------


async def test_a_start_ends_prepared_transactions(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send(index=0)
    producer.send(index=1)
    producer.commit_offsets(7)
    refuse_appends_to("/t-", "__consumer_offsets")
    assert producer.end() is Error.NONE
    files.set_fault_hook(None)
    crash(node)

    again = await coordinating(tmp_path)

    assert state(again) == "CompleteCommit"
    assert [len(markers(again, index=index)) for index in range(2)] == [1, 1]
    assert committed(again) == (7, Error.NONE)


async def test_a_transaction_that_was_open_stays_so_until_it_times_out(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    crash(node)
    again = await coordinating(tmp_path)
    assert (state(again), last_stable_offset(again)) == ("Ongoing", 0)

    clock_of(again).advance_ms(60_001)
    again.timers.fire_due()

    assert (state(again), last_stable_offset(again)) == ("CompleteAbort", 2)


@pytest.mark.parametrize("name", kafka_folders.NAMES)
async def test_transactions_that_apache_kafka_left_open_time_out_here(tmp_path: Path, name: str) -> None:
    data = kafka_folders.unpack(name, tmp_path)
    node = await started(data, now_ms=kafka_folders.NOW_MS)
    assert [state(node, each) for each in ("tx-a", "tx-b", "tx-c")] == [
        "CompleteCommit",
        "CompleteAbort",
        "Ongoing",
    ]

    clock_of(node).advance_ms(20_000_000)
    node.timers.fire_due()

    assert state(node, "tx-c") == "CompleteAbort"
    logs = [partition.log for partition in node.partitions.by_name["txn"].partitions.values()]
    assert [log.last_stable_offset for log in logs] == [log.log_end_offset for log in logs]


async def test_a_stop_writes_no_more_markers(tmp_path: Path) -> None:
    count = 2 * MARKERS_PER_TURN
    node = await coordinating(tmp_path, partitions=count)
    producer = Producer(node, version=1).begin()
    producer.add(*[("t", index) for index in range(count)])
    producer.end()

    await node.stop()
    await turns(3)
    assert node.failure is None

    again = await coordinating(tmp_path)
    await turns(3)
    assert state(again) == "CompleteCommit"
    assert [len(markers(again, index=index)) for index in range(MARKERS_PER_TURN, count)] == [
        1
    ] * MARKERS_PER_TURN


async def test_transactional_ids_are_spread_over_the_partitions_by_kafkas_hash(tmp_path: Path) -> None:
    node = await started(tmp_path, "transaction.state.log.num.partitions=5")
    find(node)
    for name in ("a", "tx-ß", "🦉"):
        Producer(node, name).begin()
        partition = node.partitions.get(TRANSACTION_TOPIC, partition_of_key(name, 5))
        assert partition.log.log_end_offset > 0


async def test_a_start_that_fails_at_the_last_leaves_nothing_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    Producer(node).begin()
    await node.stop()

    async def refuse(listener: Listener) -> None:
        raise OSError(errno.ENOBUFS, "no buffers are left")

    monkeypatch.setattr(Listener, "listen", refuse)
    with pytest.raises(StartError, match=r"can't be listened on: .*no buffers are left"):
        await started(tmp_path)
    await check_nothing_is_left()
    monkeypatch.undo()
    await started(tmp_path)  # the folder isn't locked
