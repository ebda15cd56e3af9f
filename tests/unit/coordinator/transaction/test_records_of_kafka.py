"""Records of `__transaction_state` that Apache Kafka wrote. They are read, and written again byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.transaction.state_manager import decode_record, encode_key, encode_value
from protocol.records.batch import Record, read_header, read_records
from tests.support.kafka_folders import NAMES, unpack


def records_of(log: bytes) -> list[Record]:
    found: list[Record] = []
    position = 0
    while len(log) - position > 61 and (header := read_header(log, position)) is not None:
        found += read_records(log[position : position + header.size_bytes])
        position += header.size_bytes
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_written_again_as_kafka_wrote_it(name: str, tmp_path: Path) -> None:
    logs = sorted(unpack(name, tmp_path).glob("__transaction_state-*/*.log"))
    records = [record for log in logs for record in records_of(log.read_bytes())]
    assert len(records) > 20
    for record in records:
        assert record.key is not None
        transactional_id, transit = decode_record(record.key, record.value)
        assert encode_key(transactional_id) == bytes(record.key)
        if record.value is None:
            assert transit is None
        else:
            assert transit is not None
            assert encode_value(transit, record.value[1]) == bytes(record.value)
