"""Kafka's own tool finds nothing wrong with the files of our logs."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.records import compression
from storage.log.partition_log import PartitionLog
from tests.support.partition_logs import NOW_MS, append, batch, end_transaction, open_log, produced

DumpLog = Callable[..., str]


def written(directory: Path, *, stopped: bool) -> PartitionLog:
    """Write several segments of plain, compressed, idempotent, committed, aborted and open records."""
    chance = random.Random(7)
    log = open_log(directory, segment_bytes=20_000, index_interval_bytes=1000)
    sequences = {1: 0, 2: 0}
    for step in range(200):
        at = {"timestamp": NOW_MS + 10 * step, "value_bytes": chance.randint(1, 300)}
        kind = chance.random()
        count = chance.randint(1, 5)
        if kind < 0.4:
            append(log, batch(count, **at), leader_epoch=step // 50)
        elif kind < 0.5:
            append(log, batch(count, codec=compression.GZIP, **at), leader_epoch=step // 50)
        elif kind < 0.8:
            producer_id = chance.choice([1, 2])
            data = produced(sequences[producer_id], count, producer_id=producer_id, transactional=True, **at)
            append(log, data, leader_epoch=step // 50)
            sequences[producer_id] += count
        else:
            end_transaction(log, chance.random() < 0.5, producer_id=chance.choice([1, 2]))
    if stopped:
        log.close()
    assert len(log.segments) > 3
    return log


def files_of(log: PartitionLog, *suffixes: str) -> str:
    found = sorted(path for suffix in suffixes for path in Path(log.directory).glob("*" + suffix))
    assert found
    return ",".join(map(str, found))


@pytest.mark.parametrize("stopped", [True, False])
def test_kafkas_tool_reads_every_batch_of_the_log(
    needs_kafka: DumpLog, tmp_path: Path, stopped: bool
) -> None:
    log = written(tmp_path, stopped=stopped)
    dump = needs_kafka("dump-log", "--deep-iteration", "--files", files_of(log, ".log"))
    assert dump.count("isvalid: true") == 200
    assert "isvalid: false" not in dump
    assert max(int(offset) for offset in re.findall(r"lastOffset: (\d+)", dump)) == log.log_end_offset - 1


@pytest.mark.parametrize("stopped", [True, False])
def test_kafkas_tool_finds_the_indexes_to_agree_with_the_log(
    needs_kafka: DumpLog, tmp_path: Path, stopped: bool
) -> None:
    log = written(tmp_path, stopped=stopped)
    indexes = files_of(log, ".index", ".timeindex")
    sane = needs_kafka("dump-log", "--index-sanity-check", "--files", indexes)
    assert sane.count("passed sanity check") == 2 * len(log.segments)
    verified = needs_kafka("dump-log", "--verify-index-only", "--files", indexes)
    assert "mismatch" not in verified.lower()
    assert "Found" not in verified


def test_kafkas_tool_reads_the_producers_and_aborted_transactions(
    needs_kafka: DumpLog, tmp_path: Path
) -> None:
    log = written(tmp_path, stopped=True)
    dump = needs_kafka("dump-log", "--files", files_of(log, ".snapshot", ".txnindex"))
    for segment in log.segments:
        for txn in segment.txn_index.records:
            assert (
                f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
                f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}" in dump
            )
    for producer in log.producers.producers.values():
        assert f"producerId: {producer.producer_id} producerEpoch: {producer.epoch}" in dump
        assert f"lastSequence: {producer.last_sequence} lastOffset: {producer.last_data_offset}" in dump
