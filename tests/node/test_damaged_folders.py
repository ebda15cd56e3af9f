"""Damaged data folders: what can be made anew is made anew, what can't is told, nothing is served wrong in silence.

`DAMAGES=340` tries so many seeds (`make damages`); `DAMAGES_FROM` is the first one. A failure names its damage.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from broker.environment.environment import Environment
from broker.process.start_error import StartError
from broker.server import Server
from broker.starting import start
from protocol.errors import Error, KafkaError
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import CONTROL_BIT, CorruptRecordError, crc_is_valid, walk_batches
from protocol.records.records import build_batch, read_records
from storage.log.results import AppendOrigin
from tests.node import compacted
from tests.node.damages import Damage, damage
from tests.node.transactional import Producer, ask
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.topics import topics_of
from tests.support.whole_server import clock_of, configured, crash

FIRST = int(os.environ.get("DAMAGES_FROM", "0"))
COUNT = int(os.environ.get("DAMAGES", "40"))

SETTINGS = ("offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1")
TOPICS = ("t", "c")
GROUPS = ("g",)
IDS = ("tx", "open")

DELETED_BELOW = 3  # of t-0, by DeleteRecords
Records = dict[int, tuple[bytes | None, bytes | None]]


class Known(NamedTuple):
    """What was acknowledged: records by partition and offset, at either level of isolation; offsets; transactions."""

    all: dict[tuple[str, int], Records]
    committed: dict[tuple[str, int], Records]
    offsets: dict[str, int]
    transactions: dict[str, str]


class Template(NamedTuple):
    folder: Path
    known: Known


async def _build(folder: Path, *, clean: bool) -> Known:
    environment = Environment.of_this_machine(ManualClock(), files)
    node = await start(configured(folder, *SETTINGS), environment)
    node.metadata.commit_at_once()
    _create(node, "t", 2, {"internal.segment.bytes": "700", "index.interval.bytes": "100"})
    compacted.create(node, "c")
    _create(node, "empty", 1, {})
    ask(node, FindCoordinatorRequest(key="g"), 3)
    ask(node, FindCoordinatorRequest(key="tx", key_type=1), 3)
    for number in range(30):
        clock_of(node).advance_ms(1000)
        _append(node, ("t", 0), b"plain %d" % number)
    for turn in range(6):
        producer = Producer(node, "tx").begin()
        for _ in range(3):
            assert producer.send("t", 1) is Error.NONE
        assert producer.add_offsets() is Error.NONE
        assert producer.commit_offsets(turn) == [Error.NONE]
        assert producer.end(commit=turn % 2 == 0) is Error.NONE
        _append(node, ("t", 1), b"between %d" % turn)
    open_one = Producer(node, "open").begin()
    assert open_one.send("t", 0) is Error.NONE
    _append(node, ("t", 0), b"behind an open transaction")
    node.partitions.get("t", 0).log.delete_records_before(DELETED_BELOW)
    _fill(node, 20)
    assert await compacted.cleaned(node, "c") is None
    _fill(node, 5)
    known = _known(node)
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


def _create(node: Server, name: str, partitions: int, configs: dict[str, str]) -> None:
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
    topics_of(node).create([topic])


def _append(node: Server, place: tuple[str, int], value: bytes) -> None:
    partition = node.partitions.get(*place)
    now_ms = node.clock.now_ms()
    batch = build_batch([(now_ms, None, value, ())])
    partition.log.append(
        batch, leader_epoch=partition.leader_epoch, now_ms=now_ms, origin=AppendOrigin.CLIENT
    )
    partition.leader().advance()


def _fill(node: Server, count: int) -> None:
    for number in range(count):
        clock_of(node).advance_ms(1000)
        compacted.append(node, b"k%d" % (number % 3), b"%d" % number + b" " * 50, "c")
    node.partitions.get("c", 0).log.roll(node.clock.now_ms())


def _known(node: Server) -> Known:
    places = [("t", 0), ("t", 1), ("c", 0)]
    return Known(
        {place: _read(node, place, committed=False) for place in places},
        {place: _read(node, place, committed=True) for place in places},
        {group: _offset(node, group) for group in GROUPS},
        {each: _state(node, each) for each in IDS},
    )


def _read(node: Server, place: tuple[str, int], *, committed: bool) -> Records:
    """As a consumer does: it looks at checksums, and drops what was aborted. Raises KafkaError, ValueError."""
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


def _offset(node: Server, group: str) -> int:
    committed = node.groups.shard_of(group).offsets.of_group(group).get("t", {}).get(0)
    return -1 if committed is None else committed.offset


def _state(node: Server, transactional_id: str) -> str:
    found = node.transactions.shard_of(transactional_id).transactions.get(transactional_id)
    return "" if found is None else found.state.name


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Template]:
    found = {}
    for clean in (True, False):
        folder = tmp_path_factory.mktemp("template") / "data"
        found[clean] = Template(folder, asyncio.run(_build(folder, clean=clean)))
    return found


def copied(template: Template, folder: Path) -> Path:
    shutil.copytree(template.folder, folder)
    return folder


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
async def test_a_damaged_folder_is_mended_or_told(
    seed: int, tmp_path: Path, templates: dict[bool, Template], caplog: pytest.LogCaptureFixture
) -> None:
    chance = Random(seed)
    clean = chance.random() < 0.6
    template = templates[clean]
    folder = copied(template, tmp_path / "data")
    done = damage(folder, chance)
    print("seed", seed, "after a clean stop:" if clean else "after a kill:", done.told)
    caplog.set_level(logging.INFO)
    environment = Environment.of_this_machine(ManualClock(), files)
    try:
        node = await start(configured(folder, *SETTINGS), environment)
    except StartError as refusal:
        _check_refusal(done, str(refusal), folder)
        return
    try:
        _check_served(node, template, done, caplog)
    finally:
        await node.stop()
    for line in _told(caplog):
        assert "\n" not in line
    assert not [record for record in caplog.records if record.exc_info]


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _check_refusal(done: Damage, refusal: str, folder: Path) -> None:
    """Where Kafka refuses as well: the metadata, what says whose the folder is, a file of the whole folder that the
    disk can't give."""
    assert "\n" not in refusal
    assert str(folder) in refusal, refusal
    is_of_metadata = "__cluster_metadata-0" in (done.path.name, done.path.parent.name)
    is_of_all = done.kind in ("meta.properties", "bootstrap.checkpoint")
    is_unreadable = done.action == "make a directory of" and done.path.parent == folder
    assert is_of_metadata or is_of_all or is_unreadable, f"the start is refused for a partition: {refusal}"


