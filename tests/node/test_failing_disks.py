"""A disk that refuses operations: the failure is answered and the operation tried again, and nothing else is
affected."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from broker.config.definitions import StartError
from broker.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
    init_producer_id,
    metadata,
    update_features,
)
from broker.replicas.fetch_sessions import FetchTarget
from broker.replicas.fetching import DelayedFetch, FetchParameters, Reading, Results
from broker.replicas.replica import WaitingFetches
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import FetchPartition
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from protocol.records.batch import build_batch
from protocol.waiting import Later
from tests.compare.plain import message_from
from tests.node import log_dirs
from tests.support.answers import answered
from tests.support.disk import files
from tests.support.topics import topics_of
from tests.support.whole_server import clock_of, crash, handled, started


class AnyContext:
    """The context of a request that came by the first listener."""

    api_version = 5
    listener_name = "PLAINTEXT"
    client_id = "test"
    principal = ANONYMOUS


def context() -> Any:
    return AnyContext()


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def refuse(operation: str, part_of_path: str = "") -> None:
    def hook(name: str, path: str, size: int) -> None:
        if name == operation and part_of_path in path:
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(hook)


def create(node: Server, name: str, partitions: int = 1) -> None:
    topics_of(node).create([CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def append(node: Server, topic: str, index: int = 0) -> None:
    partition = node.partitions.get(topic, index)
    batch = build_batch([(node.clock.now_ms(), None, b"x", ())])
    partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=node.clock.now_ms())
    partition.leader().advance()


def waiting_fetch(node: Server, offset: int, *, max_wait_ms: int = 60_000) -> Later[Results]:
    later = node.turns.answer(_waiting(node, offset, max_wait_ms))
    assert isinstance(later, Later)
    return later


async def _waiting(node: Server, offset: int, max_wait_ms: int) -> Results:
    parameters = FetchParameters(
        api_version=11,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1_000_000,
        max_bytes=50_000_000,
        read_committed=False,
    )
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    targets = [FetchTarget("a", wanted)]
    reading = Reading(node.partitions, parameters, lambda topic: True)
    reading.read(targets)
    reading.forget()
    await DelayedFetch(reading).wait(node.scheduler, node.turns)
    reading.read_anew(reading.found)
    return reading.results


def folders(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.is_dir() and "-delete" not in each.name)


@pytest.mark.parametrize("fails", ["the timer", "the partition"])
async def test_a_fetch_that_cannot_begin_to_wait_leaves_nothing_behind(
    node: Server, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    create(node, "a")
    with monkeypatch.context() as patched:
        if fails == "the timer":
            patched.setattr(type(node.scheduler), "call_later", no_memory)
        else:
            patched.setattr(WaitingFetches, "add", no_memory)
        with pytest.raises(MemoryError):
            waiting_fetch(node, 0).result()
    append(node, "a")
    assert not node.partitions.get("a", 0).waiting


async def test_a_partition_that_cannot_be_opened_is_opened_at_the_next_change(node: Server) -> None:
    refuse("list_directory", "/c-1")
    create(node, "c", 4)
    assert sorted(node.partitions.by_name["c"].partitions) == [0, 2, 3]
    assert node.partitions.missing("c", 1) is Error.KAFKA_STORAGE_ERROR
    assert node.partitions.offline() == set(), "its directory works: nobody is told that it is lost"
    files.set_fault_hook(None)
    create(node, "d")
    assert sorted(node.partitions.by_name["c"].partitions) == [0, 1, 2, 3]
    assert node.partitions.get("c", 1).leader_epoch == 0


async def test_a_partition_that_cannot_be_deleted_is_deleted_at_the_next_change(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "a", 3)
    for index in range(3):
        append(node, "a", index)
    refuse("rename", "/a-0")
    topics_of(node).delete([node.metadata.image.topics["a"]])
    assert folders(tmp_path) == ["__cluster_metadata-0", "a-0"]
    files.set_fault_hook(None)
    create(node, "a")
    assert node.partitions.get("a", 0).log.log_end_offset == 0
    append(node, "a")
    await node.stop()
    again = await started(tmp_path)
    assert again.partitions.get("a", 0).log.log_end_offset == 1


async def test_a_waiting_fetch_that_cannot_read_answers_and_wakes_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    create(node, "a")
    append(node, "a")
    fetches = [waiting_fetch(node, 1), waiting_fetch(node, 1)]
    from storage.log.partition_log import PartitionLog

    def refused(*_: object, **__: object) -> int:
        raise KafkaError(Error.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(PartitionLog, "available_bytes", refused)
    monkeypatch.setattr(PartitionLog, "read", refused)
    append(node, "a")  # raises nothing
    for fetch in fetches:
        [(_, answer)] = await answered(fetch)
        assert answer.error_code == Error.KAFKA_STORAGE_ERROR
    crash(node)


@pytest.mark.parametrize("max_wait_ms", [0, 60_000])
async def test_a_fetch_with_an_unexpected_error_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_wait_ms: int
) -> None:
    node = await started(tmp_path)
    create(node, "a")
    append(node, "a")
    fetch = waiting_fetch(node, 1, max_wait_ms=max_wait_ms)
    from storage.log.partition_log import PartitionLog

    def stumbles(*_: object, **__: object) -> int:
        raise IndexError("out of it")

    monkeypatch.setattr(PartitionLog, "available_bytes", stumbles)
    monkeypatch.setattr(Reading, "read_anew", stumbles)
    if max_wait_ms:
        append(node, "a")
    with pytest.raises(IndexError, match="out of it"):
        await asyncio.wait_for(answered(fetch), 5)
    crash(node)


async def test_retention_goes_on_after_a_partition_that_fails(node: Server) -> None:
    for name in "abc":
        create(node, name)
        append(node, name)
    clock_of(node).advance_ms(10**12)
    refuse("rename", "/a-0/")
    node.housekeeping.enforce_retention()
    files.set_fault_hook(None)
    assert [node.partitions.get(name, 0).log.log_start_offset for name in "bc"] == [1, 1]
    crash(node)


async def test_a_late_report_of_a_failed_directory_does_not_stop_the_node(tmp_path: Path) -> None:
    """Such a report comes from a sync that was under way when the directory failed."""
    node = await log_dirs.filled(tmp_path)
    directory = node.partitions.get("t", log_dirs.LOST).directory
    node.log_dirs.stops_without = True  # as a broker of a cluster does
    await log_dirs.fail(node)
    files.set_fault_hook(None)
    assert directory not in node.log_dirs.all()
    assert directory.report(OSError(errno.EIO, "refused"))
    assert node.failure is None
    await node.stop()


@pytest.mark.fault("append", "exists")
async def test_the_node_goes_on_if_the_disk_cannot_say_whether_its_only_directory_exists(
    node: Server,
) -> None:
    create(node, "a")
    log_dirs.refuse("", "append", "exists")
    with pytest.raises(KafkaError) as refused:
        append(node, "a")
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    node.log_dirs.find_deleted()
    assert node.failure is None
    files.set_fault_hook(None)
    append(node, "a")


async def test_a_full_disk_is_answered_for_each_topic(node: Server) -> None:
    create(node, "a")
    refuse("append", "__cluster_metadata")
    error = Error.KAFKA_STORAGE_ERROR
    wanted = [CreatableTopic(name="b", num_partitions=1, replication_factor=1), CreatableTopic(name="?")]
    created = handled(node, create_topics, context(), CreateTopicsRequest(topics=wanted, timeout_ms=1))
    assert {each.name: each.error_code for each in created.topics} == {
        "b": error,
        "?": Error.INVALID_TOPIC_EXCEPTION,
    }
    deleted = handled(
        node, delete_topics, context(), DeleteTopicsRequest(topic_names=["a", "z"], timeout_ms=1)
    )
    assert {each.name: each.error_code for each in deleted.responses} == {
        "a": error,
        "z": Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    more = {"topics": [{"name": "a", "count": 2, "assignments": None}], "timeout_ms": 1}
    [result] = ask(node, create_partitions, 37, 3, more).results
    assert result.error_code == error
    assert (
        handled(node, init_producer_id, context(), InitProducerIdRequest(transactional_id=None)).error_code
        == Error.COORDINATOR_LOAD_IN_PROGRESS
    )
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="b")], allow_auto_topic_creation=True)
    [topic] = handled(node, metadata, context(), asked).topics
    assert topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert [*node.metadata.image.topics] == ["a"]
    assert node.partitions.find("a", 0) is not None
    crash(node)


def ask(node: Server, handler: ModuleType, key: int, version: int, fields: dict[str, Any]) -> Any:
    request = message_from(APIS[key].request, fields, version)
    context = SimpleNamespace(
        api_version=version, listener_name="PLAINTEXT", client_id="test", principal=ANONYMOUS
    )
    return handled(node, handler, context, request)


async def test_a_full_disk_is_answered_by_every_request_that_changes_the_cluster(node: Server) -> None:
    create(node, "a")
    refuse("append", "__cluster_metadata")
    config = {"name": "retention.ms", "value": "1", "config_operation": 0}
    resource = {"resource_type": 2, "resource_name": "a", "configs": [config]}
    unknown = resource | {"resource_name": "b"}
    configs = {"resources": [resource, unknown], "validate_only": False}
    altered = ask(node, incremental_alter_configs, 44, 1, configs).responses
    del config["config_operation"]
    replaced = ask(node, alter_configs, 33, 2, configs).responses
    for responses in (altered, replaced):
        assert [each.error_code for each in responses] == [
            Error.KAFKA_STORAGE_ERROR,
            Error.UNKNOWN_TOPIC_OR_PARTITION,
        ]
    entity = {"entity_type": "user", "entity_name": "u"}
    rate = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
    quota = {"entries": [{"entity": [entity], "ops": [rate]}], "validate_only": False}
    [quotas] = ask(node, alter_client_quotas, 49, 1, quota).entries
    upserted = {"name": "u", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
    scram = {"deletions": [], "upsertions": [upserted]}
    [credentials] = ask(node, alter_user_scram_credentials, 51, 0, scram).results
    update = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
    features = {"timeout_ms": 1, "feature_updates": [update], "validate_only": False}
    updated = ask(node, update_features, 57, 2, features)
    answers = [quotas, credentials, updated]
    assert [each.error_code for each in answers] == [Error.KAFKA_STORAGE_ERROR] * 3
    files.set_fault_hook(None)
    assert node.metadata.image.config_of_topic("a") == {}


async def test_a_stop_with_a_full_disk_closes_everything_without_the_mark(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "a")
    append(node, "a")
    refuse("append")
    await node.stop()
    files.set_fault_hook(None)
    assert isinstance(node.failure, KafkaError)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = await started(tmp_path)  # the lock was given back
    assert again.partitions.get("a", 0).log.log_end_offset == 1


async def test_a_stop_that_cannot_sync_a_partition_is_a_failure_without_the_mark(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "a")
    append(node, "a")
    refuse("sync", "/a-0/")
    await node.stop()
    files.set_fault_hook(None)
    assert "could be synced" in str(node.failure)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


async def test_a_start_logs_a_partition_with_damaged_metadata(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(tmp_path)
    create(node, "a")
    append(node, "a")
    await node.stop()
    (tmp_path / "a-0" / "partition.metadata").write_text("version: 0\ntopic_id: ?\n")
    again = await started(tmp_path)
    assert [
        line for line in caplog.messages if line.startswith("a-0 is offline") and "partition.metadata" in line
    ]
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        again.partitions.get("a", 0)


async def test_a_start_whose_metadata_cannot_be_synced_is_refused(tmp_path: Path) -> None:
    refuse("sync", "/__cluster_metadata-0/00000000000000000000.log")
    with pytest.raises(StartError, match=r"can't open the data: .*__cluster_metadata-0"):
        await started(tmp_path)
    files.set_fault_hook(None)
    node = await started(tmp_path)
    assert node.metadata.log.failure is None
