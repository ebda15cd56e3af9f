"""Messages against the bytes that Kafka's own classes write: 2176 of them, every version of every message."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from protocol.wire.codec import decode, decoder, encode
from tests.golden.json_form import from_json, to_json
from tests.support.declared_messages import declared_messages

VECTORS = Path(__file__).parent / "vectors" / "messages.jsonl.gz"
DECLARED = declared_messages()

UNDECLARED = {
    # Streams groups (KIP-1071).
    *("StreamsGroupDescribeRequest", "StreamsGroupDescribeResponse"),
    *("StreamsGroupHeartbeatRequest", "StreamsGroupHeartbeatResponse"),
    *("StreamsGroupCurrentMemberAssignmentKey", "StreamsGroupCurrentMemberAssignmentValue"),
    *("StreamsGroupMemberMetadataKey", "StreamsGroupMemberMetadataValue"),
    *("StreamsGroupMetadataKey", "StreamsGroupMetadataValue"),
    *("StreamsGroupTargetAssignmentMemberKey", "StreamsGroupTargetAssignmentMemberValue"),
    *("StreamsGroupTargetAssignmentMetadataKey", "StreamsGroupTargetAssignmentMetadataValue"),
    *("StreamsGroupTopologyKey", "StreamsGroupTopologyValue"),
}


@cache
def vectors() -> dict[str, list[dict[str, Any]]]:
    """Lines {message, version, json, hex} by the message's name."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for line in gzip.decompress(VECTORS.read_bytes()).splitlines():
        vector = json.loads(line)
        by_name.setdefault(vector["message"], []).append(vector)
    return by_name


NAMES = sorted(DECLARED.keys() & vectors().keys())


@pytest.mark.parametrize("name", NAMES)
def test_a_message_decodes_to_the_fields_that_kafka_put_in(name: str) -> None:
    for vector in vectors()[name]:
        message = decode(DECLARED[name], vector["version"], bytes.fromhex(vector["hex"]))
        assert to_json(message, vector["version"]) == vector["json"]


@pytest.mark.parametrize("name", NAMES)
def test_a_message_is_decoded_to_its_last_byte(name: str) -> None:
    for vector in vectors()[name]:
        data = memoryview(bytes.fromhex(vector["hex"]))
        _, pos = decoder(DECLARED[name], vector["version"])(data, 0, len(data))
        assert pos == len(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_decoded_message_encodes_to_the_same_bytes(name: str) -> None:
    for vector in vectors()[name]:
        message = decode(DECLARED[name], vector["version"], bytes.fromhex(vector["hex"]))
        assert encode(message, vector["version"]).hex() == vector["hex"]


@pytest.mark.parametrize("name", NAMES)
def test_a_message_built_from_its_fields_encodes_to_kafkas_bytes(name: str) -> None:
    for vector in vectors()[name]:
        message = from_json(DECLARED[name], vector["json"], vector["version"])
        assert encode(message, vector["version"]).hex() == vector["hex"]


@pytest.mark.parametrize("name", NAMES)
def test_the_vectors_cover_every_version_of_a_message(name: str) -> None:
    first, last = DECLARED[name].VERSIONS
    assert {vector["version"] for vector in vectors()[name]} == set(range(first, last + 1))


def test_every_message_is_declared_but_those_that_no_single_broker_serves() -> None:
    assert vectors().keys() - DECLARED.keys() == UNDECLARED


def test_every_declared_message_has_vectors() -> None:
    assert DECLARED.keys() - vectors().keys() == set(), "`make golden` adds what is missing"