WITHOUT_CHECKSUM = (".txnindex", "log-start-offset-checkpoint")
"""Kafka's formats have none, and nothing else says the same: a bit of them that is flipped is taken for what it says,
as by Kafka. `broker.doctor` finds it in a `.txnindex`, which it holds against the batches."""


def _check_served(node: Server, template: Template, done: Damage, caplog: pytest.LogCaptureFixture) -> None:
    lines = _told(caplog)
    known = template.known
    is_metadata = "__cluster_metadata-0" in (done.path.name, done.path.parent.name)

    def told(name: str) -> bool:
        about = "__cluster_metadata-0" if is_metadata else name
        return any(about in line or done.path.name in line for line in lines)

    for place in known.all:
        name = f"{place[0]}-{place[1]}"
        for committed in (False, True):
            expected = (known.committed if committed else known.all)[place]
            try:
                found = _read(node, place, committed=committed)
            except (ValueError, CorruptRecordError):
                continue  # the client tells
            except KafkaError as error:
                refused = error.error
            else:
                refused = Error.NONE
            if refused is not Error.NONE:
                assert refused in (Error.KAFKA_STORAGE_ERROR, Error.CORRUPT_MESSAGE) or is_metadata
                assert refused is Error.CORRUPT_MESSAGE or told(name), lines
                continue
            wrong = {offset: record for offset, record in found.items() if expected.get(offset) != record}
            lost = expected.keys() - found.keys()
            if done.kind in WITHOUT_CHECKSUM:
                continue
            if place[0] == "c" and (done.kind, done.action, done.detail) == (".log", "rename", "to .deleted"):
                continue  # as a kill amid a deletion leaves it, and compaction leaves gaps
            # with a segment a transaction's end is lost, which is told, and what it has aborted is committed then
            assert not wrong or (committed and told(name)), f"{name}, committed={committed}: {wrong}"
            assert not lost or told(name), f"{name} has lost {sorted(lost)}, committed={committed}: {lines}"
    for of, found_of, topic in (
        (known.offsets, _offset, "__consumer_offsets"),
        (known.transactions, _state, "__transaction_state"),
    ):
        for key, value in of.items():
            try:
                again: Any = found_of(node, key)
            except KafkaError:
                assert told(topic), lines
                continue
            assert again == value or told(topic), f"{key}: {again} for {value}: {lines}"
