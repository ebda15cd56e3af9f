"""Record batches against those of Kafka's own builder: every codec, every kind of producer, formats 0 to 2."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from protocol.records.batch import (
    ABORT,
    BATCH_OVERHEAD,
    COMMIT,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POS,
    Record,
    build_batch,
    build_end_txn_marker,
    compression,
    crc_is_valid,
    parse_records,
    read_header,
    read_records,
    walk_batches,
)
from protocol.records.checks import walk_records
from tests.support.legacy_records import read_legacy_records

VECTORS = Path(__file__).parent / "vectors" / "record_batches.jsonl.gz"


def _load() -> dict[str, tuple[bytes, dict[str, Any]]]:
    """The bytes of the batch and what is in it, by the vector's name."""
    loaded = {}
    for line in gzip.decompress(VECTORS.read_bytes()).splitlines():
        vector = json.loads(line)
        (batch,) = vector["batches"]
        loaded[vector["name"]] = (bytes.fromhex(vector["hex"]), batch)
    return loaded


BATCHES = _load()
CURRENT = [name for name, (data, _) in BATCHES.items() if data[MAGIC_POS] == MAGIC]
LEGACY = [name for name in BATCHES if name not in CURRENT]
UNCOMPRESSED = [name for name in CURRENT if BATCHES[name][1]["compression"] == "none"]
COMPRESSED = [name for name in CURRENT if name not in UNCOMPRESSED]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _records(batch: dict[str, Any]) -> list[Record]:
    return [
        Record(
            record["offset"],
            record["timestamp"],
            record["sequence"],
            _bytes(record["key"]),
            _bytes(record["value"]),
            tuple((key.encode(), _bytes(value)) for key, value in record["headers"]),
        )
        for record in batch["records"]
    ]


def _build(data: bytes, batch: dict[str, Any]) -> bytes:
    """A batch of the vector's records, by our own builder."""
    append_time = batch["maxTimestamp"] if batch["timestampType"] == "LogAppendTime" else None
    records = _records(batch)
    if append_time:
        # It hides the records' own times, which are in the batch all the same.
        records = parse_records(read_header(data)._replace(attributes=0), data[BATCH_OVERHEAD:])
    return bytes(
        build_batch(
            [(record.timestamp, record.key, record.value, record.headers) for record in records],
            base_offset=batch["baseOffset"],
            leader_epoch=batch["partitionLeaderEpoch"],
            producer_id=batch["producerId"],
            producer_epoch=batch["producerEpoch"],
            base_sequence=batch["baseSequence"],
            transactional=batch["transactional"],
            control=batch["control"],
            codec=compression.CODEC_NAMES.index(batch["compression"]),
            log_append_time=append_time,
        )
    )


@pytest.mark.parametrize("name", CURRENT)
def test_a_header_reads_as_kafka_wrote_it(name: str) -> None:
    data, batch = BATCHES[name]
    header = read_header(data)
    assert {
        "magic": header.magic,
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "compression": compression.CODEC_NAMES[header.compression],
        "timestampType": "LogAppendTime" if header.timestamp_type == LOG_APPEND_TIME else "CreateTime",
        "maxTimestamp": header.max_timestamp,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "crc": header.crc,
    } == {key: value for key, value in batch.items() if key != "records"}


@pytest.mark.parametrize("name", CURRENT)
def test_the_crc_is_kafkas(name: str) -> None:
    data, _ = BATCHES[name]
    assert crc_is_valid(data, 0, len(data))


@pytest.mark.parametrize("name", CURRENT)
def test_a_walk_over_a_log_of_the_batch_thrice_finds_it_thrice(name: str) -> None:
    data, _ = BATCHES[name]
    header = read_header(data)
    assert [*walk_batches(data * 3)] == [(pos, header) for pos in (0, len(data), 2 * len(data))]


@pytest.mark.parametrize("name", CURRENT)
def test_the_records_are_those_that_kafka_wrote(name: str) -> None:
    data, batch = BATCHES[name]
    assert read_records(data) == _records(batch)


@pytest.mark.parametrize("name", CURRENT)
def test_the_records_pass_the_walk_that_producers_batches_pass(name: str) -> None:
    data, batch = BATCHES[name]
    header = read_header(data)
    payload = compression.decompress(header.compression, data[BATCH_OVERHEAD:])
    shape = walk_records(payload, header.records_count)
    assert shape.offsets_are_consecutive
    assert shape.has_null_key == any(record["key"] is None for record in batch["records"])


@pytest.mark.parametrize("name", UNCOMPRESSED)
def test_a_batch_of_the_same_records_has_kafkas_bytes(name: str) -> None:
    data, batch = BATCHES[name]
    assert _build(data, batch).hex() == data.hex()


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_compressed_batch_of_the_same_records_differs_from_kafkas_only_in_its_packing(name: str) -> None:
    data, batch = BATCHES[name]
    built = _build(data, batch)
    unpacked = {"batch_length": 0, "crc": 0}
    assert read_header(built)._replace(**unpacked) == read_header(data)._replace(**unpacked)
    codec = read_header(data).compression
    assert compression.decompress(codec, built[BATCH_OVERHEAD:]) == compression.decompress(
        codec, data[BATCH_OVERHEAD:]
    )


@pytest.mark.parametrize(("name", "control_type"), [("marker/COMMIT", COMMIT), ("marker/ABORT", ABORT)])
def test_a_marker_has_kafkas_78_bytes(name: str, control_type: int) -> None:
    data, batch = BATCHES[name]
    marker = build_end_txn_marker(
        control_type,
        coordinator_epoch=6,
        producer_id=batch["producerId"],
        producer_epoch=batch["producerEpoch"],
        timestamp=batch["maxTimestamp"],
        base_offset=batch["baseOffset"],
        leader_epoch=batch["partitionLeaderEpoch"],
    )
    assert len(marker) == 78
    assert marker.hex() == data.hex()


@pytest.mark.parametrize("name", LEGACY)
def test_records_of_older_formats_equal_those_that_kafka_wrote(name: str) -> None:
    data, batch = BATCHES[name]
    assert read_legacy_records(data) == _records(batch)
