"""Folders that Apache Kafka wrote. They are read as Kafka reads them, and written as Kafka wrote them."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from protocol.records.batch import ABORT, read_control_type, read_records, walk_batches
from storage.checkpoints import HIGH_WATERMARK_FILE, read_offsets, read_partition_metadata
from storage.directory.log_directory import METADATA_TOPIC, LogDirectory, PartitionFolder
from storage.log.log_config import LogConfig
from storage.log.partition_log import AppendOrigin, PartitionLog
from tests.support import kafka_folders
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.kafka_folders import DOWN, KILL, NAMES, NOW_MS, SNAPSHOT

CONFIG = LogConfig(segment_bytes=1_048_576)


@dataclass
class Opened:
    name: str
    directory: LogDirectory
    logs: dict[tuple[str, int], PartitionLog]
    contents: dict[str, Any]


def open_all(directory: LogDirectory) -> dict[tuple[str, int], PartitionLog]:
    logs = {}
    for folder in directory.folders():
        logs[folder.topic, folder.partition] = open_one(directory, folder)
    return logs


def open_one(directory: LogDirectory, folder: PartitionFolder) -> PartitionLog:
    log = directory.open_log(folder.topic, folder.partition, CONFIG, now_ms=NOW_MS, topic_id=folder.topic_id)
    log.update_high_watermark(log.log_end_offset)
    return log


def opened_from(name: str, into: Path) -> Opened:
    data = kafka_folders.unpack(name, into)
    directory = LogDirectory.open(str(data), files=files, background=run_at_once)
    return Opened(name, directory, open_all(directory), kafka_folders.contents(name))


@pytest.fixture(scope="module", params=NAMES)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Open a folder for all tests that only read it."""
    path = tmp_path_factory.mktemp("kafka")
    opened = opened_from(request.param, path)
    yield opened
    opened.directory.close(clean=False)
    shutil.rmtree(path)


def fetch(log: PartitionLog, *, committed: bool) -> list[str]:
    """Return what a consumer gets. It drops aborted records as a client does."""
    bound = log.last_stable_offset if committed else log.high_watermark
    given = []
    offset = log.log_start_offset
    while offset < bound:
        result = log.read(offset, 30_000, upper_bound=bound, min_one_batch=True)
        aborted = log.aborted_transactions(offset, result) if committed else []
        beginning = sorted(aborted, key=lambda txn: txn.first_offset)
        aborting: set[int] = set()
        for position, header in walk_batches(result.records):
            while beginning and beginning[0].first_offset <= header.last_offset:
                aborting.add(beginning.pop(0).producer_id)
            records = read_records(result.records[position : position + header.size_bytes])
            if header.is_control:
                if read_control_type(records[0].key) == ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                given += [(record.value or b"").decode()[:20] for record in records]
            offset = header.last_offset + 1
    return given


@pytest.mark.parametrize("partition", [0, 1])
def test_a_read_committed_consumer_gets_the_records_committed_before_the_open_transaction(
    kafka: Opened, partition: int
) -> None:
    log = kafka.logs["txn", partition]
    assert fetch(log, committed=True) == kafka.contents["committed"][str(partition)]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_read_uncommitted_consumer_gets_aborted_and_open_records_too(kafka: Opened, partition: int) -> None:
    contents = kafka.contents
    expected = [
        *contents["committed"][str(partition)],
        *contents["aborted"][str(partition)],
        *contents["open"][str(partition)],
    ]
    if partition == 0:
        expected.append("after the open one")
    assert sorted(fetch(kafka.logs["txn", partition], committed=False)) == sorted(expected)


def test_the_open_transaction_holds_the_last_stable_offset(kafka: Opened) -> None:
    for partition in (0, 1):
        log = kafka.logs["txn", partition]
        assert log.last_stable_offset == kafka.contents["watermarks"][f"txn-{partition}"][1]
        [producer] = [known for known in log.producers.producers.values() if known.txn_first_offset >= 0]
        assert producer.txn_first_offset == log.last_stable_offset
        assert len(log.producers.producers) == 3


def test_plain_partitions_end_where_kafka_says(kafka: Opened) -> None:
    for partition, (start, end) in kafka.contents["watermarks"].items():
        topic, _dash, number = partition.rpartition("-")
        if topic != "txn":
            log = kafka.logs[topic, int(number)]
            assert (log.log_start_offset, log.log_end_offset) == (start, end)


