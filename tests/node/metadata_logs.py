"""A metadata log of one node in a folder, and records for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.controller import metadata_versions
from broker.controller.image import ClusterImage
from broker.controller.metadata_log import MetadataLog
from broker.controller.snapshots import SnapshotPolicy
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message
from storage.directory.log_directory import METADATA_TOPIC
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.manual_clock import ManualClock

NODE = 1
NEVER = SnapshotPolicy(2**62, 0, -1, -1)
ALWAYS = SnapshotPolicy(1, 0, -1, -1)
DIRECTORY = bytes(range(16))


def open_log(
    folder: Path,
    policy: SnapshotPolicy = NEVER,
    clock: ManualClock | None = None,
    segment_bytes: int = 2**20,
    *,
    only_voter: bool = True,
) -> MetadataLog:
    clock = clock or ManualClock()
    log = PartitionLog.open(
        str(folder),
        METADATA_TOPIC,
        0,
        LogConfig(segment_bytes=segment_bytes, retention_ms=-1),
        now_ms=clock.now_ms(),
        clean=False,
        files=files,
        background=run_at_once,
    )
    metadata = MetadataLog(log, ClusterImage(), clock, policy)
    metadata.replay(only_voter=only_voter)
    return metadata


def begin(folder: Path, policy: SnapshotPolicy = NEVER, **options: Any) -> MetadataLog:
    metadata = open_log(folder, policy, **options)
    metadata.become_leader(NODE)
    if not metadata.image.features:
        metadata.append_transaction("Bootstrap records", metadata_versions.feature_levels())
    return metadata


def topic(name: str, partitions: int = 1) -> list[Message]:
    topic_id = name.encode().ljust(16, b"-")
    made: list[Message] = [records.TopicRecord(name=name, topic_id=topic_id)]
    made += (
        records.PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=[NODE],
            isr=[NODE],
            leader=NODE,
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY],
        )
        for index in range(partitions)
    )
    return made


LEVEL = records.FeatureLevelRecord(name="metadata.version", feature_level=30)
