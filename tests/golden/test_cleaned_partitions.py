"""Partitions that Apache Kafka 4.3.1 has cleaned: the same pass leaves the same files here, byte for byte.

Only what is compressed anew is the compressor's: there records and headers are compared.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from protocol.records.batch import read_records
from protocol.records.compression import NONE
from storage.cleaning.plan import CleanedSegment, CleaningResult
from storage.files import SEGMENT_SUFFIXES, offset_of
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.support.cleaning import active_producers, plan_of, steps
from tests.support.disk import files

FOLDERS = Path(__file__).parents[1] / "data" / "cleaned-partitions"
RECORDED: dict[tuple[str, str], dict[str, Any]] = {
    (name, partition): recorded
    for name in ("1", "3")
    for partition, recorded in json.loads((FOLDERS / f"{name}.json").read_text())["partitions"].items()
}
CASES = list(RECORDED)


def unpack(name: str, when: str, into: Path) -> Path:
    with tarfile.open(FOLDERS / f"{name}-{when}.tar.gz") as archive:
        archive.extractall(into, filter="data")
    return into


def open_recorded(directory: Path, partition: str, recorded: dict[str, Any]) -> PartitionLog:
    configs = recorded["configs"]
    topic, number = partition.rsplit("-", 1)
    log = PartitionLog.open(
        str(directory / partition),
        topic,
        int(number),
        LogConfig(
            cleanup_policy=frozenset(configs["cleanup.policy"].split(",")),
            segment_bytes=configs["internal.segment.bytes"],
            delete_retention_ms=configs["delete.retention.ms"],
            index_interval_bytes=configs["index.interval.bytes"],
            file_delete_delay_ms=configs["file.delete.delay.ms"],
            retention_ms=configs["retention.ms"],
        ),
        now_ms=recorded["now_ms"],
        clean=True,
        log_start_offset=recorded["log_start"],
        files=files,
        background=lambda work, then, *, lane, delay_ms=0: (work(), then(None)),
    )
    log.update_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize(("name", "partition"), CASES)
def test_a_recorded_partition_comes_out_as_kafkas(name: str, partition: str, tmp_path: Path) -> None:
    recorded = RECORDED[name, partition]
    log = open_recorded(unpack(name, "before", tmp_path), partition, recorded)
    assert log.log_end_offset == recorded["log_end"]
    # an empty transaction index beside each segment is barnabas' own
    plan = plan_of(
        log,
        first_dirty=recorded["first_dirty"],
        first_uncleanable=recorded["first_uncleanable"],
        now_ms=recorded["now_ms"],
        keep_txn_index=False,
        # up to Kafka 4.3 an emptied batch stayed where it was the last one that could be cleaned
        high_watermark=recorded["first_uncleanable"],
    )
    assert {
        str(producer_id): {"epoch": epoch, "last_data_offset": last_data_offset}
        for producer_id, epoch, last_data_offset in active_producers(plan)
    } == recorded["producers"]
    groups: list[list[int]] = []
    result = None
    for step in steps(log, plan):
        if isinstance(step, CleanedSegment):
            groups.append(list(step.replaced))
        elif isinstance(step, CleaningResult):
            result = step
    assert result is not None
    assert result.first_dirty_offset == recorded["checkpoint_after"]
    assert groups == recorded["groups"]

    directory = tmp_path / partition
    hashes = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.suffix in SEGMENT_SUFFIXES and (offset_of(path.name) or 0) < recorded["first_uncleanable"]
    }
    compressed = _of_compressed_segments(log, recorded["first_uncleanable"])
    expected = recorded["cleaned_files_sha256"]
    snapshots = {name for name in expected if name.endswith(".snapshot")}
    assert set(hashes) == set(expected) - snapshots
    assert {name: hashes[name] for name in hashes if name[:20] not in compressed} == {
        name: sha for name, sha in expected.items() if name[:20] not in compressed and name not in snapshots
    }
    for base_offset, modified_ms in recorded["mtimes"].items():
        for suffix in SEGMENT_SUFFIXES[:3]:
            path = directory / f"{int(base_offset):020d}{suffix}"
            assert abs(path.stat().st_mtime_ns // 1_000_000 - modified_ms) <= 1
    assert _batches(log) == recorded["batches_after"]
    assert _records(log) == recorded["after"]
    assert {
        str(segment.base_offset): [list(txn) for txn in segment.txn_index.records]
        for segment in log.segments
        if segment.base_offset < recorded["first_uncleanable"] and segment.txn_index.records
    } == recorded["aborted_after"]


@pytest.mark.parametrize(("name", "partition"), CASES)
def test_a_log_that_kafka_has_cleaned_is_trusted(
    name: str, partition: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = RECORDED[name, partition]
    log = open_recorded(unpack(name, "after", tmp_path), partition, recorded)
    assert log.log_end_offset == recorded["log_end"]
    assert not [line for line in caplog.messages if "rebuilding" in line.lower()]
    assert _batches(log) == recorded["batches_after"]
    assert _records(log) == recorded["after"]


def _of_compressed_segments(log: PartitionLog, bound: int) -> set[str]:
    """The digits of those that hold compressed batches."""
    return {
        f"{segment.base_offset:020d}"
        for segment in log.segments
        if segment.base_offset < bound
        and any(header.compression != NONE for _position, header in segment.batches())
    }


def _batches(log: PartitionLog) -> list[list[int]]:
    return [
        [
            segment.base_offset,
            header.base_offset,
            header.last_offset,
            header.records_count,
            header.attributes,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_timestamp,
            header.max_timestamp,
        ]
        for segment in log.segments
        for _position, header in segment.batches()
    ]


def _records(log: PartitionLog) -> list[list[Any]]:
    return [
        [
            record.offset,
            None if record.key is None else record.key.hex(),
            None if record.value is None else record.value.hex(),
            header.producer_id,
            header.producer_epoch,
            record.sequence,
            header.is_control,
        ]
        for segment in log.segments
        for position, header in segment.batches()
        for record in read_records(files.read(segment.log, header.size_bytes, position))
    ]
