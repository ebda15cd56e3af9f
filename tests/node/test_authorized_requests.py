"""A client that may not do what it asks for gets Kafka's answer, and nothing is done or disclosed."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker.handlers import (
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_quorum,
    describe_topic_partitions,
    describe_user_scram_credentials,
    find_coordinator,
    metadata,
)
from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from broker.server import Server
from protocol.errors import Error
from protocol.messages.cluster_admin import DescribeQuorumRequest
from protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterEntryData,
    DescribeClientQuotasRequest,
    EntityData,
)
from protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from protocol.messages.security import (
    AclCreation,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    UserName,
)
from protocol.messages.topics import CreatableTopic
from tests.support.denying import Asked, DenyingAuthorizer
from tests.support.topics import TopicsNow
from tests.support.whole_server import handled, started

CLUSTER, TOPIC, GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
DENIED_CLUSTER, DENIED_TOPIC = Error.CLUSTER_AUTHORIZATION_FAILED, Error.TOPIC_AUTHORIZATION_FAILED


class Context:
    def __init__(self, api_version: int) -> None:
        self.api_version = api_version
        self.listener_name = "PLAINTEXT"
        self.client_id = "client"


async def guarded(folder: Path, *topics: str) -> tuple[Server, DenyingAuthorizer]:
    node = await started(folder)
    authorizer = DenyingAuthorizer()
    node.authorizer = authorizer
    if topics:
        wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in topics]
        TopicsNow(node).create(wanted)
    return node, authorizer


def ask(node: Server, module: ModuleType, version: int, request: Any) -> Any:
    return handled(node, module, Context(version), request)  # type: ignore[arg-type]


def topics_of(response: Any) -> list[tuple[int, str | None]]:
    return [(topic.error_code, topic.name) for topic in response.topics]


@pytest.mark.parametrize(
    ("module", "operation", "version", "request_"),
    [
        (
            describe_acls,
            Operation.DESCRIBE,
            3,
            DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1),
        ),
        (
            create_acls,
            Operation.ALTER,
            3,
            CreateAclsRequest(creations=[AclCreation(resource_type=2, operation=3, permission_type=3)]),
        ),
        (
            delete_acls,
            Operation.ALTER,
            3,
            DeleteAclsRequest(
                filters=[DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)]
            ),
        ),
        (describe_quorum, Operation.DESCRIBE, 2, DescribeQuorumRequest()),
        (describe_client_quotas, Operation.DESCRIBE_CONFIGS, 1, DescribeClientQuotasRequest()),
        (
            alter_client_quotas,
            Operation.ALTER_CONFIGS,
            1,
            AlterClientQuotasRequest(
                entries=[AlterEntryData(entity=[EntityData(entity_type="user", entity_name="u")])]
            ),
        ),
        (
            alter_user_scram_credentials,
            Operation.ALTER,
            0,
            AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="u", mechanism=1)]),
        ),
        (
            describe_user_scram_credentials,
            Operation.DESCRIBE,
            0,
            DescribeUserScramCredentialsRequest(users=[UserName(name="u")]),
        ),
    ],
)
async def test_requests_about_the_cluster_need_its_permission(
    tmp_path: Path, module: ModuleType, operation: Operation, version: int, request_: Any
) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(operation, CLUSTER, CLUSTER_NAME)
    before = node.metadata.next_offset
    response = ask(node, module, version, request_)
    assert authorizer.asked == [Asked(operation, CLUSTER, CLUSTER_NAME)]
    results = [
        each.error_code
        for name in ("results", "filter_results", "entries")
        for each in getattr(response, name, None) or ()
    ]
    assert {getattr(response, "error_code", DENIED_CLUSTER), *results} == {DENIED_CLUSTER}
    assert node.metadata.next_offset == before


async def test_listing_all_topics_shows_those_that_the_client_may_describe(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "mine", "secret")
    authorizer.deny(Operation.DESCRIBE, TOPIC, "secret")
    response = ask(node, metadata, 12, MetadataRequest(topics=None))
    assert topics_of(response) == [(Error.NONE, "mine")]


async def test_a_name_that_may_not_be_described_does_not_reveal_whether_it_exists(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "mine", "secret")
    authorizer.deny(Operation.DESCRIBE, TOPIC, "secret").deny(Operation.DESCRIBE, TOPIC, "absent")
    asked = [MetadataRequestTopic(name=name) for name in ("secret", "mine", "absent")]
    request = MetadataRequest(
        topics=asked, allow_auto_topic_creation=True, include_topic_authorized_operations=True
    )
    response = ask(node, metadata, 12, request)
    assert topics_of(response) == [(Error.NONE, "mine"), (DENIED_TOPIC, "secret"), (DENIED_TOPIC, "absent")]
    assert [topic.topic_id == bytes(16) for topic in response.topics] == [False, True, True]
    shown = [topic.topic_authorized_operations for topic in response.topics]
    assert shown == [0b1101_1111_1000, -(2**31), -(2**31)]
    assert "absent" not in node.metadata.image.topics


async def test_an_id_whose_topic_may_not_be_described_is_answered_without_its_name(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "secret")
    authorizer.deny(Operation.DESCRIBE, TOPIC, "secret")
    topic_id = node.metadata.image.topics["secret"].topic_id
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    [topic] = ask(node, metadata, 12, request).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (DENIED_TOPIC, None, topic_id)


async def test_a_topic_that_may_not_be_created_is_not(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.CREATE, CLUSTER, CLUSTER_NAME).deny(Operation.CREATE, TOPIC, "other")
    asked = [MetadataRequestTopic(name=name) for name in ("other", "mine")]
    response = ask(node, metadata, 12, MetadataRequest(topics=asked, allow_auto_topic_creation=True))
    assert topics_of(response) == [(Error.LEADER_NOT_AVAILABLE, "mine"), (DENIED_TOPIC, "other")]
    assert [*node.metadata.image.topics] == ["mine"]
    assert authorizer.asked == [
        Asked(Operation.DESCRIBE, TOPIC, "other"),
        Asked(Operation.DESCRIBE, TOPIC, "mine"),
        Asked(Operation.CREATE, CLUSTER, CLUSTER_NAME),
        Asked(Operation.CREATE, TOPIC, "other"),
        Asked(Operation.CREATE, TOPIC, "mine"),
    ]


@pytest.mark.parametrize("denied", [False, True])
async def test_the_clusters_operations_are_shown_to_users_who_may_describe_it(
    tmp_path: Path, denied: bool
) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.ALTER, CLUSTER)
    if denied:
        authorizer.deny(Operation.DESCRIBE, CLUSTER)
    expected = 0 if denied else 0b1_1111_0010_0000
    request = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    assert ask(node, metadata, 10, request).cluster_authorized_operations == expected
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=1)
    assert ask(node, describe_cluster, 1, asked).cluster_authorized_operations == expected


async def test_described_partitions_are_of_topics_that_a_client_may_describe(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "mine", "secret")
    authorizer.deny(Operation.DESCRIBE, TOPIC, "secret").deny(Operation.ALTER, TOPIC, "mine")
    every = ask(node, describe_topic_partitions, 0, DescribeTopicPartitionsRequest())
    assert topics_of(every) == [(Error.NONE, "mine")]
    assert every.topics[0].topic_authorized_operations == 0b1101_0111_1000
    named = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsTopic(name="secret"), DescribeTopicPartitionsTopic(name="mine")]
    )
    response = ask(node, describe_topic_partitions, 0, named)
    assert topics_of(response) == [(Error.NONE, "mine"), (DENIED_TOPIC, "secret")]
    assert response.topics[1].topic_authorized_operations == -(2**31)


@pytest.mark.parametrize(
    ("key_type", "resource_type", "error"),
    [
        (0, GROUP, Error.GROUP_AUTHORIZATION_FAILED),
        (1, TRANSACTIONAL_ID, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_a_coordinator_is_named_to_users_who_may_describe_its_resource(
    tmp_path: Path, key_type: int, resource_type: ResourceType, error: Error
) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.DESCRIBE, resource_type, "secret")
    old = ask(node, find_coordinator, 3, FindCoordinatorRequest(key="secret", key_type=key_type))
    assert (old.error_code, old.node_id) == (error, -1)
    assert old.error_message.endswith("authorization failed.")
    assert not node.metadata.image.topics  # no topic is made for it
    both = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["secret", "mine"])
    found = ask(node, find_coordinator, 6, both).coordinators
    assert [each.error_code for each in found] == [error, Error.NONE]


async def test_only_the_cluster_may_use_share_coordinators(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["a", "b"])
    assert [each.error_code for each in ask(node, find_coordinator, 6, request).coordinators] == [
        DENIED_CLUSTER,
        DENIED_CLUSTER,
    ]
    before_share_groups = ask(node, find_coordinator, 5, request).coordinators
    assert [each.error_code for each in before_share_groups] == [Error.INVALID_REQUEST] * 2
