"""Decodes the records of Kafka's internal topics, by the topic's name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields as fields_of
from typing import NamedTuple

from broker.controller.metadata_versions import decode_metadata_record
from broker.controller.quorum_state import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
)
from cli.inspecting.values import plain
from coordinator.group import records as groups
from coordinator.share import share_partitions as shares
from coordinator.transaction import state_manager as transactions
from coordinator.transaction.state_manager import UnknownVersion
from coordinator.transaction.states import STATE_NAMES
from protocol.errors import CodecError
from protocol.messages.group_records import MemberMetadata
from protocol.messages.groups import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from protocol.messages.raft import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from protocol.records.batch import (
    ABORT,
    COMMIT,
    CorruptRecordError,
    Record,
    read_control_type,
    read_coordinator_epoch,
)
from protocol.wire.codec import decode
from protocol.wire.primitives import uuid_to_text
from protocol.wire.schema import Message

METADATA = "__cluster_metadata"
OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
SHARES = "__share_group_state"

_GONE: dict[str, object] = {"deleted": True}
"""The value of a tombstone."""

_OF_TRANSACTIONS = tuple(each.name for each in fields_of(transactions.TransitMetadata))

_CONTROL: dict[int, type[Message]] = {
    LEADER_CHANGE: LeaderChangeMessage,
    SNAPSHOT_HEADER: SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: SnapshotFooterRecord,
    KRAFT_VERSION: KRaftVersionRecord,
    KRAFT_VOTERS: VotersRecord,
}


class Decoded(NamedTuple):
    """The content of a record."""

    type: str
    value: object
    """As JSON has it. None means that the named thing is gone."""


class UndecodedError(Exception):
    """A record makes no sense. The text says why."""


def decoder_of(topic: str) -> Callable[[Record], Decoded | None] | None:
    """Return the topic's decoder, or None if the records belong to users."""
    return {METADATA: _metadata, OFFSETS: _group, TRANSACTIONS: _transaction, SHARES: _share}.get(topic)


def decoded(decoder: Callable[[Record], Decoded | None], record: Record) -> Decoded:
    """Decode a record. Raises UndecodedError."""
    try:
        found = decoder(record)
    except (CodecError, UnknownVersion, CorruptRecordError, ValueError) as error:
        raise UndecodedError(f"it can't be decoded: {error}") from error
    if found is None:
        raise UndecodedError("its key has no type that Kafka 4.3 knows")
    return found


def control(record: Record) -> Decoded:
    """Decode a record of a control batch. Raises UndecodedError."""
    try:
        control_type = read_control_type(record.key)
        if control_type in (ABORT, COMMIT):
            name = "COMMIT" if control_type == COMMIT else "ABORT"
            return Decoded(name, {"coordinator_epoch": read_coordinator_epoch(record.value)})
        message = _CONTROL.get(control_type)
        if message is None:
            return Decoded(f"control type {control_type}", {})
        version = int.from_bytes((record.value or b"")[:2], "big") if record.value else 0
        return Decoded(message.__name__, plain(decode(message, min(version, 1), record.value or b"")))
    except (CodecError, CorruptRecordError) as error:
        raise UndecodedError(f"it can't be decoded: {error}") from error


def _metadata(record: Record) -> Decoded:
    if record.value is None:
        raise CodecError("it has no value")
    message = decode_metadata_record(bytes(record.value))
    return Decoded(type(message).__name__, plain(message))


def _group(record: Record) -> Decoded | None:
    found = groups.decode_record(record.key or b"", record.value, record.offset)
    if found is None:
        return None
    if isinstance(found, groups.OffsetRecord):
        key = {"group": found.key.group_id, "topic": found.key.topic, "partition": found.key.partition}
        committed = _GONE if found.value is None else _committed(found.value)
        return Decoded("OffsetCommit", {**key, **committed})
    if isinstance(found, groups.GroupRecord):
        fields = _fields(found.value)
        if found.value is not None and found.value.protocol_type == "consumer":
            fields["members"] = [_consumer(member) for member in found.value.members]
        return Decoded("GroupMetadata", {"group": found.group_id, **fields})
    name = type(found.key).__name__.removesuffix("Key")
    return Decoded(name, {**_fields(found.key), **_fields(found.value)})


def _consumer(member: MemberMetadata) -> dict[str, object]:
    """Return the member's fields, with its decoded subscription and assignment if they make sense."""
    fields = dict(_fields(member))
    for name, message in (
        ("subscription", ConsumerProtocolSubscription),
        ("assignment", ConsumerProtocolAssignment),
    ):
        data = bytes(getattr(member, name))
        version = min(int.from_bytes(data[:2], "big"), message.VERSIONS[1])
        with suppress(CodecError):
            fields[name] = plain(decode(message, version, data, 2)) if data else None
    return fields


def _fields(message: object) -> dict[str, object]:
    found = plain(message)
    return found if isinstance(found, dict) else _GONE


def _committed(value: groups.CommittedOffset) -> dict[str, object]:
    fields = value._asdict()
    del fields["record_offset"]
    fields["topic_id"] = uuid_to_text(value.topic_id)
    return fields


def _transaction(record: Record) -> Decoded:
    transactional_id, found = transactions.decode_record(record.key or b"", record.value)
    if found is None:
        return Decoded("TransactionLog", {"transactional_id": transactional_id, **_GONE})
    fields: dict[str, object] = {"transactional_id": transactional_id}
    fields |= {
        name: getattr(found, name) for name in _OF_TRANSACTIONS
    }  # `asdict` takes as long as all the rest
    fields["state"] = STATE_NAMES[found.state]
    fields["partitions"] = [f"{topic}-{partition}" for topic, partition in found.partitions]
    return Decoded("TransactionLog", fields)


def _share(record: Record) -> Decoded | None:
    found = shares.decode_record(record.key or b"", record.value)
    if found is None:
        return None
    group_id, topic_id, partition = found.key
    key: dict[str, object] = {
        "group": group_id,
        "topic_id": uuid_to_text(topic_id),
        "partition": partition,
    }
    name = "ShareUpdate" if found.is_update else "ShareSnapshot"
    return Decoded(name, {**key, **_fields(found.state)})
