"""Send requests that change the metadata, and return their answers in short."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

from broker.handlers import (
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    elect_leaders,
    incremental_alter_configs,
)
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages import metadata_records as records
from tests.compare.plain import message_from
from tests.support.whole_server import handled

GROUP, TOPIC, BROKER = 32, 2, 4
TIMEOUT_MS = 1000


def ask(node: Server, handler: ModuleType, key: int, version: int, fields: dict[str, Any]) -> Any:
    asked = message_from(APIS[key].request, fields, version)
    return handled(
        node, handler, SimpleNamespace(api_version=version, client_id="c", principal=ANONYMOUS), asked
    )


def codes(results: Any) -> list[Error]:
    return [Error(result.error_code) for result in results]


def create(node: Server, *topics: tuple[str, int], only: bool = False) -> list[Error]:
    wanted = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in topics]
    fields = {"topics": wanted, "timeout_ms": TIMEOUT_MS, "validate_only": only}
    return codes(ask(node, create_topics, 19, 7, fields).topics)


def grow(node: Server, *topics: tuple[str, int], only: bool = False) -> dict[str, Error]:
    wanted = [{"name": name, "count": count, "assignments": None} for name, count in topics]
    fields = {"topics": wanted, "timeout_ms": TIMEOUT_MS, "validate_only": only}
    results = ask(node, create_partitions, 37, 3, fields).results
    return {result.name: Error(result.error_code) for result in results}


def alter(node: Server, *resources: tuple[int, str, dict[str, str]], only: bool = False) -> list[Error]:
    wanted = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": 0, "value": value} for key, value in configs.items()
            ],
        }
        for kind, name, configs in resources
    ]
    fields = {"resources": wanted, "validate_only": only}
    return codes(ask(node, incremental_alter_configs, 44, 1, fields).responses)


def store(node: Server, *users: str) -> dict[str, tuple[Error, str | None]]:
    credential = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
    fields = {"deletions": [], "upsertions": [{"name": user, **credential} for user in users]}
    results = ask(node, alter_user_scram_credentials, 51, 0, fields).results
    return {result.user: (Error(result.error_code), result.error_message) for result in results}


def elect(node: Server, *names: str) -> tuple[Error, list[tuple[str, list[Error]]]]:
    """Elect leaders of all partitions of these topics, or of every topic if none is named. Returns the error of the
    answer, and each topic's."""
    topics = [{"topic": name, "partitions": [*node.metadata.image.topics[name].partitions]} for name in names]
    fields = {"election_type": 0, "topic_partitions": topics or None, "timeout_ms": TIMEOUT_MS}
    answer = ask(node, elect_leaders, 43, 2, fields)
    results = [(topic.topic, codes(topic.partition_result)) for topic in answer.replica_election_results]
    return Error(answer.error_code), results


def reassign(node: Server, *partitions: tuple[str, int]) -> tuple[Error, list[Error]]:
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "replicas": [node.node_id]}]}
        for name, index in partitions
    ]
    fields = {"timeout_ms": TIMEOUT_MS, "allow_replication_factor_change": True, "topics": topics}
    answer = ask(node, alter_partition_reassignments, 45, 1, fields)
    assert [topic.name for topic in answer.responses] == [name for name, _ in partitions]
    return Error(answer.error_code), [
        error for topic in answer.responses for error in codes(topic.partitions)
    ]


def leaderless(node: Server) -> list[tuple[str, int]]:
    return [
        (name, index)
        for name, topic in node.metadata.image.topics.items()
        for index, partition in topic.partitions.items()
        if partition.leader != node.node_id
    ]


def add_replica(node: Server, name: str) -> None:
    """Add a replica on another broker to each partition of the topic, as a cluster of several nodes may have left
    it."""
    topic = node.metadata.image.topics[name]
    for index, partition in topic.partitions.items():
        node.metadata.append(
            [
                records.PartitionChangeRecord(
                    partition_id=index,
                    topic_id=topic.topic_id,
                    replicas=[node.node_id, 7],
                    directories=[*partition.directories, b"7" * 16],
                )
            ]
        )


def groups(number: int) -> list[tuple[int, str, dict[str, str]]]:
    return [(GROUP, f"g{n}", {"consumer.session.timeout.ms": "50000"}) for n in range(number)]
