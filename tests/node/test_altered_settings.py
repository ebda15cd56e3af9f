"""A setting that is altered on a running broker is in force when the answer comes, and after a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from broker.config import logger_levels
from broker.config.alterations import Alteration
from broker.handlers import (
    alter_configs,
    delete_records,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
)
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import DescribeLogDirsRequest
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.metadata_records import ConfigRecord
from protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.records.batch import build_batch
from storage.background import Lane
from storage.checkpoints import LOG_START_FILE
from storage.directory import directory_checkpoints as checkpoint_writer
from storage.directory.directory_checkpoints import CheckpointWriter
from storage.log.partition_log import PartitionLog
from storage.log.removal import MOST_DELETED_AT_ONCE
from tests.support.topics import topics_of
from tests.support.whole_server import clock_of, crash, handled, started
from tests.support.wishes import wishes

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
NO_CONTEXT: Any = None
HOUR_MS = 3_600_000


def create(node: Server, name: str) -> PartitionLog:
    topics_of(node).create([CreatableTopic(name=name, num_partitions=1, replication_factor=1)])
    return node.partitions.get(name, 0).log


def append(node: Server, topic: str, size: int = 100) -> None:
    partition = node.partitions.get(topic, 0)
    batch = build_batch([(node.clock.now_ms(), b"k", b"v" * size, ())])
    partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=node.clock.now_ms())
    partition.leader().advance()


def alter(node: Server, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Error:
    configs = [
        IncrementalAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (response,) = handled(node, incremental_alter_configs, NO_CONTEXT, request).responses
    return Error(response.error_code)


def described(node: Server, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """Return the value and the source of a setting."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    request = DescribeConfigsRequest(resources=[resource])
    (result,) = handled(node, describe_configs, NO_CONTEXT, request).results
    (config,) = result.configs
    return config.value, config.config_source


def delete_before(node: Server, topic: str, offset: int) -> tuple[Error, int]:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])
    (answer,) = handled(node, delete_records, NO_CONTEXT, request).topics
    (result,) = answer.partitions
    return Error(result.error_code), result.low_watermark


async def test_a_topics_setting_reaches_its_log_and_its_checks(node: Server) -> None:
    log = create(node, "t")

    assert (
        alter(node, TOPIC, "t", ("segment.ms", SET, "5000"), ("max.message.bytes", SET, "77")) is Error.NONE
    )

    assert log.config.segment_ms == 5000
    assert node.partitions.by_name["t"].rules.max_message_bytes == 77
    alter(node, TOPIC, "t", ("segment.ms", DELETE, None))
    assert log.config.segment_ms == 604_800_000


async def test_one_bad_setting_prevents_all_alterations(node: Server) -> None:
    log = create(node, "t")

    assert alter(node, TOPIC, "t", ("flush.ms", SET, "5"), ("segment.ms", SET, "x")) is Error.INVALID_CONFIG

    assert log.config.flush_ms == 2**63 - 1
    assert node.metadata.image.config_of_topic("t") == {}


async def test_a_mere_validation_alters_nothing(node: Server) -> None:
    create(node, "t")
    end = node.metadata.next_offset
    configs = [AlterableConfig(name="retention.ms", value="5")]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)

    request = AlterConfigsRequest(resources=[resource], validate_only=True)
    (response,) = handled(node, alter_configs, NO_CONTEXT, request).responses

    assert response.error_code == Error.NONE
    assert node.metadata.next_offset == end


async def test_a_brokers_setting_reaches_topics_without_one_of_their_own(node: Server) -> None:
    inheriting, own = create(node, "a"), create(node, "b")
    alter(node, TOPIC, "b", ("retention.ms", SET, "5"))

    alter(node, BROKER, "", ("log.retention.ms", SET, "7777"))
    alter(node, BROKER, str(node.node_id), ("log.segment.bytes", SET, "3000000"))

    assert (inheriting.config.retention_ms, own.config.retention_ms) == (7777, 5)
    assert inheriting.config.segment_bytes == 3_000_000
    assert described(node, TOPIC, "a", "retention.ms") == ("7777", 3)
    assert described(node, TOPIC, "a", "segment.bytes") == ("3000000", 2)


