"""A reader of committed records where very many transactions were aborted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.handlers import fetch
from broker.replicas import fetching
from broker.server import Server
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.topics import CreatableTopic
from protocol.records.batch import walk_batches
from storage.log import aborted
from tests.support.partition_logs import append, end_transaction, produced
from tests.support.topics import topics_of
from tests.support.whole_server import handled, started

PARTITIONS = 3
ABORTED = 40


async def aborting(folder: Path) -> Server:
    """Start a node each of whose partitions has `ABORTED` aborted transactions, and one record behind them."""
    node = await started(folder)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)])
    for index in range(PARTITIONS):
        log = node.partitions.get("t", index).log
        log.verifies_transactions = False
        for number in range(ABORTED):
            append(log, produced(number, transactional=True))
            end_transaction(log, commit=False)
        append(log, produced(0, producer_id=8))
    return node


def fetched(node: Server, offsets: dict[int, int]) -> dict[int, PartitionData]:
    asked = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(
        max_bytes=50 << 20, isolation_level=1, topics=[FetchTopic(topic="t", partitions=asked)]
    )
    context = SimpleNamespace(api_version=11, listener_name="PLAINTEXT")
    (topic,) = handled(node, fetch, context, request).responses
    return {each.partition_index: each for each in topic.partitions}


@pytest.mark.limit("broker.replicas.fetching.MOST_ABORTED")
async def test_a_reader_gets_records_with_few_aborts_and_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "MOST_ABORTED", 15)
    monkeypatch.setattr(fetching, "ABORTED_OF_EACH", 4)
    node = await aborting(tmp_path)
    at = dict.fromkeys(range(PARTITIONS), 0)
    read: dict[int, list[int]] = {index: [] for index in at}
    told: dict[int, set[int]] = {index: set() for index in at}
    rounds = 0
    while any(offset < 2 * ABORTED + 1 for offset in at.values()):
        rounds += 1
        answer = fetched(node, at)
        listed = [len(each.aborted_transactions or ()) for each in answer.values()]
        assert sum(listed) <= 15 + PARTITIONS * 4
        for index, each in answer.items():
            headers = [header for _, header in walk_batches(memoryview(bytes(each.records or b"")))]
            read[index] += [header.base_offset for header in headers]
            told[index] |= {entry.first_offset for entry in each.aborted_transactions or ()}
            if headers:
                at[index] = headers[-1].last_offset + 1
    assert all(offsets == [*range(2 * ABORTED + 1)] for offsets in read.values())
    assert all(first == {*range(0, 2 * ABORTED, 2)} for first in told.values())
    assert rounds > 3


async def test_no_records_are_returned_until_the_aborted_ones_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bit of the transaction index is flipped, and finding out takes a while."""
    monkeypatch.setattr(aborted, "MOST_REMADE_AT_ONCE", 30)
    node = await aborting(tmp_path)
    path = Path(node.partitions.get("t", 0).log.segments[0].txn_index.file.path)
    await node.stop()
    whole = path.read_bytes()
    path.write_bytes(whole[:9] + bytes([whole[9] ^ 4]) + whole[10:])
    node = await started(tmp_path)
    answers = [fetched(node, {0: 0, 1: 0}) for _ in range(4)]
    sizes = [len(bytes(answer[0].records or b"")) for answer in answers]
    listed = [len(answer[0].aborted_transactions or ()) for answer in answers]
    assert (sizes[:2], listed) == ([0, 0], [0, 0, ABORTED, ABORTED])
    assert sizes[2] == sizes[3] > 0
    assert {answer[0].error_code for answer in answers} == {0}
    assert [len(answer[1].aborted_transactions or ()) for answer in answers] == [ABORTED] * 4


async def test_few_aborted_transactions_come_with_all_records_read(tmp_path: Path) -> None:
    node = await aborting(tmp_path)
    answer = fetched(node, {0: 0})[0]
    assert len(answer.aborted_transactions or ()) == ABORTED
    assert [*walk_batches(memoryview(bytes(answer.records or b"")))][-1][1].base_offset == 2 * ABORTED
