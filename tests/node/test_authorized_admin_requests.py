"""The answers to a client that may not see or change topics, settings and log directories."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from broker.handlers import (
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    unregister_broker,
    unregister_controller,
    update_features,
)
from broker.security.authorizer import ANONYMOUS, CLUSTER_NAME, Operation, ResourceType
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.topics import CreatableTopic
from tests.compare.plain import message_from
from tests.support.cycles import nothing_in_a_cycle
from tests.support.denying import Asked, DenyingAuthorizer
from tests.support.topics import topics_of
from tests.support.whole_server import handled, started

CLUSTER, TOPIC, GROUP = ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP
TOPIC_CONFIG, BROKER_CONFIG, LOGGER_CONFIG, METRICS_CONFIG, GROUP_CONFIG = 2, 4, 8, 16, 32
DENIED_CLUSTER, DENIED_TOPIC = Error.CLUSTER_AUTHORIZATION_FAILED, Error.TOPIC_AUTHORIZATION_FAILED
DENIED_GROUP = Error.GROUP_AUTHORIZATION_FAILED


async def guarded(folder: Path, *topics: str) -> tuple[Server, DenyingAuthorizer]:
    node = await started(folder)
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in topics]
    topics_of(node).create(wanted)
    authorizer = DenyingAuthorizer()
    node.authorizer = authorizer
    return node, authorizer


def ask(node: Server, handler: ModuleType, key: int, version: int, fields: dict[str, Any]) -> Any:
    asked = message_from(APIS[key].request, fields, version)
    return handled(
        node, handler, SimpleNamespace(api_version=version, client_id="c", principal=ANONYMOUS), asked
    )


def codes(results: Any) -> dict[str | None, Error]:
    return {result.name: Error(result.error_code) for result in results}


PARTITIONS = [{"topic": "t", "partitions": [0]}]
REASSIGNED = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": [1]}]}]
DIRECTORIES = [{"path": "/nowhere", "topics": [{"name": "t", "partitions": [0]}]}]


@pytest.mark.parametrize(
    ("handler", "key", "version", "operation", "fields"),
    [
        (
            elect_leaders,
            43,
            2,
            Operation.ALTER,
            {"election_type": 0, "timeout_ms": 0, "topic_partitions": PARTITIONS},
        ),
        (alter_partition_reassignments, 45, 1, Operation.ALTER, {"timeout_ms": 0, "topics": REASSIGNED}),
        (list_partition_reassignments, 46, 0, Operation.DESCRIBE, {"timeout_ms": 1, "topics": None}),
        (update_features, 57, 2, Operation.ALTER, {"timeout_ms": 1, "feature_updates": []}),
        (unregister_broker, 64, 0, Operation.ALTER, {"broker_id": 7}),
        (unregister_controller, 94, 0, Operation.ALTER, {"controller_id": 7}),
        (list_config_resources, 74, 1, Operation.DESCRIBE_CONFIGS, {"resource_types": [99]}),
        (describe_log_dirs, 35, 4, Operation.DESCRIBE, {"topics": None}),
    ],
)
async def test_requests_about_the_cluster_are_authorized_before_they_are_examined(
    tmp_path: Path,
    handler: ModuleType,
    key: int,
    version: int,
    operation: Operation,
    fields: dict[str, Any],
) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(operation, CLUSTER)
    before = node.metadata.next_offset
    response = ask(node, handler, key, version, fields)
    assert response.error_code == DENIED_CLUSTER
    assert authorizer.asked == [Asked(operation, CLUSTER, CLUSTER_NAME)]
    assert node.metadata.next_offset == before


async def test_a_request_that_the_controller_refuses_as_a_whole_says_which_permission_it_needs(
    tmp_path: Path,
) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.ALTER, CLUSTER)
    refused = ask(node, unregister_broker, 64, 0, {"broker_id": 7})
    assert refused.error_message == "The request needs ALTER permission."


async def test_a_refused_move_is_answered_for_each_partition(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "t")
    authorizer.deny(Operation.ALTER, CLUSTER)
    (moved,) = ask(node, alter_replica_log_dirs, 34, 2, {"dirs": DIRECTORIES}).results
    assert [partition.error_code for partition in moved.partitions] == [DENIED_CLUSTER]
    (elected,) = ask(
        node, elect_leaders, 43, 2, {"election_type": 0, "timeout_ms": 1, "topic_partitions": PARTITIONS}
    ).replica_election_results
    assert [partition.error_code for partition in elected.partition_result] == [DENIED_CLUSTER]


def creation(*names: str) -> dict[str, Any]:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return {"topics": topics, "timeout_ms": 1000}


async def test_users_without_create_on_the_cluster_may_create_topics_that_they_have_a_right_to(
    tmp_path: Path,
) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.CREATE, CLUSTER).deny(Operation.CREATE, TOPIC, "theirs")
    response = ask(
        node, create_topics, 19, 7, creation("ours", "theirs", "twice", "twice", "__cluster_metadata")
    )
    assert codes(response.topics) == {
        "ours": Error.NONE,
        "theirs": DENIED_TOPIC,
        "twice": Error.INVALID_REQUEST,
        "__cluster_metadata": Error.INVALID_REQUEST,
    }
    assert [*node.metadata.image.topics] == ["ours"]
    assert Asked(Operation.CREATE, TOPIC, "twice") not in authorizer.asked


async def test_the_settings_of_a_new_topic_are_hidden_from_users_without_the_right_to_see_them(
    tmp_path: Path,
) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.DESCRIBE_CONFIGS, TOPIC, "a")
    a, b = ask(node, create_topics, 19, 7, creation("a", "b")).topics
    assert (a.error_code, a.topic_config_error_code, a.num_partitions, a.replication_factor, a.configs) == (
        Error.NONE,
        DENIED_TOPIC,
        -1,
        -1,
        [],
    )
    assert a.topic_id == node.metadata.image.topics["a"].topic_id
    assert (b.topic_config_error_code, b.num_partitions, len(b.configs)) == (Error.NONE, 1, 37)


def deletion(*names: str, ids: tuple[bytes, ...] = ()) -> dict[str, Any]:
    named = [{"name": name, "topic_id": bytes(16)} for name in names]
    by_id = [{"name": None, "topic_id": topic_id} for topic_id in ids]
    return {"topics": named + by_id, "timeout_ms": 1000}


async def test_a_topic_that_may_not_be_described_is_not_reported_missing(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "ours", "seen", "hidden")
    authorizer.deny(Operation.DELETE, CLUSTER).deny(Operation.DELETE, TOPIC, "seen")
    for name in ("hidden", "none"):
        authorizer.deny(Operation.DESCRIBE, TOPIC, name).deny(Operation.DELETE, TOPIC, name)
    response = ask(node, delete_topics, 20, 6, deletion("ours", "seen", "hidden", "none", "missing"))
    assert codes(response.responses) == {
        "ours": Error.NONE,
        "seen": DENIED_TOPIC,
        "hidden": DENIED_TOPIC,
        "none": DENIED_TOPIC,
        "missing": Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [*node.metadata.image.topics] == ["seen", "hidden"]


async def test_an_id_is_named_only_to_users_who_may_describe_its_topic(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "seen", "hidden")
    ids = {name: node.metadata.image.topics[name].topic_id for name in ("seen", "hidden")}
    authorizer.deny(Operation.DELETE, CLUSTER).deny(Operation.DELETE, TOPIC)
    authorizer.deny(Operation.DESCRIBE, TOPIC, "hidden")
    response = ask(node, delete_topics, 20, 6, deletion(ids=(ids["seen"], ids["hidden"])))
    assert {result.topic_id: (result.name, result.error_code) for result in response.responses} == {
        ids["seen"]: ("seen", DENIED_TOPIC),
        ids["hidden"]: (None, DENIED_TOPIC),
    }


async def test_the_right_on_the_cluster_permits_deleting_every_topic(
    tmp_path: Path,
) -> None:
    node, authorizer = await guarded(tmp_path, "t")
    authorizer.deny(Operation.DELETE, TOPIC).deny(Operation.DESCRIBE, TOPIC)
    assert codes(ask(node, delete_topics, 20, 6, deletion("t")).responses) == {"t": Error.NONE}


async def test_partitions_are_added_to_topics_that_may_be_altered(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "ours", "theirs")
    authorizer.deny(Operation.ALTER, TOPIC, "theirs")
    topics = [
        {"name": name, "count": 2, "assignments": None} for name in ("ours", "theirs", "twice", "twice")
    ]
    response = ask(node, create_partitions, 37, 3, {"topics": topics, "timeout_ms": 1000})
    assert codes(response.results) == {
        "ours": Error.NONE,
        "theirs": DENIED_TOPIC,
        "twice": Error.INVALID_REQUEST,
    }
    assert Asked(Operation.ALTER, TOPIC, "twice") not in authorizer.asked


def resource(kind: int, name: str, *settings: tuple[str, str], operation: int | None = 0) -> dict[str, Any]:
    configs: list[dict[str, Any]] = [{"name": key, "value": value} for key, value in settings]
    if operation is not None:
        for each in configs:
            each["config_operation"] = operation
    return {"resource_type": kind, "resource_name": name, "configs": configs}


RESOURCES = [
    (TOPIC_CONFIG, "t", ("retention.ms", "5"), Asked(Operation.ALTER_CONFIGS, TOPIC, "t"), DENIED_TOPIC),
    (
        GROUP_CONFIG,
        "g",
        ("consumer.session.timeout.ms", "50000"),
        Asked(Operation.ALTER_CONFIGS, GROUP, "g"),
        DENIED_GROUP,
    ),
    (
        BROKER_CONFIG,
        "",
        ("log.retention.ms", "5"),
        Asked(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME),
        DENIED_CLUSTER,
    ),
    (
        METRICS_CONFIG,
        "s",
        ("interval.ms", "1000"),
        Asked(Operation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME),
        DENIED_CLUSTER,
    ),
]


@pytest.mark.parametrize(("kind", "name", "setting", "asked", "denied"), RESOURCES)
@pytest.mark.parametrize("incremental", [True, False])
async def test_altering_settings_needs_the_right_to(
    tmp_path: Path,
    incremental: bool,
    kind: int,
    name: str,
    setting: tuple[str, str],
    asked: Asked,
    denied: Error,
) -> None:
    node, authorizer = await guarded(tmp_path, "t")
    authorizer.deny(*asked)
    before = node.metadata.next_offset
    if incremental:
        fields = {"resources": [resource(kind, name, setting)], "validate_only": False}
        (result,) = ask(node, incremental_alter_configs, 44, 1, fields).responses
    else:
        fields = {"resources": [resource(kind, name, setting, operation=None)], "validate_only": False}
        (result,) = ask(node, alter_configs, 33, 2, fields).responses
    assert result.error_code == denied
    assert authorizer.asked == [asked]
    assert node.metadata.next_offset == before


@pytest.mark.parametrize(
    "of",
    [
        ("", ("log.retention.ms", "x")),
        ("77", ("log.retention.ms", "5")),
        ("x", ("no.such", "5")),
    ],
)
@pytest.mark.parametrize("incremental", [True, False])
async def test_a_broker_authorizes_an_alteration_before_it_examines_it(
    tmp_path: Path, of: tuple[str, tuple[str, str]], incremental: bool
) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.ALTER_CONFIGS, CLUSTER)
    name, setting = of
    handler, key, version = (incremental_alter_configs, 44, 1) if incremental else (alter_configs, 33, 2)
    asked = resource(BROKER_CONFIG, name, setting, operation=0 if incremental else None)
    (result,) = ask(node, handler, key, version, {"resources": [asked], "validate_only": False}).responses
    assert result.error_code == DENIED_CLUSTER


async def test_a_nonsense_request_is_refused_to_everybody(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.ALTER_CONFIGS, CLUSTER)
    twice = resource(BROKER_CONFIG, "", ("log.retention.ms", "5"), ("log.retention.ms", "6"))
    (result,) = ask(
        node, incremental_alter_configs, 44, 1, {"resources": [twice], "validate_only": False}
    ).responses
    assert result.error_code == Error.INVALID_REQUEST


async def test_setting_loggers_needs_the_right_to_alter_the_clusters_settings(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path)
    authorizer.deny(Operation.ALTER_CONFIGS, CLUSTER)
    fields = {"resources": [resource(LOGGER_CONFIG, "7", ("nobody", "INFO"))], "validate_only": True}
    (result,) = ask(node, incremental_alter_configs, 44, 1, fields).responses
    assert result.error_code == DENIED_CLUSTER


@pytest.mark.parametrize(("kind", "name"), [(LOGGER_CONFIG, "1"), (BROKER_CONFIG, ""), (TOPIC_CONFIG, "t")])
async def test_a_change_of_settings_that_is_refused_leaves_no_cycle(
    tmp_path: Path, kind: int, name: str
) -> None:
    node, authorizer = await guarded(tmp_path, "t")
    authorizer.deny(Operation.ALTER_CONFIGS, CLUSTER).deny(Operation.ALTER_CONFIGS, TOPIC, "t")
    setting = ("barnabas.dispatch", "INFO") if kind == LOGGER_CONFIG else ("retention.ms", "1000")
    if kind == BROKER_CONFIG:
        setting = ("log.retention.ms", "1000")
    fields = {"resources": [resource(kind, name, setting)], "validate_only": True}
    with nothing_in_a_cycle():
        (result,) = ask(node, incremental_alter_configs, 44, 1, fields).responses
    assert result.error_code in (DENIED_CLUSTER, DENIED_TOPIC)


async def test_settings_that_may_not_be_seen_come_last(tmp_path: Path) -> None:
    node, authorizer = await guarded(tmp_path, "ours", "theirs")
    authorizer.deny(Operation.DESCRIBE_CONFIGS, TOPIC, "theirs").deny(Operation.DESCRIBE_CONFIGS, CLUSTER)
    authorizer.deny(Operation.DESCRIBE_CONFIGS, GROUP)
    asked = [
        (BROKER_CONFIG, ""),
        (LOGGER_CONFIG, "1"),
        (METRICS_CONFIG, "s"),
        (GROUP_CONFIG, "g"),
        (TOPIC_CONFIG, "theirs"),
        (TOPIC_CONFIG, "ours"),
    ]
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in asked
    ]
    results = ask(node, describe_configs, 32, 4, {"resources": resources}).results
    assert [(result.resource_type, result.error_code) for result in results] == [
        (TOPIC_CONFIG, Error.NONE),
        (BROKER_CONFIG, DENIED_CLUSTER),
        (LOGGER_CONFIG, DENIED_CLUSTER),
        (METRICS_CONFIG, DENIED_CLUSTER),
        (GROUP_CONFIG, DENIED_GROUP),
        (TOPIC_CONFIG, DENIED_TOPIC),
    ]
    assert not any(result.configs for result in results[1:])
