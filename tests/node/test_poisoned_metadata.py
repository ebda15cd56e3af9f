"""Poisoned records of the metadata log: the start is refused in one line with file and offset, or they do no harm.

`POISONED_ROUNDS=500` tries so many seeds (`make poisoned`); `POISONED_FROM` is the first one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.config.definitions import StartError
from broker.controller.image import ClusterImage, MetadataContradictionError
from broker.controller.metadata_versions import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    OLDEST_METADATA_VERSION,
    encode_metadata_record,
)
from broker.environment.environment import Environment
from broker.handlers import elect_leaders
from broker.handlers.allocate_producer_ids import LAST_PRODUCER_ID
from broker.server import Server
from broker.starting import start
from protocol.messages import metadata_records
from protocol.records.batch import build_batch, patch_offset_and_epoch
from protocol.wire.schema import Field, Message, Struct
from storage.log.log_state import AppendOrigin
from tests.node.compacted import append
from tests.node.metadata_requests import Request, Requests, asked, of_all, told
from tests.node.transactional import create
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.whole_server import configured, crash, started

FIRST = int(os.environ.get("POISONED_FROM", "0"))
REQUESTS = 25
ROUNDS = int(os.environ.get("POISONED_ROUNDS", "10"))

KINDS = [
    kind
    for kind in vars(metadata_records).values()
    if isinstance(kind, type) and issubclass(kind, Message) and kind.API_KEY >= 0
]
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("t", "", "../t", "\x00", "ü" * 100, "segment.bytes", "metadata.version", "-1", "__consumer_offsets")


class Poisoner:
    """Makes metadata records whose fields hold what nobody would write there, and now and then ids that exist."""

    def __init__(self, chance: Random, topic_id: bytes, node_id: int) -> None:
        self.chance = chance
        self.topic_id = topic_id
        self.node_id = node_id

    def value(self) -> bytes | None:
        chance = self.chance
        kind = chance.choice(KINDS)
        low, high = kind.VERSIONS
        version = chance.randint(low, high)
        record = self.struct(kind, version)
        value = encode_metadata_record(record, version)
        what = chance.randrange(12)
        if what == 0:
            return None
        if what == 1:
            return value[: chance.randrange(len(value))]
        if what == 2:
            place = chance.randrange(len(value))
            return value[:place] + bytes([value[place] ^ 1 << chance.randrange(8)]) + value[place + 1 :]
        return value

    def struct(self, kind: type[Struct], version: int) -> Any:
        return kind(
            **{field.name: self.of(field, version) for field in kind.FIELDS if field.in_version(version)}
        )

    def of(self, field: Field, version: int) -> Any:
        chance = self.chance
        if field.nullable_in(version) and chance.random() < 0.3:
            return None
        kind = field.kind
        if kind in BITS:
            bound = 1 << BITS[kind] - 1
            return chance.choice((0, 1, 2, -1, self.node_id, bound - 1, -bound))
        if kind in ("uint16", "uint32"):
            return chance.choice((0, 1, 2 ** int(kind[4:]) - 1))
        if kind == "array":
            return [self.element(field, version) for _ in range(chance.randrange(3))]
        if kind == "struct":
            return self.struct(field.element, version)  # type: ignore[arg-type]
        return {
            "boolean": lambda: chance.random() < 0.5,
            "float64": lambda: chance.choice((0.0, -1.0, float("inf"), 1e308)),
            "string": lambda: chance.choice(TEXTS),
            "binary": lambda: chance.choice((b"", b"\xff" * 20)),
            "uuid": lambda: chance.choice((self.topic_id, bytes(16), b"\x07" * 16)),
        }[kind]()

    def element(self, field: Field, version: int) -> Any:
        if isinstance(field.element, type):
            return self.struct(field.element, version)
        return self.of(Field(str(field.element), "0+", None), version)


def poison(node: Server, values: list[bytes | None]) -> int:
    """Append records that nobody decided. Returns the offset of the first one."""
    log = node.metadata.log
    batch = build_batch([(1, None, value, ()) for value in values])
    offset = log.log_end_offset
    patch_offset_and_epoch(batch, 0, offset, node.metadata.epoch)
    log.append(batch, leader_epoch=-1, now_ms=1, origin=AppendOrigin.REPLICATION)
    return offset


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def failures(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the logged lines with a traceback."""
    return [record for record in caplog.records if record.exc_info and record.levelno >= logging.INFO]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