async def test_the_limit_of_connections_follows(node: Server) -> None:
    assert node.connection_limits.admit("10.0.0.1") is None

    alter(node, BROKER, "", ("max.connections.per.ip", SET, "1"))

    assert node.connection_limits.admit("10.0.0.1") is not None
    assert node.connection_limits.admit("10.0.0.2") is None


async def test_cordoned_directories_get_no_new_partitions(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    node = await started(tmp_path, f"log.dirs={first},{second}")
    alter(node, BROKER, str(node.node_id), ("cordoned.log.dirs", SET, str(first)))

    for name in ("a", "b", "c"):
        create(node, name)

    assert {node.partitions.get(name, 0).directory.path for name in ("a", "b", "c")} == {str(second)}
    alter(node, BROKER, str(node.node_id), ("cordoned.log.dirs", SET, "*"))
    wanted = CreatableTopic(name="d", num_partitions=1, replication_factor=1)
    ((_, refusal),) = topics_of(node).create([wanted])
    assert isinstance(refusal, KafkaError)
    assert refusal.error is Error.INVALID_REPLICATION_FACTOR

    by_hand = CreatableTopic(name="d", num_partitions=-1, replication_factor=-1)
    by_hand.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[node.node_id])]
    ((_, refusal),) = topics_of(node).create([by_hand])
    assert isinstance(refusal, KafkaError)
    assert refusal.error is Error.INVALID_REPLICA_ASSIGNMENT


async def test_a_restart_finds_the_altered_settings(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "t")
    alter(node, TOPIC, "t", ("retention.ms", SET, "5"))
    alter(node, BROKER, "", ("log.segment.bytes", SET, "3000000"))
    crash(node)

    again = await started(tmp_path)

    log = again.partitions.get("t", 0).log
    assert (log.config.retention_ms, log.config.segment_bytes) == (5, 3_000_000)


async def test_settings_that_an_older_broker_accepted_do_not_prevent_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(tmp_path)
    node.metadata.append(
        [ConfigRecord(resource_type=BROKER, resource_name="", name="max.connections", value="0")]
    )
    crash(node)

    with caplog.at_level(logging.WARNING):
        again = await started(tmp_path)

    assert "max.connections: ignored: Invalid max.connections 0" in caplog.text
    assert again.connection_limits.admit("127.0.0.1") is None
    assert alter(again, BROKER, "", ("max.connections", SET, "0")) is Error.INVALID_REQUEST
    assert alter(again, BROKER, "", ("message.max.bytes", SET, "2000000")) is Error.NONE
    assert alter(again, BROKER, "", ("max.connections", SET, "7")) is Error.NONE
    assert again.connection_limits.max_connections == 7


