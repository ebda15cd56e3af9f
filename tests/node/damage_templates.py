"""Folders to be damaged, left by a node that has used every kind of file, and everything that it had acknowledged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from broker.environment.environment import Environment
from broker.server import Server
from broker.starting import start
from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import CONTROL_BIT, build_batch, crc_is_valid, read_records, walk_batches
from storage.log.log_state import AppendOrigin
from tests.node import compacted
from tests.node.transactional import Producer, ask
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.topics import topics_of
from tests.support.whole_server import clock_of, configured, crash

SETTINGS = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
TOPICS = ("t", "c")
GROUPS = ("g",)
IDS = ("tx", "open")

DELETED_BELOW = 3  # in t-0, by DeleteRecords
Records = dict[int, tuple[bytes | None, bytes | None]]


class Known(NamedTuple):
    """Everything that was acknowledged: records by partition and offset, at both isolation levels, offsets, and
    transactions."""

    all: dict[tuple[str, int], Records]
    committed: dict[tuple[str, int], Records]
    offsets: dict[str, int]
    transactions: dict[str, str]


class Template(NamedTuple):
    folder: Path
    known: Known


async def build(folder: Path, *, clean: bool) -> Known:
    environment = Environment.of_this_machine(ManualClock(), files)
    node = await start(configured(folder, *SETTINGS), environment)
    node.metadata.commit_at_once()
    create(node, "t", 2, {"internal.segment.bytes": "700", "index.interval.bytes": "100"})
    compacted.create(node, "c")
    create(node, "empty", 1, {})
    ask(node, FindCoordinatorRequest(key="g"), 3)
    ask(node, FindCoordinatorRequest(key="tx", key_type=1), 3)
    for number in range(30):
        clock_of(node).advance_ms(1000)
        append_value(node, ("t", 0), b"plain %d" % number)
    for turn in range(6):
        producer = Producer(node, "tx").begin()
        for _ in range(3):
            assert producer.send("t", 1) is Error.NONE
        assert producer.add_offsets() is Error.NONE
        assert producer.commit_offsets(turn) == [Error.NONE]
        assert producer.end(commit=turn % 2 == 0) is Error.NONE
        append_value(node, ("t", 1), b"between %d" % turn)
    open_one = Producer(node, "open").begin()
    assert open_one.send("t", 0) is Error.NONE
    append_value(node, ("t", 0), b"behind an open transaction")
    node.partitions.get("t", 0).log.delete_records_before(DELETED_BELOW)
    fill(node, 20)
    assert await compacted.cleaned(node, "c") is None
    fill(node, 5)
    known = known_of(node)
    if clean:
        await node.stop()
    else:
        for partition in node.partitions.all():
            partition.log.flush(node.clock.now_ms())
        while any(partition.log.flush_wanted for partition in node.partitions.all()):
            await asyncio.sleep(0)
        for directory in node.log_dirs.all():
            directory.offsets.write_all_now()
        crash(node)
        await node.background.finish()
    return known


def create(node: Server, name: str, partitions: int, configs: dict[str, str]) -> None:
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
    topics_of(node).create([topic])


def append_value(node: Server, place: tuple[str, int], value: bytes) -> None:
    partition = node.partitions.get(*place)
    now_ms = node.clock.now_ms()
    batch = build_batch([(now_ms, None, value, ())])
    partition.log.append(
        batch, leader_epoch=partition.leader_epoch, now_ms=now_ms, origin=AppendOrigin.CLIENT
    )
    partition.leader().advance()


def fill(node: Server, count: int) -> None:
    for number in range(count):
        clock_of(node).advance_ms(1000)
        compacted.append(node, b"k%d" % (number % 3), b"%d" % number + b" " * 50, "c")
    node.partitions.get("c", 0).log.roll(node.clock.now_ms())


def known_of(node: Server) -> Known:
    places = [("t", 0), ("t", 1), ("c", 0)]
    return Known(
        {place: read(node, place, committed=False) for place in places},
        {place: read(node, place, committed=True) for place in places},
        {group: committed_offset(node, group) for group in GROUPS},
        {each: state_of(node, each) for each in IDS},
    )


def read(node: Server, place: tuple[str, int], *, committed: bool) -> Records:
    """Read as a consumer does: check checksums, and drop aborted records. Raises KafkaError, ValueError."""
    log = node.partitions.get(*place).log
    bound = log.last_stable_offset if committed else log.high_watermark
    offset, found = log.log_start_offset, {}
    while offset < bound:
        result = log.read(offset, 300, upper_bound=bound, min_one_batch=True)
        if not result.records:
            break
        aborted: dict[int, list[int]] = {}
        if committed:
            for each in log.aborted_transactions(offset, result):
                aborted.setdefault(each.producer_id, []).append(each.first_offset)
        before = offset
        data = memoryview(bytes(result.records))
        for position, header in walk_batches(data):
            batch = data[position : position + header.size_bytes]
            if not crc_is_valid(batch, 0, header.size_bytes):
                raise ValueError(f"a client sees a wrong checksum at {header.base_offset}")
            offset = header.last_offset + 1
            if header.attributes & CONTROL_BIT:
                continue
            dropped = header.is_transactional and any(
                first <= header.base_offset for first in aborted.get(header.producer_id, ())
            )
            if not dropped or not committed:
                for record in read_records(batch):
                    if record.offset >= log.log_start_offset:
                        found[record.offset] = (record.key, record.value)
        if offset <= before:
            raise ValueError(f"a client can't go on at {before}")
    return found


def committed_offset(node: Server, group: str) -> int:
    committed = node.groups.shard_of(group).offsets.of_group(group).get("t", {}).get(0)
    return -1 if committed is None else committed.offset


def state_of(node: Server, transactional_id: str) -> str:
    found = node.transactions.shard_of(transactional_id).transactions.get(transactional_id)
    return "" if found is None else found.state.name
