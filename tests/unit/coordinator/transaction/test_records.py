"""Records of `__transaction_state`, byte by byte and back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.transaction.state_manager import (
    TransactionPartitions,
    TransitMetadata,
    UnknownVersion,
    decode_record,
    encode_key,
    encode_value,
)
from coordinator.transaction.states import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, TransactionState
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.transactions import PartitionsSchema, TransactionLogValue
from protocol.wire.codec import encode
from tests.unit.coordinator.transaction.coordinator import T0, T1, Coordinator


def transit(state: TransactionState = ONGOING, **fields: object) -> TransitMetadata:
    it = TransitMetadata(
        state=state,
        producer_id=7,
        previous_producer_id=7,
        next_producer_id=-1,
        producer_epoch=5,
        last_producer_epoch=-1,
        timeout_ms=60_000,
        partitions={T0: None, ("topic", 2): None, T1: None},
        start_timestamp_ms=1000,
        last_update_timestamp_ms=2000,
        client_transaction_version=0,
    )
    return replace(it, **fields)  # type: ignore[arg-type]


EMPTY_V1 = transit(EMPTY, partitions={}, start_timestamp_ms=-1)


def test_the_key_is_version_0_and_the_transactional_id() -> None:
    assert encode_key("ab") == bytes.fromhex("0000 0002 6162")


def test_a_value_of_version_0_has_room_for_neither_other_ids_nor_the_clients_version() -> None:
    assert encode_value(transit(), 0) == bytes.fromhex(
        "0000 0000000000000007 0005 0000ea60 01"
        "00000002 0001 74 00000002 00000000 00000001  0005 746f706963 00000001 00000002"
        "00000000000007d0 00000000000003e8"
    )


def test_a_value_of_version_1_is_flexible_and_holds_the_id_before_as_tag_0() -> None:
    assert encode_value(transit(), 1) == bytes.fromhex(
        "0001 0000000000000007 0005 0000ea60 01"
        "03 02 74 03 00000000 00000001 00  06 746f706963 02 00000002 00"
        "00000000000007d0 00000000000003e8"
        "01 00 08 0000000000000007"
    )


def test_an_empty_one_has_null_for_partitions_and_45_bytes() -> None:
    value = encode_value(EMPTY_V1, 2)
    assert value == bytes.fromhex(
        "0001 0000000000000007 0005 0000ea60 00 00 00000000000007d0 ffffffffffffffff 01 00 08 0000000000000007"
    )
    assert len(value) == 45
    assert (
        encode_value(EMPTY_V1, 0)
        .hex()
        .endswith("00 ffffffff 00000000000007d0 ffffffffffffffff".replace(" ", ""))
    )


def test_a_complete_one_has_an_empty_list_of_partitions() -> None:
    value = encode_value(transit(COMPLETE_COMMIT, partitions={}), 0)
    assert value == bytes.fromhex(
        "0000 0000000000000007 0005 0000ea60 04 00000000 00000000000007d0 00000000000003e8"
    )


def test_all_tags_but_the_next_epoch_are_written_if_set() -> None:
    value = encode_value(
        transit(
            PREPARE_COMMIT,
            producer_epoch=32767,
            next_producer_id=8,
            client_transaction_version=2,
            partitions={},
        ),
        2,
    )
    assert value.endswith(
        bytes.fromhex("03  00 08 0000000000000007  01 08 0000000000000008  02 02 0002"),
    )


MANY = {(f"{'t' * 126}{topic}", number): None for topic in range(200) for number in range(3)}


@pytest.mark.parametrize("client_transaction_version", [0, 1, 2])
@pytest.mark.parametrize(
    ("previous_producer_id", "next_producer_id"), [(-1, -1), (7, -1), (-1, 9), (2**63 - 1, 9)]
)
@pytest.mark.parametrize(
    ("state", "partitions"),
    [
        (EMPTY, {}),
        (COMPLETE_COMMIT, {}),
        (ONGOING, {T0: None}),
        (PREPARE_COMMIT, {("t" * 126, 2**31 - 1): None, ("ö" * 249, 0): None}),
        (ONGOING, dict.fromkeys(("topic", number) for number in range(126))),
        (ONGOING, dict.fromkeys(("topic", number) for number in range(20_000))),
        (ONGOING, MANY),
    ],
)
def test_a_value_of_version_1_follows_its_schema(
    state: TransactionState,
    partitions: TransactionPartitions,
    previous_producer_id: int,
    next_producer_id: int,
    client_transaction_version: int,
) -> None:
    written = transit(
        state,
        partitions=partitions,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        client_transaction_version=client_transaction_version,
    )
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    said = TransactionLogValue(
        producer_id=written.producer_id,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=written.producer_epoch,
        transaction_timeout_ms=written.timeout_ms,
        transaction_status=state,
        transaction_partitions=None
        if state is EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()],
        transaction_last_update_timestamp_ms=written.last_update_timestamp_ms,
        transaction_start_timestamp_ms=written.start_timestamp_ms,
        client_transaction_version=client_transaction_version,
    )
    assert encode_value(written, 1) == b"\0\1" + encode(said, 1)


def test_fields_that_version_0_lacks_are_refused_at_level_0() -> None:
    with pytest.raises(KafkaError) as refused:
        encode_value(transit(client_transaction_version=2), 0)
    assert refused.value.error is Error.UNSUPPORTED_VERSION


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(
    "written",
    [
        transit(),
        EMPTY_V1,
        transit(PREPARE_COMMIT, next_producer_id=9, producer_epoch=32767, client_transaction_version=2),
        transit(COMPLETE_COMMIT, partitions={}, previous_producer_id=3, client_transaction_version=2),
    ],
)
def test_a_record_is_read_as_it_was_written(written: TransitMetadata, level: int) -> None:
    assert decode_record(encode_key("x"), encode_value(written, level)) == ("x", written)


def test_version_0_is_read_without_the_fields_that_it_lacks() -> None:
    assert decode_record(encode_key("x"), encode_value(transit(), 0)) == (
        "x",
        transit(previous_producer_id=-1),
    )


def test_a_tombstone_has_no_value() -> None:
    assert decode_record(encode_key("x"), None) == ("x", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\1\0\1x", b"\0\0"),
        (b"\0\1", None),
        (encode_key("x"), b"\0\2rest"),
        (encode_key("x"), b"\xff\xff"),
    ],
)
def test_versions_of_a_newer_kafka_are_skipped(
    key: bytes, value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UnknownVersion):
        decode_record(key, value)
    it = Coordinator()
    it.put(ONGOING, 7, 5)
    it.shard.replay(key, value, 12, -1)
    assert it.state == "Ongoing", "what was known before stays"
    assert "offset 12" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\0\0\5x", None),
        (encode_key("x"), b""),
        (encode_key("x"), encode_value(transit(), 1)[:-3]),
        (encode_key("x"), encode_value(transit(), 0)[:20]),
        (
            encode_key("x"),
            encode_value(EMPTY_V1, 0)[:16] + b"\x08" + encode_value(EMPTY_V1, 0)[17:],
        ),  # the state 8 doesn't exist
        (
            encode_key("x"),
            encode_value(EMPTY_V1, 0)[:16] + b"\x01" + encode_value(EMPTY_V1, 0)[17:],
        ),  # this state has to have partitions
        (encode_key("x"), encode_value(transit(client_transaction_version=3), 1)),
    ],
)
def test_a_nonsense_record_raises_an_error_of_the_codec(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CodecError):
        decode_record(key, value)


def test_partitions_of_an_empty_transaction_are_not_read() -> None:
    value = encode_value(transit(COMPLETE_COMMIT), 0)
    _, found = decode_record(encode_key("x"), value[:16] + b"\0" + value[17:])
    assert found is not None
    assert found.partitions == {}


def test_the_records_of_a_transactions_steps_at_level_2() -> None:
    it = Coordinator()
    me = it.begun(T0, version=0)
    it.runtime.pass_ms(5)
    assert it.end(*me, commit=True) == (7, 1)
    assert it.init() == (7, 2)
    found = [value for _, value in it.records() if value is not None]
    assert [(each.client_transaction_version, each.previous_producer_id) for each in found] == [
        (0, 7),
        (0, 7),
        (2, 7),
        (2, 7),
        (2, 7),
    ]
    now_ms = it.runtime.now_ms()
    assert [each.start_timestamp_ms for each in found] == [-1, now_ms - 5, now_ms - 5, now_ms - 5, -1]
    assert [each.last_update_timestamp_ms - now_ms for each in found] == [-5, -5, 0, 0, 0]
    assert [[*each.partitions] for each in found] == [[], [T0], [T0], [], []]


def test_a_level_that_goes_down_again_writes_version_0_from_then_on() -> None:
    it = Coordinator(level=1)
    me = it.begun(version=0)
    it.level = 0
    it.end(*me, commit=True, version=0)
    assert [value[:2] for (_, value), _ in it.runtime.log if value] == [b"\0\1"] * 2 + [b"\0\0"] * 2
    assert it.restarted().state == "CompleteCommit"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"state": TransactionState.DEAD}, "state Dead is never logged"),
        ({"state": TransactionState.PREPARE_EPOCH_FENCE}, "state PrepareEpochFence is never logged"),
        ({"state": PREPARE_COMMIT, "producer_epoch": -1}, "producer 7 has the epoch -1"),
        ({"producer_id": -1}, "-1 is no producer id"),
    ],
)
def test_a_record_of_a_transaction_that_can_not_be_is_refused(fields: dict[str, object], why: str) -> None:
    with pytest.raises(CodecError, match=why):
        decode_record(encode_key("pay"), encode_value(transit(**fields), 1))  # type: ignore[arg-type]
