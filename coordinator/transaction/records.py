"""The records of `__transaction_state` as keys and values of log records.

The key is the transactional id; the value is v0, or v1 from level 1 of `transaction.version` on. v0 has no room for
the producer ids before and after, nor for the client's version of transactions; nothing holds the last epoch.
Source: `TransactionLog`, `TransactionLogValue`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, pack

from coordinator.transaction.states import EMPTY, NEVER_LOGGED, STATE_NAMES, TransactionState
from coordinator.transaction.transaction_metadata import TransactionPartitions, TransitMetadata
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.topic_partition import indexes_by_topic
from protocol.wire.codec import decode, encode
from protocol.wire.primitives import Bytes, encode_unsigned_varint

KEY_VERSION = 0
VALUE_VERSIONS = (0, 1)
HIGHEST_LEVEL = 2  # of transaction.version

_INT16 = Struct(">h")

# Of a value of version 1: what stands before and behind its partitions, a list of one, its tagged fields.
_HEAD_V1 = Struct(">hqhib")
_ONE_ID_V1 = Struct(">Bix")  # behind the list no tagged fields of the topic
_TIMES_V1 = Struct(">qqB")
_TAGGED_INT64 = Struct(">BBq")
_TAGGED_INT16 = Struct(">BBh")
_INT64_BYTES = 8


class UnknownVersion(Exception):  # noqa: N818  (nothing is wrong: a newer Kafka wrote it)
    """A key or a value of a version that Kafka 4.3 doesn't know."""


@lru_cache(1024)  # three records of each transaction have it
def encode_key(transactional_id: str) -> bytes:
    return _INT16.pack(KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), 0)


def encode_value(transit: TransitMetadata, transaction_version: int) -> bytes:
    """`transaction_version` is the cluster's level. Raises KafkaError (UNSUPPORTED_VERSION) at level 0 for what v0 has
    no room for: who ended a transaction by EndTxn v5 needs the level of transactions V2, or V1 at least."""
    if transaction_version >= 1:
        return _encode_v1(transit)
    if transit.client_transaction_version != 0:
        raise KafkaError(Error.UNSUPPORTED_VERSION, "transaction.version is 0, and the client's is 2")
    topics = indexes_by_topic(transit.partitions).items()
    value = TransactionLogValue(
        producer_id=transit.producer_id,
        producer_epoch=transit.producer_epoch,
        transaction_timeout_ms=transit.timeout_ms,
        transaction_status=transit.state,
        transaction_partitions=None
        if transit.state is EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics],
        transaction_last_update_timestamp_ms=transit.last_update_timestamp_ms,
        transaction_start_timestamp_ms=transit.start_timestamp_ms,
    )
    return _INT16.pack(0) + encode(value, 0)


def _encode_v1(transit: TransitMetadata) -> bytes:
    """What the compiled encoder makes of a `TransactionLogValue`, without one: each transaction has three of these
    records, and with the schema's objects they cost it 2 % more of the processor's time."""
    tagged = b""
    tags = 0
    if transit.previous_producer_id != NO_PRODUCER_ID:
        tagged = _TAGGED_INT64.pack(0, _INT64_BYTES, transit.previous_producer_id)
        tags = 1
    if transit.next_producer_id != NO_PRODUCER_ID:
        tagged += _TAGGED_INT64.pack(1, _INT64_BYTES, transit.next_producer_id)
        tags += 1
    if transit.client_transaction_version != 0:
        tagged += _TAGGED_INT16.pack(2, _INT16.size, transit.client_transaction_version)
        tags += 1
    state = transit.state
    return b"".join(
        (
            _HEAD_V1.pack(1, transit.producer_id, transit.producer_epoch, transit.timeout_ms, state),
            b"\0" if state is EMPTY else _partitions_v1(transit.partitions),
            _TIMES_V1.pack(transit.last_update_timestamp_ms, transit.start_timestamp_ms, tags),
            tagged,
        )
    )


def _partitions_v1(partitions: TransactionPartitions) -> bytes:
    if not partitions:  # as when it is complete
        return b"\1"
    topics = indexes_by_topic(partitions)
    chunks = [encode_unsigned_varint(len(topics) + 1)]
    for topic, ids in topics.items():
        name = topic.encode()
        chunks += encode_unsigned_varint(len(name) + 1), name
        if len(ids) == 1:
            chunks.append(_ONE_ID_V1.pack(2, ids[0]))
        else:
            chunks += encode_unsigned_varint(len(ids) + 1), pack(f">{len(ids)}ix", *ids)
    return b"".join(chunks)


def decode_record(key: Bytes, value: Bytes | None) -> tuple[str, TransitMetadata | None]:
    """The transactional id, and what became of it; None for a tombstone.

    Raises UnknownVersion for what Kafka passes over, CodecError for what makes no sense.
    """
    key_version = _version(key)
    if key_version != KEY_VERSION:
        raise UnknownVersion(f"a key of version {key_version}")
    transactional_id = decode(TransactionLogKey, 0, key, _INT16.size).transactional_id
    if value is None:
        return transactional_id, None
    version = _version(value)
    if version not in VALUE_VERSIONS:
        raise UnknownVersion(f"a value of version {version}")
    return transactional_id, _to_transit(decode(TransactionLogValue, version, value, _INT16.size))


def is_of_known_version(value: Bytes) -> bool:
    """Or makes no sense, which `decode_record` finds out."""
    return len(value) < _INT16.size or _INT16.unpack_from(value)[0] in VALUE_VERSIONS


def _version(data: Bytes) -> int:
    if len(data) < _INT16.size:
        raise CodecError(f"{len(data)} bytes where a version is expected")
    version: int = _INT16.unpack_from(data)[0]
    return version


def _to_transit(value: TransactionLogValue) -> TransitMetadata:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise CodecError(f"{value.transaction_status} is the id of no state of a transaction") from None
    if state in NEVER_LOGGED:
        raise CodecError(f"state {STATE_NAMES[state]} is in no log")
    if value.producer_id < 0:
        raise CodecError(f"{value.producer_id} is the id of no producer")
    if value.producer_epoch < 0:
        # A move from there is refused ever after; a prepared transaction would hang (Kafka: `prepareTransitionTo`).
        raise CodecError(f"producer {value.producer_id} has the epoch {value.producer_epoch}")
    if not 0 <= value.client_transaction_version <= HIGHEST_LEVEL:
        raise CodecError(f"transactions have no version {value.client_transaction_version}")
    partitions: TransactionPartitions = {}
    if state is not EMPTY:
        if value.transaction_partitions is None:
            raise CodecError(f"no list of partitions in state {state!r}")
        for topic in value.transaction_partitions:
            for partition in topic.partition_ids:
                partitions[topic.topic, partition] = None
    return TransitMetadata(
        state=state,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        last_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=value.transaction_timeout_ms,
        partitions=partitions,
        start_timestamp_ms=value.transaction_start_timestamp_ms,
        last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )
