"""The answers of elections, reassignments and updates of features, beyond the decision itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.controller.config_decisions import BROKER_LOGGER_RESOURCE
from broker.controller.image import BROKER_RESOURCE
from broker.handlers import (
    alter_partition_reassignments,
    elect_leaders,
    list_config_resources,
    update_features,
)
from broker.server import Server
from protocol.errors import Error
from protocol.messages import metadata_records as records
from protocol.messages.topics import CreatableTopic
from tests.node.log_dirs import ask
from tests.support.topics import topics_of
from tests.support.whole_server import started


@pytest.mark.parametrize("timeout_ms", [1000, 0])
async def test_an_election_answers_a_topic_as_often_as_it_is_named(node: Server, timeout_ms: int) -> None:
    topics_of(node).create([CreatableTopic(name="a", num_partitions=2, replication_factor=1)])
    named = [
        {"topic": topic, "partitions": indexes} for topic, indexes in (("a", [0]), ("b", [0]), ("a", [1, 9]))
    ]

    asked = {"election_type": 0, "topic_partitions": named, "timeout_ms": timeout_ms}
    answer = ask(node, elect_leaders, 43, 2, asked)

    assert [
        (result.topic, [partition.partition_id for partition in result.partition_result])
        for result in answer.replica_election_results
    ] == [("a", [0]), ("b", [0]), ("a", [1, 9])]


@pytest.mark.parametrize("timeout_ms", [0, -1])
@pytest.mark.parametrize(
    ("version", "of_all"), [(0, Error.NONE), (1, Error.REQUEST_TIMED_OUT), (2, Error.REQUEST_TIMED_OUT)]
)
async def test_an_election_without_time_is_refused_in_each_version(
    node: Server, version: int, of_all: Error, timeout_ms: int
) -> None:
    asked = {"topic_partitions": [{"topic": "a", "partitions": [0]}], "timeout_ms": timeout_ms}
    answer = ask(node, elect_leaders, 43, version, asked)

    assert Error(answer.error_code) is of_all
    [result] = answer.replica_election_results
    assert [Error(partition.error_code) for partition in result.partition_result] == [Error.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(
    ("topics", "timeout_ms", "echoed"), [([], 1000, True), (["a"], 0, True), (["a"], 1000, False)]
)
async def test_permission_to_change_the_replicas_is_echoed_only_if_it_was_read(
    tmp_path: Path, topics: list[str], timeout_ms: int, echoed: bool
) -> None:
    node = await started(tmp_path)
    partitions = [{"partition_index": 0, "replicas": [1]}]

    asked = {
        "timeout_ms": timeout_ms,
        "allow_replication_factor_change": False,
        "topics": [{"name": topic, "partitions": partitions} for topic in topics],
    }
    answer = ask(node, alter_partition_reassignments, 45, 1, asked)

    assert answer.allow_replication_factor_change is echoed


async def test_an_update_of_features_says_that_one_failed_it_for_all(node: Server) -> None:
    updates = [
        {"feature": feature, "max_version_level": level, "upgrade_type": 2}
        for feature, level in (("metadata.version", 21), ("share.version", 9))
    ]

    asked = {"timeout_ms": 1000, "feature_updates": updates, "validate_only": False}
    answer = ask(node, update_features, 57, 2, asked)

    assert answer.error_message.startswith(
        "The update failed for all features since the following feature had an error: "
        "Unsupported metadata.version downgrade from 33 to 21."
    )


async def test_brokers_are_resources_to_be_configured_each_by_each_other_fenced_ones_too(
    node: Server,
) -> None:
    endpoint = records.BrokerEndpoint(name="PLAINTEXT", host="b", port=1)
    node.metadata.append([records.RegisterBrokerRecord(broker_id=2, end_points=[endpoint], fenced=True)])
    for kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        answer = ask(node, list_config_resources, 74, 1, {"resource_types": [kind]})
        assert [resource.resource_name for resource in answer.config_resources] == ["1", "2"]