async def test_a_poisoned_metadata_log_is_refused_in_one_line_or_does_no_harm(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chance = Random(seed)
    node = await started(tmp_path)
    create(node, "t")
    append(node, b"k")
    poisoner = Poisoner(chance, node.metadata.image.topics["t"].topic_id, node.node_id)
    first = poison(node, [poisoner.value() for _ in range(chance.randrange(1, 4))])
    crash(node)
    await node.background.finish()
    before = contents(tmp_path)
    caplog.clear()
    refusal = ""
    try:
        again = await start(configured(tmp_path), Environment.of_this_machine(ManualClock(), files))
    except StartError as error:
        refusal = str(error)
    if refusal:
        assert "\n" not in refusal
        assert f"{tmp_path}/__cluster_metadata-0/" in refusal
        assert any(f"offset {offset}:" in refusal for offset in range(first, first + 3)), refusal
        after = contents(tmp_path)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert all(name.endswith((".snapshot", ".index", ".timeindex")) for name in changed), changed
        return
    try:
        for request in of_all(again.metadata.image):
            answer = asked(again, request)
            while told(request, answer) is None:
                await asyncio.sleep(0)
        requests = Requests(chance)
        for _ in range(REQUESTS):
            asked(again, requests.draw())
        assert not failures(caplog)
    finally:
        await again.stop()
    assert again.failure is None
    third = await start(configured(tmp_path), Environment.of_this_machine(ManualClock(), files))
    await third.stop()
    assert not failures(caplog)


def test_two_topics_of_one_id_contradict_each_other() -> None:
    image = ClusterImage()
    image.apply(metadata_records.TopicRecord(name="a", topic_id=b"T" * 16))
    with pytest.raises(MetadataContradictionError, match="topic b has the id of topic a"):
        image.apply(metadata_records.TopicRecord(name="b", topic_id=b"T" * 16))
    assert [*image.topics] == ["a"]


@pytest.mark.parametrize("level", [-1, 0, OLDEST_METADATA_VERSION - 1, LATEST_METADATA_VERSION + 1])
def test_a_metadata_version_that_is_not_known_is_refused(level: int) -> None:
    record = metadata_records.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
    with pytest.raises(MetadataContradictionError, match=f"there is no metadata.version {level}"):
        ClusterImage().apply(record)


async def test_producer_ids_end_and_nothing_else_does(tmp_path: Path) -> None:
    node = await started(tmp_path)
    last = LAST_PRODUCER_ID - 1000
    node.metadata.append([metadata_records.ProducerIdsRecord(next_producer_id=last)])
    requests = Requests(Random(0))
    found = [told(requests.begin(), asked(node, requests.begin())) for _ in range(1001)]
    assert [each["producer_id"] for each in found] == [*range(last, LAST_PRODUCER_ID), -1]
    assert found[-1]["error_code"] != "0 NONE"


async def test_a_partition_without_replicas_needs_no_election(tmp_path: Path) -> None:
    node = await started(tmp_path)
    topic_id = b"T" * 16
    node.metadata.append(
        [
            metadata_records.TopicRecord(name="t", topic_id=topic_id),
            metadata_records.PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[], leader=-1),
        ]
    )
    fields = {
        "election_type": 0,
        "topic_partitions": [{"topic": "t", "partitions": [0]}],
        "timeout_ms": 1000,
    }
    (found,) = told(request := Request(elect_leaders, 43, 2, fields), asked(node, request))[
        "replica_election_results"
    ]
    assert found["partition_result"][0]["error_code"] == "84 ELECTION_NOT_NEEDED"