async def test_a_shorter_retention_takes_old_segments_at_the_next_run(node: Server) -> None:
    log = create(node, "t")
    append(node, "t")
    clock_of(node).advance_ms(HOUR_MS)
    log.roll(node.clock.now_ms())
    append(node, "t")
    node.housekeeping.enforce_retention()
    assert log.log_start_offset == 0

    alter(node, TOPIC, "t", ("retention.ms", SET, str(HOUR_MS // 2)))
    node.housekeeping.enforce_retention()

    assert (log.log_start_offset, log.log_end_offset) == (1, 2)


async def test_a_smaller_retention_takes_the_excess_at_the_next_run(node: Server) -> None:
    log = create(node, "t")
    for _ in range(4):
        append(node, "t", 1000)
        log.roll(node.clock.now_ms())

    alter(node, TOPIC, "t", ("retention.bytes", SET, "2000"))
    node.housekeeping.enforce_retention()

    assert log.log_start_offset == 2


@pytest.mark.limit("storage.log.removal.MOST_DELETED_AT_ONCE")
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_each_turn_of_the_loop_deletes_a_hundred_of_many_segments(node: Server, policy: str) -> None:
    log = create(node, "t")
    alter(node, TOPIC, "t", ("cleanup.policy", SET, policy))
    count = 2 * MOST_DELETED_AT_ONCE + 10
    for _ in range(count):
        append(node, "t")
        log.roll(node.clock.now_ms())
    log.delete_records_before(count)
    left = [len(log.segments)]
    real = PartitionLog.apply_retention

    def counted(each: PartitionLog, *given: int) -> int:
        deleted = real(each, *given)
        if each is log:
            left.append(len(log.segments))
        return deleted

    with mock.patch.object(PartitionLog, "apply_retention", counted):
        if policy == "delete":
            node.housekeeping.enforce_retention()
            assert len(left) == 2
            for _ in range(5):
                await asyncio.sleep(0)
        else:
            for step, _ in enumerate(wishes(node.cleaner._a_round())):
                assert len(left) <= step + 2
    assert left == [count + 1, count + 1 - MOST_DELETED_AT_ONCE, count + 1 - 2 * MOST_DELETED_AT_ONCE, 1]


async def test_nothing_is_deleted_of_a_topic_that_is_compacted_now(node: Server) -> None:
    log = create(node, "t")
    append(node, "t")
    clock_of(node).advance_ms(HOUR_MS)

    alter(node, TOPIC, "t", ("retention.ms", SET, "5"), ("cleanup.policy", SET, "compact"))
    node.housekeeping.enforce_retention()

    assert log.log_start_offset == 0
    assert delete_before(node, "t", 1) == (Error.POLICY_VIOLATION, -1)


async def test_deleted_records_are_gone_at_once_and_their_segments_at_the_next_run(node: Server) -> None:
    log = create(node, "t")
    for _ in range(3):
        append(node, "t")
        log.roll(node.clock.now_ms())

    assert delete_before(node, "t", 2) == (Error.NONE, 2)
    assert (log.log_start_offset, len(log.segments)) == (2, 4)
    assert delete_before(node, "t", 4) == (Error.OFFSET_OUT_OF_RANGE, -1)
    node.housekeeping.enforce_retention()

    assert len(log.segments) == 2
    assert delete_before(node, "t", -1) == (Error.NONE, 3)


async def test_a_start_after_a_kill_begins_where_records_were_deleted(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "t")
    for _ in range(3):
        append(node, "t")
    delete_before(node, "t", 2)
    await node.background.finish()  # no timer is needed for it
    crash(node)

    again = await started(tmp_path)

    log = again.partitions.get("t", 0).log
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)


async def test_constant_deletion_of_records_writes_log_starts_only_once_in_a_while(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "REST_MS", HOUR_MS)
    written: list[str] = []
    write = CheckpointWriter.write

    def noted(writer: CheckpointWriter, name: str, encode: Callable[[], bytes]) -> None:
        written.append(name)
        write(writer, name, encode)

    monkeypatch.setattr(CheckpointWriter, "write", noted)
    create(node, "t")
    for offset in range(1, 6):
        append(node, "t")
        assert delete_before(node, "t", offset) == (Error.NONE, offset)
        await node.background.passed(Lane.WRITING)
    assert written.count(LOG_START_FILE) == 1


async def test_the_size_of_a_partition_is_that_of_its_records(tmp_path: Path) -> None:
    node = await started(tmp_path)
    log = create(node, "t")
    append(node, "t")

    (directory,) = handled(node, describe_log_dirs, NO_CONTEXT, DescribeLogDirsRequest(topics=None)).results

    (topic,) = directory.topics
    (partition,) = topic.partitions
    files = sum(path.stat().st_size for path in Path(log.directory).glob("*.log"))
    assert (topic.name, partition.partition_size) == ("t", files)
    assert directory.log_dir == str(tmp_path)


def test_a_loggers_level_is_set_and_given_back() -> None:
    logger = logging.getLogger("barnabas.tried_by_a_test")
    try:
        logger_levels.alter([Alteration(logger.name, SET, "DEBUG")])
        assert logger.isEnabledFor(logging.DEBUG)
        assert logger_levels.logger_levels()[logger.name] == "DEBUG"

        logger_levels.alter([Alteration(logger.name, DELETE, None)])
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(logging.NOTSET)


@pytest.mark.parametrize(
    ("alteration", "error"),
    [
        (Alteration("no.such.logger", SET, "INFO"), Error.INVALID_CONFIG),
        (Alteration("root", SET, "LOUD"), Error.INVALID_CONFIG),
        (Alteration("root", DELETE, None), Error.INVALID_REQUEST),
        (Alteration("root", 2, "INFO"), Error.INVALID_REQUEST),
        (Alteration("root", 4, "INFO"), Error.INVALID_REQUEST),
    ],
)
def test_an_impossible_alteration_of_a_logger_is_refused(alteration: Alteration, error: Error) -> None:
    with pytest.raises(KafkaError) as refused:
        logger_levels.check_alterations([alteration])
    assert refused.value.error is error
