"""Requests of consumer groups (KIP-848) that scripts send often, and the resulting records in `__consumer_offsets`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from coordinator.group.records import (
    GROUP_METADATA_VERSION,
    ConsumerGroupRecord,
    GroupRecord,
    ShareGroupRecord,
    StreamsGroupRecord,
    decode_record,
)
from coordinator.java.maps import partition_of_key
from protocol.messages.group_records import GroupMetadataValue
from protocol.messages.groups import ConsumerProtocolSubscription, TopicPartition
from protocol.records.batch import read_records
from protocol.wire.codec import encode
from protocol.wire.schema import Message

from .group_requests import LONG_MS, Fields, coordinator_is_there
from .mask_actions import member_id
from .plain import plain
from .play import Play
from .scene import Topic

OFFSETS_PARTITIONS = 3

Owned = Sequence[tuple[Topic, Sequence[int]]]


def beat(
    group: str,
    member: str,
    epoch: int,
    *,
    names: Sequence[str] | None = None,
    owned: Owned | None = None,
    **more: Any,
) -> Fields:
    """Make a heartbeat that says only what is given."""
    partitions = None
    if owned is not None:
        partitions = [{"topic_id": topic.topic_id, "partitions": list(indexes)} for topic, indexes in owned]
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "subscribed_topic_names": None if names is None else list(names),
        "topic_partitions": partitions,
    } | more


def first_beat(group: str, member: str, *names: str, **more: Any) -> Fields:
    """Make the heartbeat with which a member joins."""
    return beat(group, member, 0, names=names, owned=(), rebalance_timeout_ms=LONG_MS, **more)


def topic_is_known(play: Play, topic: Topic) -> None:
    """Wait until groups can be assigned the topic: Kafka's coordinator learns of a topic after clients do."""
    group = play.name("knows")
    coordinator_is_there(play, group)

    def is_assigned() -> bool:
        answer = play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, "m", topic.name))
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    play.until(f"{topic.name} is assigned", is_assigned)


def owned_in(answer: Any, *topics: Topic) -> list[tuple[Topic, list[int]]]:
    """Return what a heartbeat's answer assigns, in the form in which a member reports it."""
    known = {topic.topic_id: topic for topic in topics}
    return [
        (known[bytes(each.topic_id)], list(each.partitions)) for each in answer.assignment.topic_partitions
    ]


def describe(play: Play, case: str, *groups: str) -> None:
    play.ask(case, "ConsumerGroupDescribe", 1, {"group_ids": list(groups)})


def records_of(play: Play, group: str, *topics: Topic, in_runs: bool = False) -> list[Any]:
    """Return the records of a group in their order, with names for what is random or depends on the clock.

    `in_runs`: if member ids are random, so is the order of consecutive records of one kind.
    """
    found: list[Any] = []
    position = 0
    partition = partition_of_key(group, OFFSETS_PARTITIONS)
    ids = {topic.topic_id.hex(): topic.name for topic in topics}
    while True:
        answer = play.quietly(
            "Fetch",
            4,
            {
                "replica_id": -1,
                "max_wait_ms": 0,
                "min_bytes": 0,
                "max_bytes": 10_000_000,
                "isolation_level": 0,
                "topics": [
                    {
                        "topic": "__consumer_offsets",
                        "partitions": [
                            {
                                "partition": partition,
                                "fetch_offset": position,
                                "partition_max_bytes": 10_000_000,
                            }
                        ],
                    }
                ],
            },
        )
        data = answer.responses[0].partitions[0].records
        if not data and in_runs:
            return [
                record
                for _, run in groupby(found, key=lambda record: str(record[0]))
                for record in sorted(run, key=json.dumps)
            ]
        if not data:
            return found
        for record in read_records(bytes(data)):  # the records of the first batch
            position = record.offset + 1
            decoded = decode_record(record.key, record.value, record.offset)
            is_ours = isinstance(decoded, ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord)
            if is_ours and decoded.group_id == group:
                found.append(
                    [
                        type(decoded.key).__name__,
                        _named(decoded.key, ids, play),
                        _named(decoded.value, ids, play),
                    ]
                )
            elif isinstance(decoded, GroupRecord) and decoded.group_id == group:
                found.append(["GroupMetadataKey", group, _named(decoded.value, ids, play)])


def _named(message: Message | None, ids: dict[str, str], play: Play) -> Any:
    if message is None:
        return None
    version = GROUP_METADATA_VERSION if isinstance(message, GroupMetadataValue) else 0
    return _renamed(plain(message, version), ids, play)


_OF_THE_CLOCK = ("assignment_timestamp", "timestamp", "current_state_timestamp", "metadata_hash", "version")


def _renamed(value: Any, ids: dict[str, str], play: Play) -> Any:
    if isinstance(value, dict):
        return {
            key: ("<set>" if each else each)
            if key in _OF_THE_CLOCK
            else member_id(each, play.names)
            if key in ("member_id", "leader")
            else _renamed(each, ids, play)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_renamed(each, ids, play) for each in value]
    return ids.get(value, value) if isinstance(value, str) else value


def protocol_subscription(
    version: int, *topics: str, owned: Sequence[tuple[str, Sequence[int]]] = ()
) -> bytes:
    """Encode ConsumerProtocolSubscription in any version, without user data."""
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            TopicPartition(topic=topic, partitions=list(partitions)) for topic, partitions in owned
        ]
        if version
        else [],
    )
    return version.to_bytes(2, "big") + encode(message, version)
