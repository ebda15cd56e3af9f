"""Brokers whose client listener refuses the requests that only brokers send to each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

import barnabas
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from protocol.messages.metadata import (
    DescribeClusterRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from protocol.messages.share_state import ReadPartition, ReadShareGroupStateRequest, ReadStateData
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.process.clusters import create
from tests.support import waiting
from tests.support.wire import Client

PATIENCE_S = 60.0
NOBODY = 77
"""An id that no broker has."""
OF_SHARES = 2
CLUSTER_ACTION = 1 << 9


@pytest.fixture(scope="module")
def cluster() -> Iterator[barnabas.Cluster]:
    config = {"listener.name.plaintext.barnabas.inter.broker.requests": False}
    with barnabas.Cluster(brokers=3, config=config) as cluster:
        create(cluster, "t")
        yield cluster


@pytest.fixture
def clients_connection(cluster: barnabas.Cluster) -> Iterator[Client]:
    with Client.of(cluster.leader_of("t", 0).bootstrap) as client:
        yield client


@pytest.fixture
def brokers_connection(cluster: barnabas.Cluster) -> Iterator[Client]:
    host, port = cluster.leader_of("t", 0).address
    with Client.connect(port, host) as client:
        yield client


def fetched(client: Client, *, replica_id: int) -> Error:
    (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12).topics
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id, replica_epoch=-1),
        max_wait_ms=0,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic_id=topic.topic_id,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
        ],
    )
    ((found,),) = (each.partitions for each in client.ask(request, 17).responses)
    return Error(found.error_code)


def verified(client: Client) -> Error:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=1,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return Error(client.ask(AddPartitionsToTxnRequest(transactions=[transaction]), 5).error_code)


def marked(client: Client) -> Error:
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    marker = WritableTxnMarker(producer_id=77, producer_epoch=0, transaction_result=False, topics=topics)
    (answer,) = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    return Error(answer.topics[0].partitions[0].error_code)


def share_state_read(client: Client) -> Error:
    topics = [
        ReadStateData(topic_id=bytes(15) + b"1", partitions=[ReadPartition(partition=0, leader_epoch=0)])
    ]
    ((found,),) = (
        each.partitions
        for each in client.ask(ReadShareGroupStateRequest(group_id="g", topics=topics), 0).results
    )
    return Error(found.error_code)


def share_coordinator_found(client: Client) -> Error:
    request = FindCoordinatorRequest(key_type=OF_SHARES, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAQ:0"])
    (found,) = client.ask(request, 6).coordinators
    return Error(found.error_code)


def test_clients_cant_speak_as_brokers(clients_connection: Client) -> None:
    assert fetched(clients_connection, replica_id=2) == Error.TOPIC_AUTHORIZATION_FAILED
    assert fetched(clients_connection, replica_id=NOBODY) == Error.TOPIC_AUTHORIZATION_FAILED
    assert verified(clients_connection) == Error.CLUSTER_AUTHORIZATION_FAILED
    assert marked(clients_connection) == Error.CLUSTER_AUTHORIZATION_FAILED
    assert share_state_read(clients_connection) == Error.CLUSTER_AUTHORIZATION_FAILED
    assert share_coordinator_found(clients_connection) == Error.CLUSTER_AUTHORIZATION_FAILED
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert not clients_connection.ask(request, 1).cluster_authorized_operations & CLUSTER_ACTION


def test_brokers_can_at_their_listener(brokers_connection: Client) -> None:
    assert fetched(brokers_connection, replica_id=NOBODY) == Error.NOT_LEADER_OR_FOLLOWER
    assert verified(brokers_connection) == Error.NONE
    assert marked(brokers_connection) == Error.NONE
    waiting.until(
        lambda: share_coordinator_found(brokers_connection) == Error.NONE, "their topic is made", PATIENCE_S
    )
    assert share_state_read(brokers_connection) in (
        Error.INVALID_REQUEST,
        Error.NOT_COORDINATOR,
    )  # there is no coordinator
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert brokers_connection.ask(request, 1).cluster_authorized_operations & CLUSTER_ACTION


def test_the_cluster_works(cluster: barnabas.Cluster, clients_connection: Client) -> None:
    """Brokers replicate, verify transactions with coordinators and write markers through their own listener."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "works", "acks": "all"})
    create(cluster, "led-by-all", partitions=3)
    leaders = {cluster.leader_of("led-by-all", index).node_id for index in range(3)}
    assert leaders == {1, 2, 3}  # whichever broker coordinates, two leaders have to ask another broker
    producer.init_transactions(PATIENCE_S)
    for _ in range(3):
        producer.begin_transaction()
        for index in range(3):
            producer.produce("led-by-all", b"a record", partition=index)
        producer.commit_transaction(PATIENCE_S)
    cluster.wait_until_in_sync(PATIENCE_S)
    assert fetched(clients_connection, replica_id=-1) == Error.NONE
