"""Requests that scripts send often, as dicts. Topics carry name and id, so that one dict serves every version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .scene import Topic

UNKNOWN_ID = bytes.fromhex("00000000000040008000000000000abc")
ZERO_ID = bytes(16)

Fields = dict[str, Any]


def unknown(name: str, topic_id: bytes = UNKNOWN_ID) -> Topic:
    """Return a topic that doesn't exist."""
    return Topic(name, topic_id)


def produce(
    *parts: tuple[Topic, int, bytes | None],
    acks: int = -1,
    transactional_id: str | None = None,
    timeout_ms: int = 10_000,
) -> Fields:
    """Batches for (topic, partition). Neighbours of one topic share an entry."""
    topics: list[Fields] = []
    for topic, partition, records in parts:
        if not topics or topics[-1]["name"] != topic.name or topics[-1]["topic_id"] != topic.topic_id:
            topics.append({"name": topic.name, "topic_id": topic.topic_id, "partition_data": []})
        topics[-1]["partition_data"].append({"index": partition, "records": records})
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout_ms": timeout_ms,
        "topic_data": topics,
    }


def fetch(
    *parts: tuple[Topic, int, int] | tuple[Topic, int, int, Mapping[str, Any]],
    max_wait_ms: int = 0,
    min_bytes: int = 0,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Sequence[tuple[Topic, Sequence[int]]] = (),
    **more: Any,
) -> Fields:
    """(topic, partition, offset), and optionally more fields of that partition."""
    topics: list[Fields] = []
    for topic, partition, offset, *extra in parts:
        if not topics or topics[-1]["topic"] != topic.name or topics[-1]["topic_id"] != topic.topic_id:
            topics.append({"topic": topic.name, "topic_id": topic.topic_id, "partitions": []})
        asked = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
        topics[-1]["partitions"].append(asked | dict(extra[0] if extra else {}))
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": topics,
        "forgotten_topics_data": [
            {"topic": topic.name, "topic_id": topic.topic_id, "partitions": list(partitions)}
            for topic, partitions in forgotten
        ],
    } | more


def list_offsets(
    *parts: tuple[str, int, int], isolation_level: int = 0, replica_id: int = -1, leader_epoch: int = -1
) -> Fields:
    """(topic name, partition, timestamp). Neighbours of one topic share an entry."""
    topics: list[Fields] = []
    for name, partition, timestamp in parts:
        if not topics or topics[-1]["name"] != name:
            topics.append({"name": name, "partitions": []})
        topics[-1]["partitions"].append(
            {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": leader_epoch}
        )
    return {
        "replica_id": replica_id,
        "isolation_level": isolation_level,
        "timeout_ms": 10_000,
        "topics": topics,
    }


def create_topics(
    *topics: Mapping[str, Any], timeout_ms: int = 20_000, validate_only: bool = False
) -> Fields:
    """Topics by their fields; by default with one partition."""
    return {
        "topics": [{"num_partitions": 1, "replication_factor": 1} | dict(topic) for topic in topics],
        "timeout_ms": timeout_ms,
        "validate_only": validate_only,
    }


def configs(**values: str | None) -> list[Fields]:
    """A config's dots are underscores here."""
    return [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]


def metadata(
    *names: str | None,
    ids: Sequence[bytes] = (),
    create: bool = False,
    cluster_operations: bool = False,
    topic_operations: bool = False,
) -> Fields:
    topics = [{"name": name} for name in names] + [{"name": None, "topic_id": topic_id} for topic_id in ids]
    return {
        "topics": topics,
        "allow_auto_topic_creation": create,
        "include_cluster_authorized_operations": cluster_operations,
        "include_topic_authorized_operations": topic_operations,
    }
