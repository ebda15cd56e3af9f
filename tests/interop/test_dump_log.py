"""Kafka's own dump tool reads every file that barnabas writes, without complaints."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.server import Server
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import ABORT, COMMIT, build_batch, build_end_txn_marker
from storage.log.log_state import AppendOrigin
from tests.support.apache_kafka import RUNNER, TOOL_OPTIONS
from tests.support.requirements import need_apache_kafka
from tests.support.topics import topics_of
from tests.support.whole_server import clock_of, crash, in_loop, started

DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
SMALL_SEGMENTS = {"internal.segment.bytes": "6000", "index.interval.bytes": "500"}
SETTINGS = (
    "metadata.log.max.record.bytes.between.snapshots=3000",
    "internal.metadata.log.segment.bytes=4000",
    # its transactional batches are written past the coordinator
    "transaction.partition.verification.enable=false",
)
PRODUCER = 4711


def dump(paths: Iterable[Path], *options: str) -> str:
    """The tool's output, once it is known to have no complaints."""
    files = ",".join(map(str, sorted(paths)))
    ended = subprocess.run(
        [RUNNER, "dump-log", "--files", files, *options],
        capture_output=True,
        text=True,
        env={**os.environ, "KAFKA_OPTS": TOOL_OPTIONS},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    complaints = ended.stderr.splitlines()
    # with --deep-iteration it says so of every segment that doesn't begin at 0, Kafka's own as well
    while len(complaints) >= 2 and complaints[0].startswith("Non-consecutive offsets in "):
        base_offset = int(complaints[0].rpartition("/")[2].removesuffix(".log"))
        assert complaints[1] == f"  -1 is followed by {base_offset}"
        del complaints[:2]
    assert complaints == []
    for complaint in ("invalid bytes", "isvalid: false", "Could not", "is not decodable"):
        assert complaint not in ended.stdout
    return ended.stdout


def create(node: Server, name: str, **configs: str) -> None:
    entries = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=entries)
    ((_, result),) = topics_of(node).create([wanted])
    assert isinstance(result, bytes), result


def append(node: Server, topic: str, batch: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    partition = node.partitions.get(topic, 0)
    partition.log.append(
        batch, leader_epoch=partition.leader_epoch, now_ms=node.clock.now_ms(), origin=origin
    )
    partition.leader().advance()


def fill(node: Server) -> None:
    """Several segments of each kind: plain and compressed, of an idempotent producer, of transactions."""
    create(node, "plain", **SMALL_SEGMENTS)
    create(node, "log-append-time", message_timestamp_type="LogAppendTime", **SMALL_SEGMENTS)
    create(node, "idempotent", **SMALL_SEGMENTS)
    create(node, "transactional", **SMALL_SEGMENTS)
    create(node, "empty")
    for round_ in range(40):
        clock_of(node).advance_ms(1000)
        now_ms = node.clock.now_ms()
        records = [(now_ms - index, b"key", b"v" * 300, [(b"h", None)]) for index in range(3)]
        append(node, "plain", build_batch(records, codec=round_ % 2))
        append(node, "log-append-time", build_batch(records, log_append_time=now_ms))
        of_producer = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 3 * round_}
        append(node, "idempotent", build_batch(records, **of_producer))
        append(node, "transactional", build_batch(records, **of_producer, transactional=True))
        marker = build_end_txn_marker(
            ABORT if round_ % 3 else COMMIT,
            coordinator_epoch=0,
            producer_id=PRODUCER,
            producer_epoch=0,
            timestamp=now_ms,
        )
        append(node, "transactional", marker, AppendOrigin.COORDINATOR)


def churn(node: Server) -> None:
    """Topics deleted and created again under the same names, and partitions with a moved log start."""
    for _ in range(3):
        for name in ("again", "gone"):
            create(node, name)
            append(node, name, build_batch([(node.clock.now_ms(), None, b"x", ())]))
        topics_of(node).delete([node.metadata.image.topics[name] for name in ("again", "gone")])
    create(node, "again")
    append(node, "again", build_batch([(node.clock.now_ms(), None, b"x", ())]))
    partition = node.partitions.get("plain", 0)
    partition.log.delete_records_before(60)
    partition.log.apply_retention(node.clock.now_ms())


@pytest.mark.parametrize("clean", [True, False], ids=["stopped cleanly", "killed and recovered"])
@in_loop
async def test_kafkas_dump_tool_reads_every_file_without_a_complaint(tmp_path: Path, clean: bool) -> None:
    need_apache_kafka()
    node = await started(tmp_path, *SETTINGS)
    fill(node)
    churn(node)
    if not clean:
        crash(node)
        node = await started(tmp_path, *SETTINGS)
    await node.stop()

    paths = [path for path in tmp_path.glob("*-?/*") if path.suffix in DUMPED]
    found = {path.suffix for path in paths}
    assert found == {*DUMPED}
    assert len(list((tmp_path / "transactional-0").glob("*.log"))) > 3
    metadata = [path for path in paths if path.parent.name == "__cluster_metadata-0"]
    assert len([path for path in metadata if path.suffix == ".log"]) > 1
    data = [path for path in paths if path not in metadata]
    logs_and_indexes = [path for path in data if path.suffix in (".log", ".index", ".timeindex")]

    printed = dump(data, "--deep-iteration", "--print-data-log")
    assert len(re.findall(r"^\| offset: \d+ .*payload: v{300}", printed, re.MULTILINE)) > 300
    assert f"producerId: {PRODUCER} producerEpoch: 0" in printed
    assert "endTxnMarker: ABORT" in printed
    assert "passed sanity check" in dump(logs_and_indexes, "--deep-iteration", "--index-sanity-check")
    printed = dump(metadata, "--deep-iteration", "--cluster-metadata-decoder")
    for expected in ("SnapshotHeader", "SnapshotFooter", "LeaderChange", '"type":"REMOVE_TOPIC_RECORD"'):
        assert expected in printed
    assert "Snapshot end offset: 0, epoch: 0" in printed  # what the cluster began with
