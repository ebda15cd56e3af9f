"""A partition of two replicas, one of which is here, and requests to it with their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.controller.image import UNASSIGNED, ClusterImage
from broker.handlers.list_offsets import LATEST_TIMESTAMP
from broker.replicas.in_sync_replicas import IsrChanges, Replication
from broker.replicas.leader import Leader
from broker.server import Server
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.records.batch import build_batch
from tests.node.transactional import ask
from tests.support.whole_server import started

ME, OTHER = 1, 2
TOPIC_ID = b"T" * 16

NOT_LEADER = Error.NOT_LEADER_OR_FOLLOWER
LONG_MS = 60_000


def without_a_controller() -> Replication:
    """Return the replication of a leader whose replicas' brokers are unknown, so that only the metadata changes the
    ISR."""

    def alter(*_: object) -> None:
        raise AssertionError("nobody may come in")

    return Replication(
        ClusterImage(),
        now_ms=lambda: 0,
        max_lag_ms=lambda: 30_000,
        own_epoch=lambda: 0,
        alter=alter,
        changes=IsrChanges(),
    )


async def replicated(folder: Path, *settings: str) -> Server:
    """Start a node that leads `t`-0, of which another node has a replica in sync."""
    node = await started(folder, *settings)
    partition = PartitionRecord(
        partition_id=0,
        topic_id=TOPIC_ID,
        replicas=[ME, OTHER],
        isr=[ME, OTHER],
        leader=ME,
        leader_epoch=0,
        partition_epoch=0,
        directories=[UNASSIGNED, UNASSIGNED],
    )
    node.metadata.append([TopicRecord(name="t", topic_id=TOPIC_ID), partition])
    return node


def change(node: Server, **fields: Any) -> None:
    """Change the partition in the metadata log, as the controller would."""
    node.metadata.append([PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, **fields)])


def leader_of(node: Server) -> Leader:
    return node.partitions.get("t", 0).leader()


def produce(node: Server, *, acks: int = -1, version: int = 10, timeout_ms: int = LONG_MS) -> Any:
    batch = memoryview(build_batch([(node.clock.now_ms(), None, b"x", ())]))
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    return ask(node, ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data]), version)


def produced(response: Any) -> Any:
    [topic] = response.responses
    [answer] = topic.partition_responses
    return answer


def fetch(
    node: Server,
    offset: int,
    *,
    version: int = 12,
    replica_id: int = -1,
    replica_epoch: int = -1,
    epoch: int = -1,
    last_fetched_epoch: int = -1,
    max_wait_ms: int = 0,
) -> Any:
    partition = FetchPartition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=1_000_000,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    request = FetchRequest(
        replica_id=replica_id if version < 15 else -1,
        replica_state=None
        if version < 15
        else ReplicaState(replica_id=replica_id, replica_epoch=replica_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1_000_000,
        isolation_level=0,
        topics=[FetchTopic(topic="t", topic_id=TOPIC_ID, partitions=[partition])],
    )
    return ask(node, request, version)


def fetched(response: Any) -> Any:
    [topic] = response.responses
    [answer] = topic.partitions
    return answer


def list_offsets(
    node: Server, timestamp: int, *, version: int = 7, epoch: int = -1, replica_id: int = -1
) -> Any:
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    topics = [ListOffsetsTopic(name="t", partitions=[partition])]
    return ask(node, ListOffsetsRequest(replica_id=replica_id, isolation_level=0, topics=topics), version)


def listed(response: Any) -> Any:
    [topic] = response.topics
    [answer] = topic.partitions
    return answer


def errors(node: Server, epoch: int = -1) -> dict[str, Error]:
    """Return the errors that answer the requests that only a leader may answer."""
    ends = ask(
        node,
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[
                OffsetForLeaderTopic(
                    topic="t",
                    partitions=[
                        OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
                    ],
                )
            ],
        ),
        4,
    )
    found = {
        "ListOffsets": listed(list_offsets(node, LATEST_TIMESTAMP, epoch=epoch)).error_code,
        "OffsetForLeaderEpoch": ends.topics[0].partitions[0].error_code,
        "Fetch v10": fetched(fetch(node, 0, version=10, epoch=epoch)).error_code,
    }
    if epoch == -1:
        deleted = ask(
            node,
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)]
                    )
                ],
                timeout_ms=LONG_MS,
            ),
            2,
        )
        found["DeleteRecords"] = deleted.topics[0].partitions[0].error_code
        found["Produce"] = produced(produce(node, acks=1)).error_code
    return {name: Error(code) for name, code in found.items()}
