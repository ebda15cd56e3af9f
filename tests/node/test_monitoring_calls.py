"""The calls of other people's monitors are answered, in the versions that they use.

`monitoring_calls.json` has the calls of kafka_exporter and kminion, counted while each watched this broker. It also has
kafka-ui's calls that only read, by its source and the versions of its client.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    DescribeLogDirsRequest,
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from protocol.messages.configs import (
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups import (
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from protocol.messages.groups_consumer import ConsumerGroupDescribeRequest
from protocol.messages.metadata import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    FindCoordinatorRequest,
    MetadataRequest,
)
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.security import DescribeAclsRequest
from protocol.messages.transactions import DescribeProducersRequest, DescribeProducersTopic
from protocol.wire.schema import error_codes
from tests.node.transactional import Producer, coordinating
from tests.support.straight import Straight
from tests.support.wire import Client

CALLS = json.loads((Path(__file__).parents[1] / "data" / "monitoring_calls.json").read_text())
ANY, LATEST = 1, -1


def list_offsets(timestamp: int) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in (0, 1)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])


def offset_fetch(version: int) -> OffsetFetchRequest:
    if version < 8:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        return OffsetFetchRequest(group_id="g", topics=topics if version < 7 else None)
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])


def fetch(version: int) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="__consumer_offsets", partitions=[asked])])


REQUESTS: dict[str, Callable[[int], Any]] = {
    "ApiVersions": lambda version: ApiVersionsRequest(client_software_name="m", client_software_version="1"),
    "Metadata": lambda version: MetadataRequest(topics=None, allow_auto_topic_creation=False),
    "ListOffsets": lambda version: list_offsets(LATEST),
    "ListGroups": lambda version: ListGroupsRequest(),
    "DescribeGroups": lambda version: DescribeGroupsRequest(groups=["g"]),
    "OffsetFetch": offset_fetch,
    "DescribeLogDirs": lambda version: DescribeLogDirsRequest(topics=None),
    "FindCoordinator": lambda version: (
        FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g"])
    ),
    "DescribeConfigs": lambda version: DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=2, resource_name="t"),
            DescribeConfigsResource(resource_type=4, resource_name="1"),
        ]
    ),
    "Fetch": fetch,
    "DescribeCluster": lambda version: DescribeClusterRequest(include_cluster_authorized_operations=True),
    "DescribeTopicPartitions": lambda version: DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopic(name="t")]
    ),
    "ConsumerGroupDescribe": lambda version: ConsumerGroupDescribeRequest(group_ids=["g"]),
    "DescribeAcls": lambda version: DescribeAclsRequest(
        resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY
    ),
    "DescribeClientQuotas": lambda version: DescribeClientQuotasRequest(),
    "DescribeQuorum": lambda version: DescribeQuorumRequest(
        topics=[
            DescribeQuorumTopic(
                topic_name="__cluster_metadata", partitions=[DescribeQuorumPartition(partition_index=0)]
            )
        ]
    ),
    "DescribeProducers": lambda version: DescribeProducersRequest(
        topics=[DescribeProducersTopic(name="t", partition_indexes=[0])]
    ),
}

OF_A_CLASSIC_GROUP = {"ConsumerGroupDescribe": Error.GROUP_ID_NOT_FOUND}
"""Kafka answers so about a group that isn't of this protocol. The client then asks with DescribeGroups."""


@pytest.mark.parametrize("monitor", CALLS)
async def test_each_call_of_a_monitor_is_answered(tmp_path: Path, monitor: str) -> None:
    node = await coordinating(
        tmp_path,
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    )
    producer = Producer(node).begin()
    producer.send()
    producer.add_offsets()
    producer.commit_offsets(1)
    producer.end()
    client = Client(Straight(node))
    refused = {}
    for name, version in CALLS[monitor].items():
        [api] = [api for api in APIS.values() if api.name == name]
        assert api.min_version <= version <= api.max_version, name
        answer = await client.answer(REQUESTS[name](version), version)
        codes = {*error_codes(answer)} - {0, OF_A_CLASSIC_GROUP.get(name, 0)}
        if codes:
            refused[name, version] = [Error(code) for code in codes]
    assert refused == {}
