"""The metadata's records to bytes and back."""

from __future__ import annotations

import pytest

from broker.controller import image
from broker.controller import metadata_versions as record_serde
from broker.controller.metadata_versions import decode_metadata_record, encode_metadata_record
from protocol.errors import CodecError
from protocol.messages import metadata_records as records

TOPIC_ID = b"T" * 16


def test_every_kind_of_record_has_its_place() -> None:
    bracketing = {
        records.BeginTransactionRecord,
        records.EndTransactionRecord,
        records.AbortTransactionRecord,
    }
    assert set(record_serde._TYPES.values()) == set(image._REPLAY) | bracketing


@pytest.mark.parametrize("value", [b"", b"\x02\x02\x00", b"\x01\x7f\x00", b"\x01\x02\x00\x05a"])
def test_a_value_that_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(CodecError):
        decode_metadata_record(value)


def test_a_head_of_longer_numbers_is_read_as_such_whatever_came_before() -> None:
    """The type takes two bytes here. Other values with the same first three bytes are another record, or none."""
    kind = records.TopicRecord(name="a", topic_id=TOPIC_ID)
    value = encode_metadata_record(kind, 0)
    assert value[1] == 2
    longer = value[:1] + b"\x82\x00" + value[2:]
    for _ in range(2):
        assert decode_metadata_record(longer) == kind
        assert decode_metadata_record(value) == kind
