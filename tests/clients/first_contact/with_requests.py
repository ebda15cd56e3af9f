"""First contact by raw requests. Each is sent right after the previous answer, as no client does."""

from __future__ import annotations

from typing import Any

from protocol.errors import Error
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.groups import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.groups_share import ShareGroupHeartbeatRequest
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest, Subtopology, Topology
from protocol.messages.metadata import (
    DescribeClusterRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest
from protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
)
from tests.support.record_bytes import batch, record
from tests.support.wire import Client

GROUP, TRANSACTION = 0, 1


class Connections:
    """To each node of the cluster as it is told of them: one, from the first time that it is asked."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = Client.of(bootstrap.split(",")[-1], client_id="raw")
        self._nodes: dict[int, Client] = {}

    def ask(self, request: Any, version: int, *, of: Client | None = None) -> Any:
        return (of or self._bootstrap).ask(request, version)

    def metadata(self, topic: str) -> tuple[bytes, dict[int, Client]]:
        """The topic's id, and the leaders of its partitions."""
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
        while (answer := self.ask(asked, 12)).topics[0].error_code == Error.LEADER_NOT_AVAILABLE:
            pass
        addresses = {node.node_id: (node.host, node.port) for node in answer.brokers}
        [found] = answer.topics
        assert found.error_code == Error.NONE, found
        leaders = {each.partition_index: each.leader_id for each in found.partitions}
        clients = {index: self._node(leader, *addresses[leader]) for index, leader in leaders.items()}
        for leader in {*clients.values()}:  # a broker may learn of a new topic a moment later, as in Kafka
            every = MetadataRequest(topics=None)
            while topic not in {each.name for each in self.ask(every, 12, of=leader).topics}:
                pass
        return found.topic_id, clients

    def coordinator(self, key_type: int, key: str) -> Client:
        answer = self.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
        [found] = answer.coordinators
        assert found.error_code == Error.NONE, found
        return self._node(found.node_id, found.host, found.port)

    def _node(self, node_id: int, host: str, port: int) -> Client:
        if node_id not in self._nodes:
            self._nodes[node_id] = Client.connect(port, host, client_id="raw")
        return self._nodes[node_id]

    def close(self) -> None:
        for client in (self._bootstrap, *self._nodes.values()):
            client.close()


def first_contact(bootstrap: str, name: str) -> None:
    """All firsts, with topics, groups and ids of this name."""
    cluster = Connections(bootstrap)
    try:
        topic = f"{name}-created"
        topic_id, leaders = cluster.metadata(topic)
        produce(cluster, topic, leaders[0])
        for group, request, version in members(name, topic):
            coordinator = cluster.coordinator(GROUP, group)
            cluster.ask(request, version, of=coordinator)
        offsets = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"{name}-unknown")])
        cluster.ask(offsets, 8, of=cluster.coordinator(GROUP, f"{name}-unknown"))
        share(cluster, name, topic_id, leaders[0])
        transact(cluster, name, topic, leaders[0])
        administer(cluster, name)
    finally:
        cluster.close()


def produce(cluster: Connections, topic: str, leader: Client) -> None:
    data = PartitionProduceData(index=0, records=memoryview(bytes(batch([record(0, value=b"v")]))))
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    cluster.ask(request, 8, of=leader)


def members(name: str, topic: str) -> list[tuple[str, Any, int]]:
    """The first request of a member of each kind of group but a share group, with its version."""
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    timeout_ms = 6_000
    return [
        (
            f"{name}-classic",
            JoinGroupRequest(
                group_id=f"{name}-classic",
                session_timeout_ms=timeout_ms,
                rebalance_timeout_ms=timeout_ms,
                protocol_type="consumer",
                protocols=[protocol],
            ),
            3,
        ),
        (
            f"{name}-consumer",
            ConsumerGroupHeartbeatRequest(
                group_id=f"{name}-consumer",
                member_id="m",
                rebalance_timeout_ms=timeout_ms,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            ),
            1,
        ),
        (
            f"{name}-streams",
            StreamsGroupHeartbeatRequest(
                group_id=f"{name}-streams",
                member_id="m",
                rebalance_timeout_ms=timeout_ms,
                topology=Topology(
                    epoch=0, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]
                ),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id="p",
                client_tags=[],
            ),
            0,
        ),
    ]


MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def share(cluster: Connections, name: str, topic_id: bytes, leader: Client) -> None:
    """The share partition's state is read before the first answer. As in Kafka it has to be initialized first, which
    a client knows by its assignment."""
    group = f"{name}-share"
    coordinator = cluster.coordinator(GROUP, group)
    epoch, assigned = 0, None
    while not (assigned and assigned.topic_partitions):
        heartbeat = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=MEMBER,
            member_epoch=epoch,
            subscribed_topic_names=[f"{name}-created"] if epoch == 0 else None,
        )
        answer = cluster.ask(heartbeat, 1, of=coordinator)
        assert answer.error_code == Error.NONE, answer
        epoch, assigned = answer.member_epoch, answer.assignment or assigned
    wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition_index=0)])
    request = ShareFetchRequest(
        group_id=group,
        member_id=MEMBER,
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1_000_000,
        max_records=10,
        batch_size=10,
        topics=[wanted],
    )
    cluster.ask(request, 1, of=leader)


def transact(cluster: Connections, name: str, topic: str, leader: Client) -> None:
    coordinator = cluster.coordinator(TRANSACTION, name)
    begun = cluster.ask(
        InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4, of=coordinator
    )
    assert begun.error_code == Error.NONE, begun
    producer = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    cluster.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        ),
        3,
        of=coordinator,
    )
    cluster.ask(EndTxnRequest(transactional_id=name, committed=True, **producer), 3, of=coordinator)
    cluster.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0, of=coordinator)
    cluster.ask(ListTransactionsRequest(), 1)


def administer(cluster: Connections, name: str) -> None:
    topic = f"{name}-administered"
    wanted = CreatableTopic(name=topic, num_partitions=3, replication_factor=-1)
    cluster.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
    more = CreatePartitionsTopic(name=topic, count=5)
    cluster.ask(CreatePartitionsRequest(topics=[more], timeout_ms=30_000), 3)
    _, leaders = cluster.metadata(topic)
    for index, leader in leaders.items():
        partition = ListOffsetsPartition(partition_index=index, timestamp=-1)
        asked = ListOffsetsTopic(name=topic, partitions=[partition])
        cluster.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7, of=leader)
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic)
    cluster.ask(DescribeConfigsRequest(resources=[resource]), 4)
    cluster.ask(ListGroupsRequest(), 5)
    group = f"{name}-classic"
    cluster.ask(DescribeGroupsRequest(groups=[group]), 5, of=cluster.coordinator(GROUP, group))
    cluster.ask(DescribeClusterRequest(), 0)
    cluster.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000), 6)
