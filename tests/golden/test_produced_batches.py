"""Batches sent to Apache Kafka 4.3.1 by raw Produce requests: its answers, and what it stored.

Each vector holds the records field as sent, the topic's settings, Kafka's clock at that time, the answer and, where it
was a success, the batch as it then stood in the log.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import KafkaError
from protocol.records.batch import BATCH_OVERHEAD, crc_is_valid, read_header, read_records
from protocol.records.checks import (
    CheckedBatch,
    RecordRules,
    RecordValidationError,
    RequestFailedError,
    check_shape,
    validate,
)

VECTORS = Path(__file__).parent / "vectors" / "produced_batches.jsonl.gz"

PRODUCED = {
    vector["name"]: vector for vector in map(json.loads, gzip.decompress(VECTORS.read_bytes()).splitlines())
}
STORED = [name for name, vector in PRODUCED.items() if vector["stored"]]
Answer = tuple[int, list[list[Any]], str | None]


def _produce(vector: dict[str, Any]) -> CheckedBatch:
    sent = memoryview(bytearray.fromhex(vector["sent"]))
    size = check_shape(sent, vector["api_version"])
    return validate(sent[:size], RecordRules(**vector["rules"]), vector["now_ms"], vector["topic"], 0)


def _answer(vector: dict[str, Any]) -> Answer:
    """The error code, the errors by record, and the text."""
    try:
        _produce(vector)
    except RecordValidationError as failure:
        return failure.error, [[*error] for error in failure.record_errors], failure.message
    except (KafkaError, RequestFailedError) as failure:
        return failure.error, [], failure.message
    return 0, [], None


@pytest.mark.parametrize("name", PRODUCED)
def test_a_batch_gets_kafkas_answer(name: str) -> None:
    vector = PRODUCED[name]
    assert _answer(vector) == (vector["error"], vector["record_errors"], vector["error_message"])


@pytest.mark.parametrize("name", STORED)
def test_a_batch_is_stored_as_by_kafka(name: str) -> None:
    vector = PRODUCED[name]
    stored = bytes.fromhex(vector["stored"])
    ours, header = _produce(vector)
    assert header == read_header(ours)
    assert crc_is_valid(ours, 0, len(ours))
    # The log's to assign, and outside the CRC.
    kafkas = read_header(stored)._replace(base_offset=0)
    header = header._replace(partition_leader_epoch=kafkas.partition_leader_epoch)
    if ours[BATCH_OVERHEAD:] == stored[BATCH_OVERHEAD:]:
        assert header == kafkas
    else:  # packed by another library
        unpacked = {"batch_length": 0, "crc": 0}
        assert header._replace(**unpacked) == kafkas._replace(**unpacked)
        assert read_records(bytes(ours)) == [
            record._replace(offset=index) for index, record in enumerate(read_records(stored))
        ]


@pytest.mark.parametrize("name", [name for name in STORED if PRODUCED[name]["rules"] == {}])
def test_a_batch_that_keeps_its_codec_is_patched_where_it_lies(name: str) -> None:
    vector = PRODUCED[name]
    sent = memoryview(bytearray.fromhex(vector["sent"]))
    size = check_shape(sent, vector["api_version"])
    received = sent[:size]
    assert validate(received, RecordRules(), vector["now_ms"], vector["topic"], 0).batch is received
