"""Answers as plain data, without what may differ after a restart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from protocol.messages.groups_streams import TopicInfo
from protocol.wire.schema import Struct

MEANT_TO_DIFFER: Mapping[str, str] = {
    "throttle_time_ms": "by what was asked before",
    "leader_epoch": "of a partition: grows by 2 over a restart, as in Kafka; with other nodes by every election",
    "leader_id": "others lead what a node had led that went, until an election of the preferred ones",
    "controller_id": "of several brokers any one is named, in the answers of any",
    "finalized_features_epoch": "the offset that the metadata is applied to",
    "total_bytes": "of the disk, which others write to",
    "usable_bytes": "of the disk, which others write to",
    "client_host": "of whoever asked last; the same here, but for its port",
    "authorized_operations": "isn't asked for",
    "topic_authorized_operations": "isn't asked for",
    "cluster_authorized_operations": "isn't asked for",
}
"""Fields by name, each with the reason."""

OF_TOPOLOGIES = {
    "partitions": "of a streams group's own topics: worked out at the next heartbeat, as in Kafka"
}
"""The same in the description of a topology (Kafka: `StreamsGroup.configuredTopology`, which no record has)."""

UNORDERED = frozenset({"isr_nodes", "replica_nodes"})
"""Lists whose order means nothing after an election."""

LONGEST = 40


def plain(value: Any) -> Any:
    """Turn structs into dictionaries, and bytes into hexadecimal digits, or a digest if they are many."""
    if isinstance(value, Struct):
        return {
            field.name: plain_field(field.name, getattr(value, field.name))
            for field in type(value).FIELDS
            if field.name not in MEANT_TO_DIFFER
            and not (isinstance(value, TopicInfo) and field.name in OF_TOPOLOGIES)
        }
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return data.hex() if len(data) <= LONGEST else f"{len(data)}:{hashlib.sha256(data).hexdigest()[:16]}"
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def plain_field(name: str, value: Any) -> Any:
    found = plain(value)
    return sorted(found) if name in UNORDERED else found
