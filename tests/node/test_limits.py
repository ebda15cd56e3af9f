"""The broker's bounds. For each a test shows that what fits is taken, and that one more isn't."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

import pytest

from broker import starting as descriptors
from broker.config import client_metrics_config as client_metrics
from broker.config.client_metrics_config import check_client_metrics_configs
from broker.config.definitions import StartError
from broker.controller import replica_placer as placement
from broker.controller import snapshots as snapshot_file
from broker.controller import topic_requests
from broker.controller.quorum_state import Quorum
from broker.controller.replica_placer import Placement
from broker.controller.snapshots import encode_snapshot
from broker.environment.environment import Environment
from broker.handlers.alter_replica_log_dirs import FUTURE_SUFFIX_LENGTH, LONGEST_DIRECTORY_NAME
from broker.network import dispatch
from broker.replicas.fetch_sessions import MAX_SESSION_ID, SHARDS, FetchSessions
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import FetchPartition
from protocol.messages.metadata import ApiVersionsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import CreatableTopic
from protocol.records.batch import walk_batches
from protocol.waiting import at_once
from storage.disk_files import DiskFiles
from storage.files import MOST_RETIRED_FILES
from tests.node import log_dir_moves
from tests.node.log_dir_moves import move
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.straight import Straight
from tests.support.whole_server import configured, in_loop
from tests.support.wire import Answer, Client, Outcome


@pytest.mark.limit("broker.network.answers.MAX_CONTROL_REQUEST_BYTES")
async def test_only_produce_may_be_larger_than_a_control_request(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "MAX_CONTROL_REQUEST_BYTES", 1000)

    def ask(size: int) -> ApiVersionsRequest:
        return ApiVersionsRequest(client_software_name="a" * size, client_software_version="1")

    records = PartitionProduceData(index=0, records=memoryview(bytes(2000)))
    produce = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="nowhere", partition_data=[records])]
    )
    with Client(Straight(node)) as client:
        assert isinstance(client.receive(client.send(ask(900), 3), within_s=0), Answer)
        assert isinstance(client.receive(client.send(produce, 9), within_s=0), Answer)
        assert client.receive(client.send(ask(1000), 3), within_s=0) is Outcome.CLOSED


@pytest.mark.limit("broker.controller.replica_placer.MOST_PREFERRED")
def test_preferred_directories_of_missing_replicas_are_remembered_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "MOST_PREFERRED", 2)
    first, second = b"1" * 16, b"2" * 16
    placed = Placement(1, [first, second])
    for index in range(3):
        placed.prefer("t", index, second)
    assert [placed.directory_of("t", index) for index in range(3)] == [second, second, first]


@pytest.mark.limit("broker.controller.snapshots.MAX_BATCH_BYTES")
def test_records_of_a_snapshot_are_spread_over_batches_by_their_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_file, "MAX_BATCH_BYTES", 100)
    sizes = [50, 50, 1, 200, 10]
    data = at_once(
        encode_snapshot(map(bytes, sizes), Quorum(), epoch=1, last_contained_log_timestamp_ms=0, now_ms=0)
    )
    counts = [header.records_count for _, header in walk_batches(data)]
    assert counts == [1, 2, 1, 1, 1, 1]  # the first and the last are the snapshot's own


@pytest.mark.limit("broker.controller.topic_requests.MAX_PARTITIONS_PER_REQUEST")
def test_a_request_creates_only_so_many_partitions_as_it_may() -> None:
    most = topic_requests.MAX_PARTITIONS_PER_REQUEST
    half = CreatableTopic(name="a", num_partitions=most // 2)
    by_default = CreatableTopic(name="b", num_partitions=-1)
    topic_requests.check_total([half, by_default], most - most // 2)
    with pytest.raises(KafkaError, match=f"at most {most} can be created at once") as refused:
        topic_requests.check_total([half, by_default], most - most // 2 + 1)
    assert refused.value.error is Error.POLICY_VIOLATION


@pytest.mark.limit("broker.handlers.alter_replica_log_dirs.LONGEST_DIRECTORY_NAME")
async def test_a_partition_is_not_moved_where_its_folders_name_would_be_too_long(tmp_path: Path) -> None:
    node = await log_dir_moves.started(tmp_path)
    fits = LONGEST_DIRECTORY_NAME - FUTURE_SUFFIX_LENGTH - len("-0")
    assert move(node, tmp_path / "b", "t" * fits) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert move(node, tmp_path / "b", "t" * (fits + 1)) is Error.INVALID_TOPIC_EXCEPTION


@pytest.mark.limit("broker.config.client_metrics_config.MIN_INTERVAL_MS")
@pytest.mark.limit("broker.config.client_metrics_config.MAX_INTERVAL_MS")
def test_clients_are_asked_for_metrics_neither_too_often_nor_too_seldom() -> None:
    least, most = client_metrics.MIN_INTERVAL_MS, client_metrics.MAX_INTERVAL_MS
    for interval_ms in (least, most):
        check_client_metrics_configs({"interval.ms": str(interval_ms)})
    for interval_ms in (least - 1, most + 1):
        with pytest.raises(KafkaError) as refused:
            check_client_metrics_configs({"interval.ms": str(interval_ms)})
        assert refused.value.error is Error.INVALID_REQUEST


@pytest.mark.limit("broker.starting.MOST_OPEN_FILES")
@pytest.mark.parametrize(
    ("allowed", "kept_open"),
    [
        (1_000, 500),
        (100_000, descriptors.MOST_OPEN_FILES),
        (resource.RLIM_INFINITY, descriptors.MOST_OPEN_FILES),
    ],
)
def test_logs_keep_half_of_the_files_open_that_a_process_may_have(
    monkeypatch: pytest.MonkeyPatch, allowed: int, kept_open: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (allowed, allowed))
    assert descriptors.shares(50, 1).files == kept_open


@pytest.mark.limit("broker.starting.LEAST_DESCRIPTORS")
@pytest.mark.parametrize("allowed", [descriptors.LEAST_DESCRIPTORS, 1_000, 4_096, 100_000])
def test_clients_leave_descriptors_for_files_and_everything_else(
    monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (allowed, allowed))
    for backlogs, locks in ((50, 1), (1_000, 3)):
        shares = descriptors.shares(backlogs, locks)
        assert shares.connections >= 60
        left = allowed - sum(shares)
        assert left >= descriptors.OTHER_DESCRIPTORS + min(backlogs, allowed // 8) + locks


class Limit:
    """The system's limit of descriptors for a process."""

    def __init__(self, soft: int, hard: int, most: int = resource.RLIM_INFINITY) -> None:
        self.soft, self.hard, self.most = soft, hard, most

    def get(self, which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return self.soft, self.hard

    def set(self, which: int, limits: tuple[int, int]) -> None:
        assert which == resource.RLIMIT_NOFILE
        if self.most != resource.RLIM_INFINITY and limits[0] > self.most:
            raise OSError(errno.EINVAL, "Invalid argument")
        self.soft, self.hard = limits


@pytest.mark.limit("broker.starting.LEAST_DESCRIPTORS")
@pytest.mark.parametrize(
    ("limit", "soft"),
    [
        (Limit(1_024, 4_096), 4_096),
        (Limit(1_024, 1_048_576), descriptors.WANTED_DESCRIPTORS),
        (Limit(256, resource.RLIM_INFINITY), descriptors.WANTED_DESCRIPTORS),
        (Limit(256, resource.RLIM_INFINITY, most=10_240), 6_250),
        (Limit(600, resource.RLIM_INFINITY, most=700), 600),
        (Limit(200_000, 1_048_576), 200_000),
        (Limit(resource.RLIM_INFINITY, resource.RLIM_INFINITY), resource.RLIM_INFINITY),
        (Limit(511, 511), None),
    ],
)
def test_a_process_takes_the_descriptors_that_it_may_have(
    monkeypatch: pytest.MonkeyPatch, limit: Limit, soft: int | None
) -> None:
    hard = limit.hard
    monkeypatch.setattr(resource, "getrlimit", limit.get)
    monkeypatch.setattr(resource, "setrlimit", limit.set)
    if soft is None:
        with pytest.raises(
            StartError, match="511 files and connections open, but a broker needs at least 512"
        ):
            descriptors.raise_limit()
        return
    descriptors.raise_limit()
    assert limit.get(resource.RLIMIT_NOFILE) == (soft, hard)


@pytest.mark.parametrize(
    ("allowed", "kept_open"),
    [
        (512, 64),
        (1_024, 128),
        (100_000, MOST_RETIRED_FILES),
        (resource.RLIM_INFINITY, MOST_RETIRED_FILES),
    ],
)
def test_unused_files_take_at_most_an_eighth_of_the_processs_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int, kept_open: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (allowed, allowed))

    limits: list[int] = []

    class Told(DiskFiles):
        def limit_retired_files(self, limit: int) -> None:
            limits.append(limit)

    @in_loop
    async def run() -> None:
        await (await begin(configured(tmp_path), Environment.of_this_machine(ManualClock(), Told()))).stop()

    run()
    assert limits == [kept_open]


@pytest.mark.limit("broker.replicas.fetch_sessions.MAX_SESSION_ID")
@pytest.mark.parametrize("highest", [True, False])
def test_a_fetch_sessions_id_is_a_positive_int32(highest: bool) -> None:
    sessions = FetchSessions(SHARDS, lambda low, high: high - 1 if highest else low)
    ids = set()
    for _ in range(SHARDS):
        begins = sessions.begin(
            session_id=0,
            session_epoch=0,
            by_id=False,
            wanted=[("t", [FetchPartition(partition=0)])],
            forgotten=[],
            now_ms=lambda: 0,
        )
        ids.add(at_once(sessions.finish(at_once(begins), [], lambda: 0))[0])
    assert len(ids) == SHARDS
    assert all(0 < session_id <= MAX_SESSION_ID for session_id in ids)
