"""The leader of the metadata log describes its quorum: itself, and the nodes that fetch from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.controller.metadata_log import MetadataLog
from broker.controller.quorum_requests import SILENT_MS, QuorumOfOne, ReplicaProgress, describe_quorum
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    QuorumListener,
    QuorumPartition,
    QuorumReplica,
)
from protocol.messages.fetch import FetchRequest
from protocol.messages.raft import Endpoint, Voter, VotersRecord
from protocol.waiting import at_once
from protocol.wire.codec import decode, encode
from protocol.wire.schema import ZERO_UUID
from tests.node.metadata_logs import begin, topic
from tests.node.observers import Controller, catch_up, observer_in

NODE = 1
NOW_MS = 1_000_000
METADATA = "__cluster_metadata"
CONFIGURED = QuorumListener(name="CONTROLLER", host="configured.example", port=9093)
A, B = b"a" * 16, b"b" * 16
VERSIONS = [0, 1, 2]


def request(*topics: tuple[str, list[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name=name,
                partitions=[DescribeQuorumPartition(partition_index=index) for index in partitions],
            )
            for name, partitions in topics
        ]
    )


def answer(
    metadata: MetadataLog,
    replicas: dict[tuple[int, bytes], ReplicaProgress] | None = None,
    version: int = 2,
    asked: DescribeQuorumRequest | None = None,
) -> DescribeQuorumResponse:
    """Describe the quorum. The answer is encoded and decoded, as over the wire."""
    quorum = QuorumOfOne(NODE, metadata, replicas or {}, [CONFIGURED])
    said = at_once(describe_quorum(quorum, asked or request((METADATA, [0])), version, NOW_MS))
    return decode(DescribeQuorumResponse, version, encode(said, version))


def partition_of(response: DescribeQuorumResponse) -> QuorumPartition:
    (found,) = response.topics
    assert found.topic_name == METADATA
    (partition,) = found.partitions
    return partition


def replica(
    fetched_ms: int = NOW_MS - 7, caught_up_ms: int = NOW_MS - 9, end_offset: int = 5
) -> ReplicaProgress:
    return ReplicaProgress(end_offset, fetched_ms, caught_up_ms, leader_end_offset=6)


def with_voters(metadata: MetadataLog, *voter_ids: int) -> MetadataLog:
    """Give the quorum these voters, as a log of kraft.version 1 names them."""
    endpoints = [
        Endpoint(name="RAFT", host="named.example", port=29093),
        Endpoint(name="B", host="b", port=1),
    ]
    metadata.quorum.kraft_version = 1
    metadata.quorum.voters = VotersRecord(
        voters=[Voter(voter_id=each, voter_directory_id=A, endpoints=endpoints) for each in voter_ids]
    )
    return metadata


@pytest.mark.parametrize("version", VERSIONS)
def test_the_leader_is_its_only_voter_and_always_caught_up(tmp_path: Path, version: int) -> None:
    metadata = begin(tmp_path / "log")
    metadata.append(topic("a"))
    response = answer(metadata, version=version)
    assert response.error_code == Error.NONE
    partition = partition_of(response)
    end_offset = metadata.log.log_end_offset
    assert (partition.error_code, partition.partition_index) == (Error.NONE, 0)
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (NODE, 1, end_offset)
    now_ms = NOW_MS if version > 0 else -1
    assert partition.current_voters == [
        QuorumReplica(
            replica_id=NODE,
            log_end_offset=end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
    ]
    assert partition.observers == []


@pytest.mark.parametrize("version", VERSIONS)
def test_directories_and_listeners_are_described_from_version_2_on(tmp_path: Path, version: int) -> None:
    response = answer(with_voters(begin(tmp_path / "log"), NODE), {(2, B): replica()}, version)
    partition = partition_of(response)
    ids = [each.replica_directory_id for each in (*partition.current_voters, *partition.observers)]
    assert ids == ([A, B] if version == 2 else [ZERO_UUID, ZERO_UUID])
    told = [
        (node.node_id, [(each.name, each.host, each.port) for each in node.listeners])
        for node in response.nodes
    ]
    named = (NODE, [("RAFT", "named.example", 29093), ("B", "b", 1)])
    assert told == ([named] if version == 2 else [])


@pytest.mark.parametrize("voter_ids", [[], [8]])
def test_a_voter_that_the_log_does_not_name_is_where_it_is_configured(
    tmp_path: Path, voter_ids: list[int]
) -> None:
    metadata = begin(tmp_path / "log")
    response = answer(with_voters(metadata, *voter_ids) if voter_ids else metadata)
    assert [(node.node_id, node.listeners) for node in response.nodes] == [(NODE, [CONFIGURED])]
    (voter,) = partition_of(response).current_voters
    assert (voter.replica_id, voter.replica_directory_id) == (NODE, ZERO_UUID)


def test_observers_are_described_with_their_offsets_and_times(tmp_path: Path) -> None:
    replicas = {
        (2, A): replica(NOW_MS - 3, NOW_MS - 4, 17),
        (3, ZERO_UUID): replica(NOW_MS, -1, 0),  # it was never caught up, and says no directory
        (2, B): replica(NOW_MS - 1, NOW_MS - 2, 18),  # another disk of the same node
    }
    found = partition_of(answer(begin(tmp_path / "log"), replicas)).observers
    assert [
        (
            each.replica_id,
            each.replica_directory_id,
            each.log_end_offset,
            each.last_fetch_timestamp,
            each.last_caught_up_timestamp,
        )
        for each in found
    ] == [
        (2, A, 17, NOW_MS - 3, NOW_MS - 4),
        (3, ZERO_UUID, 0, NOW_MS, -1),
        (2, B, 18, NOW_MS - 1, NOW_MS - 2),
    ]


def test_long_silent_nodes_consumers_and_the_leader_are_no_observers(tmp_path: Path) -> None:
    replicas = {
        (2, A): replica(NOW_MS - SILENT_MS),
        (3, A): replica(NOW_MS - SILENT_MS + 1),
        (-1, A): replica(),
        (NODE, B): replica(),
        (0, A): replica(),
    }
    found = partition_of(answer(begin(tmp_path / "log"), replicas)).observers
    assert [each.replica_id for each in found] == [3, 0]
    assert len(replicas) == 5


def test_an_observer_that_fetches_is_described_and_a_new_leader_starts_again(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader")
    controller = Controller(metadata)
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    asked = observer.request()
    assert isinstance(asked, FetchRequest)
    controller.requests.fetch(asked, NOW_MS)
    (found,) = partition_of(answer(metadata, controller.requests.replicas)).observers
    end_offset = metadata.log.log_end_offset
    assert (found.replica_id, found.log_end_offset, found.last_caught_up_timestamp) == (7, end_offset, NOW_MS)
    metadata.append(topic("a"))
    controller.requests.fetch(asked, NOW_MS + 9)
    (found,) = partition_of(answer(metadata, controller.requests.replicas)).observers
    assert (found.log_end_offset, found.last_fetch_timestamp) == (end_offset, NOW_MS + 9)
    assert found.last_caught_up_timestamp == NOW_MS


def test_the_high_watermark_is_not_known_before_something_of_the_epoch_is_committed(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "log")
    metadata.append(topic("a"))
    committed = metadata.log.log_end_offset
    metadata.replicate = lambda end_offset: None
    metadata.become_leader(NODE)
    partition = partition_of(answer(metadata))
    assert (partition.leader_epoch, partition.high_watermark) == (2, -1)
    assert partition.current_voters[0].log_end_offset == metadata.log.log_end_offset > committed
    metadata.commit(committed + 1)
    assert partition_of(answer(metadata)).high_watermark == committed + 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_that_does_not_lead_says_so_for_the_partition(tmp_path: Path, version: int) -> None:
    metadata = begin(tmp_path / "log")
    metadata.resign()
    response = answer(metadata, {(2, A): replica()}, version)
    partition = partition_of(response)
    assert (response.error_code, partition.error_code) == (Error.NONE, Error.NOT_LEADER_OR_FOLLOWER)
    assert (partition.current_voters, partition.observers, response.nodes) == ([], [], [])
    assert bool(partition.error_message) == (version == 2)


@pytest.mark.parametrize(
    "topics",
    [
        [],
        [(METADATA, [])],
        [(METADATA, [1])],
        [("a", [0])],
        [(METADATA, [0, 0])],
        [(METADATA, [0]), ("a", [0])],
        [("a", [0]), ("b", [2, 1])],
    ],
)
@pytest.mark.parametrize("leads", [True, False])
def test_any_partition_but_the_metadatas_is_unknown_whoever_asks(
    tmp_path: Path, topics: list[tuple[str, list[int]]], leads: bool
) -> None:
    metadata = begin(tmp_path / "log")
    if not leads:
        metadata.resign()
    response = answer(metadata, asked=request(*topics))
    assert response.error_code == Error.NONE
    assert [
        (each.topic_name, [(found.partition_index, found.error_code) for found in each.partitions])
        for each in response.topics
    ] == [
        (name, [(index, Error.UNKNOWN_TOPIC_OR_PARTITION) for index in partitions])
        for name, partitions in topics
    ]


def test_others_are_served_while_many_observers_or_partitions_are_described(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "log")
    replicas = {(node_id, A): replica() for node_id in range(2, 1_300)}
    quorum = QuorumOfOne(NODE, metadata, replicas, [CONFIGURED])
    for asked in (request((METADATA, [0])), request(("a", [*range(1_298)])), request(*[("a", [])] * 1_298)):
        steps = describe_quorum(quorum, asked, 2, NOW_MS)
        assert steps.send(None) is steps.send(None) is None
        replicas.pop((2, A), None)  # a change meanwhile does no harm
        with pytest.raises(StopIteration):
            steps.send(None)
