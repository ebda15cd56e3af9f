"""Logs with random histories, cleaned by Apache Kafka and by barnabas: both leave the same records."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import Any

from protocol.records.batch import Record, read_records
from protocol.records.compression import NONE
from protocol.wire.primitives import uuid_to_text
from storage.checkpoints import PARTITION_METADATA_FILE, encode_partition_metadata
from storage.cleaning.plan import CleanedSegment
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.interop.nodes import Turns
from tests.interop.test_dump_log import dump
from tests.interop.test_starts import create
from tests.support.cleaning import clean_log, plan_of, steps
from tests.support.compacted_history import RETENTION_MS, CompactedHistory
from tests.support.disk import files
from tests.support.requirements import need_apache_kafka
from tests.support.waiting import until
from tests.support.whole_server import in_loop, started

SEEDS = range(16)
STEPS = 150
EXPIRES_MS = 2**31 - 1
TOPIC = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "700",
    "index.interval.bytes": "200",
    "delete.retention.ms": str(RETENTION_MS),
    "min.cleanable.dirty.ratio": "0.0",
    "file.delete.delay.ms": "0",
}
KAFKA = {
    "producer.id.expiration.ms": str(EXPIRES_MS),
    "log.cleaner.backoff.ms": "200",
    "transaction.partition.verification.enable": "false",
}


def history_of(seed: int, directory: Path) -> CompactedHistory:
    """One that ended some minutes ago, so that all delete horizons in it have passed. Every other one is cleaned half:
    a part of the segments of the last pass are swapped in, and the checkpoint doesn't say so."""
    history = CompactedHistory(
        directory,
        random.Random(seed),
        now_ms=int(time.time() * 1000) - 10**6,
        rooms=(1000,),
        producer_id_expiration_ms=EXPIRES_MS,
    )
    for _step in range(STEPS):
        history.step()
    while (plan := history.plan()).first_uncleanable_offset <= plan.first_dirty_offset:
        history.step()
    if seed % 2:
        running = steps(history.log, plan)
        for step in running:
            if isinstance(step, CleanedSegment):
                next(running)
                break
        running.close()
    history.log.close()
    return history


def opened(directory: Path, partition: int, now_ms: int) -> PartitionLog:
    log = PartitionLog.open(
        str(directory),
        "orders",
        partition,
        LogConfig(
            cleanup_policy=frozenset({"compact"}),
            segment_bytes=700,
            index_interval_bytes=200,
            delete_retention_ms=RETENTION_MS,
            retention_ms=-1,
            producer_id_expiration_ms=EXPIRES_MS,
        ),
        now_ms=now_ms,
        clean=True,
        files=files,
        background=lambda work, then, *, lane, delay_ms=0: (work(), then(None)),
    )
    log.update_high_watermark(log.log_end_offset)
    return log


def content(log: PartitionLog) -> list[tuple[int, tuple[Any, ...], list[Record]]]:
    """Of each batch the segment it stands in, its header, and its records; what is compressed may be so otherwise."""
    found = []
    for segment in log.segments:
        for position, header in segment.batches():
            records = read_records(files.read(segment.log, header.size_bytes, position))
            if header.compression != NONE:
                header = header._replace(batch_length=0, crc=0)
            found.append((segment.base_offset, tuple(header), records))
    return found


def checkpointed(data: Path) -> dict[int, int]:
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return {}
    return {
        int(partition): int(offset) for topic, partition, offset in map(str.split, lines) if topic == "orders"
    }


@in_loop
async def test_kafka_and_barnabas_leave_the_same_of_the_same_log(tmp_path: Path) -> None:
    need_apache_kafka()
    histories = [history_of(seed, tmp_path / f"history-{seed}") for seed in SEEDS]
    with Turns(tmp_path, KAFKA) as turns:
        node = await started(turns.data)
        topic_id = await create(
            node, "orders", len(histories), **{key.replace(".", "_"): value for key, value in TOPIC.items()}
        )
        await node.stop()
        ends = {}
        for partition, history in enumerate(histories):
            folder = turns.data / f"orders-{partition}"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(history.log.directory, folder)
            metadata = encode_partition_metadata(uuid_to_text(topic_id))
            (folder / PARTITION_METADATA_FILE).write_bytes(metadata)
            bases = history.log.base_offsets
            stable = min(history.log.last_stable_offset, bases[-1])
            ends[partition] = max(base for base in bases if base <= stable)
        write_checkpoint(
            turns.data, "cleaner-offset-checkpoint", [history.first_dirty for history in histories]
        )
        write_checkpoint(
            turns.data, "replication-offset-checkpoint", [history.log.log_end_offset for history in histories]
        )
        turns.start_kafka()
        until(lambda: checkpointed(turns.data) == ends, "Kafka has cleaned all")
        turns.stop()

        for partition, history in enumerate(histories):
            try:
                compare(history, turns.data / f"orders-{partition}", partition)
            except BaseException as failure:
                failure.add_note(f"seed {partition}")
                raise
        # of a time index it complains where the batch was emptied whose time it says, of Kafka's own as well
        dump(
            path
            for seed in SEEDS
            for path in (tmp_path / f"history-{seed}/orders-0").iterdir()
            if path.suffix in (".log", ".index", ".txnindex")
        )


def write_checkpoint(data: Path, name: str, offsets: list[int]) -> None:
    lines = [f"orders {partition} {offset}" for partition, offset in enumerate(offsets)]
    (data / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def compare(history: CompactedHistory, kafkas: Path, partition: int) -> None:
    now_ms = int(time.time() * 1000)
    theirs = opened(kafkas, partition, now_ms)
    before = Path(history.log.directory)
    ours = opened(before, partition, now_ms)
    known = {header[7] for _base, header, _records in content(ours) if header[5] & 0x40}
    made = {header[7] for _base, header, _records in content(theirs) if header[5] & 0x40} - known
    if made:
        [horizon_ms] = made
        now_ms = horizon_ms - RETENTION_MS
    plan = plan_of(
        ours,
        first_dirty=history.first_dirty,
        first_uncleanable=ours.last_stable_offset,
        now_ms=now_ms,
        keep_txn_index=False,
    )
    clean_log(ours, plan)
    assert content(ours) == content(theirs)
    assert ours.base_offsets == theirs.base_offsets
    for segment in theirs.segments.row[:-1]:
        if not any(header.compression for _position, header in segment.batches()):
            name = f"{segment.base_offset:020d}"
            for suffix in (".log", ".index", ".timeindex"):
                assert (before / (name + suffix)).read_bytes() == (kafkas / (name + suffix)).read_bytes()
    assert [segment.txn_index.records for segment in ours.segments] == [
        segment.txn_index.records for segment in theirs.segments
    ]
    # the records that readers of both kinds find
    history.first_dirty = plan.first_uncleanable_offset
    for log in (ours, theirs):
        history.log = log
        history.check()
        history.check_nothing_superseded_is_left()
    theirs.close(clean=False)
    ours.close(clean=False)