def test_every_partition_ends_at_or_after_its_checkpointed_high_watermark(kafka: Opened) -> None:
    high_watermarks = read_offsets(files, f"{kafka.directory.path}/{HIGH_WATERMARK_FILE}")
    assert high_watermarks
    for key, high_watermark in high_watermarks.items():
        assert kafka.logs[key].log_end_offset >= high_watermark


def test_records_are_found_by_time(kafka: Opened) -> None:
    log = kafka.logs["plain", 0]
    latest = log.offset_of_max_timestamp()
    assert latest is not None
    assert log.offset_for_timestamp(latest.timestamp_ms) == latest
    assert log.offset_for_timestamp(latest.timestamp_ms + 1) is None
    first = log.offset_for_timestamp(0)
    assert first is not None
    assert first.offset == 0


def test_kafkas_clean_stop_is_recognised(tmp_path: Path) -> None:
    for name, clean in ((DOWN, True), (KILL, False), (SNAPSHOT, False)):
        data = kafka_folders.unpack(name, tmp_path / name)
        directory = LogDirectory.open(str(data), files=files, background=run_at_once)
        assert directory.clean is clean
        assert directory.meta_properties is not None
        assert directory.meta_properties["node.id"] == "1"
        directory.close(clean=False)


def test_a_metadata_log_may_begin_after_its_snapshot(tmp_path: Path) -> None:
    kafka = opened_from(SNAPSHOT, tmp_path)
    log = kafka.logs[METADATA_TOPIC, 0]
    assert (log.log_start_offset, log.base_offsets[0]) == (80, 80)
    assert list((tmp_path / "data" / f"{METADATA_TOPIC}-0").glob("*.checkpoint"))
    kafka.directory.close(clean=False)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_by_our_own_stop_and_start(name: str, tmp_path: Path) -> None:
    kafka = opened_from(name, tmp_path)
    before = {
        key: fetch(log, committed=True) for key, log in kafka.logs.items() if key[0] in ("txn", "plain")
    }
    kafka.directory.close()
    directory = LogDirectory.open(kafka.directory.path, files=files, background=run_at_once)
    assert directory.clean
    logs = open_all(directory)
    assert {key: fetch(logs[key], committed=True) for key in before} == before
    directory.close(clean=False)


@pytest.mark.parametrize(
    "lost", ["*.txnindex", "*.snapshot", "*.index", "*.timeindex", "leader-epoch-checkpoint"]
)
def test_a_side_file_that_was_lost_after_kafkas_clean_stop_changes_nothing(tmp_path: Path, lost: str) -> None:
    data = kafka_folders.unpack(DOWN, tmp_path)
    removed = list(data.glob(f"txn-*/{lost}"))
    assert removed
    for path in removed:
        path.unlink()
    directory = LogDirectory.open(str(data), files=files, background=run_at_once)
    logs = open_all(directory)
    committed = kafka_folders.contents(DOWN)["committed"]
    assert {str(number): fetch(logs["txn", number], committed=True) for number in (0, 1)} == committed
    directory.close(clean=False)


def test_appending_kafkas_batches_makes_kafkas_files_byte_for_byte(tmp_path: Path) -> None:
    data = kafka_folders.unpack(DOWN, tmp_path)
    compared = 0
    for folder in sorted(data.glob("*-*/")):
        if not any(path.stat().st_size for path in folder.glob("*.log")):
            continue
        rewrite(folder, tmp_path / "ours")
        ours = {path.name: path.read_bytes() for path in (tmp_path / "ours" / folder.name).iterdir()}
        theirs = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "quorum-state"}
        assert ours == theirs
        compared += len(ours)
    assert compared > 50


def rewrite(folder: Path, into: Path) -> None:
    """Append all batches of a partition of Kafka's to a log of ours, and stop it cleanly."""
    into.mkdir(exist_ok=True)
    topic, _dash, number = folder.name.rpartition("-")
    log = PartitionLog.open(
        str(into / folder.name),
        topic,
        int(number),
        CONFIG,
        now_ms=0,
        clean=True,
        files=files,
        background=run_at_once,
        topic_id=read_partition_metadata(files, str(folder / "partition.metadata")),
    )
    for path in sorted(folder.glob("*.log")):
        stored = path.read_bytes()
        for position, header in walk_batches(stored):
            log.append(
                bytearray(stored[position : position + header.size_bytes]),
                leader_epoch=header.partition_leader_epoch,
                now_ms=header.max_timestamp,
                origin=AppendOrigin.COORDINATOR if header.is_control else AppendOrigin.CLIENT,
            )
            log.update_high_watermark(log.log_end_offset)
    log.close()
