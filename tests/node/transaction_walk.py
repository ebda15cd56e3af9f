"""One transaction, step by step, as docs/transactions.md shows it: what is asked and answered, which records each step
leaves, and their bytes. A broker of its own makes all of it, on a clock that stands still.

`python -m tests.node.transaction_walk` renews the blocks of the document.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli.inspecting.batch_bytes import fields_of_batch
from cli.inspecting.decoding import control, decoded, decoder_of
from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.transactions import (
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import build_batch, read_records, walk_batches
from protocol.wire.schema import Message
from tests.golden.json_form import to_json
from tests.support.whole_server import started
from tests.support.wire import Client

DOCUMENT = Path(__file__).parents[2] / "docs" / "transactions.md"
NOW_MS = 1_800_000_000_000
SETTINGS = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
LOGS = ("__transaction_state-0", "payments-0", "payments-1", "__consumer_offsets-0")
_LEFT_OUT = frozenset(
    (
        "client_transaction_version", "commit_timestamp_ms", "committedLeaderEpoch", "committedMetadata",
        "currentLeaderEpoch", "errorMessage", "expire_timestamp_ms", "generationIdOrMemberEpoch", "groupInstanceId",
        "last_producer_epoch", "last_update_timestamp_ms", "leaderEpoch", "leader_epoch", "logAppendTimeMs",
        "logStartOffset", "memberId", "metadata", "next_producer_id", "nodeEndpoints", "port", "previous_producer_id",
        "recordErrors", "records", "replicaId", "start_timestamp_ms", "throttleTimeMs", "timeout_ms", "timestamp",
        "topic_id",
    )
)  # fmt: skip
"""Fields that say nothing here, or differ each time."""
_NOT_YET = frozenset((Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS))


class Walk:
    """A walk through one transaction. `blocks` has the blocks by their names in the document."""

    def __init__(self, folder: Path, client: Client) -> None:
        self.blocks: dict[str, str] = {}
        self._folder = folder
        self._client = client
        self._seen = dict.fromkeys(LOGS, 0)

    async def step(self, name: str, request: Message, version: int) -> Any:
        """Send the request, and add a block with the answer and the records that it left."""
        answer = await self._client.answer(request, version)
        asked = f"{type(request).__name__.removesuffix('Request')} v{version}"
        lines = [f"> {asked} {_shown(to_json(request, version))}", f"< {_shown(to_json(answer, version))}"]
        for log in LOGS:
            lines += self._new_records(log)
        self.blocks[name] = "\n".join(lines)
        return answer

    def _new_records(self, log: str) -> Iterator[str]:
        for batch, header in self._batches(log):
            is_new = header.base_offset >= self._seen[log]
            if not is_new:
                continue
            self._seen[log] = header.last_offset + 1
            decoder = decoder_of(log.rpartition("-")[0])
            for record in read_records(batch):
                if header.is_control:
                    found = control(record)
                elif decoder is not None:
                    found = decoded(decoder, record)
                else:
                    yield f"{log} @{record.offset}: {record.value!r}, producer id {header.producer_id}, transactional"
                    continue
                yield f"{log} @{record.offset}: {found.type} {_shown(found.value)}"

    def _batches(self, log: str) -> Iterator[tuple[bytes, Any]]:
        file = self._folder / log / f"{0:020}.log"
        data = file.read_bytes() if file.exists() else b""
        for position, header in walk_batches(data):
            yield data[position : position + header.size_bytes], header

    def bytes_of(self, name: str, log: str, number: int) -> None:
        """Add a block with a batch of a log, field by field."""
        batch, _ = [*self._batches(log)][number]
        rows = []
        for field in fields_of_batch(batch):
            raw = batch[field.at : field.at + field.size].hex(" ")
            rows.append(f"{field.at:4}  {'  ' * field.depth}{field.name:22} {raw}")
        self.blocks[name] = "\n".join(row.rstrip() for row in rows)


def _shown(value: object) -> str:
    return json.dumps(_without(value))


def _without(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without(each) for name, each in value.items() if name not in _LEFT_OUT}
    return [_without(each) for each in value] if isinstance(value, list) else value


def _records(producer_id: int, sequence: int, value: bytes) -> memoryview:
    batch = build_batch(
        [(NOW_MS, None, value, ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    return memoryview(bytes(batch))


async def walked() -> dict[str, str]:
    """Return the blocks of a whole transaction."""
    with tempfile.TemporaryDirectory() as folder:
        node = await started(Path(folder), *SETTINGS, now_ms=NOW_MS)
        try:
            [listener] = node.listeners.values()
            with Client.connect(listener.port) as client:
                walk = Walk(Path(folder), client)
                await _walk(walk, client)
                return walk.blocks
        finally:
            await node.stop()


async def _walk(walk: Walk, client: Client) -> None:
    topic = CreatableTopic(name="payments", num_partitions=2, replication_factor=1)
    await client.answer(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    for key_type, key in ((0, "auditors"), (1, "payer")):
        await _coordinated(client, key_type, key)
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["payer"])
    await walk.step("find", find, 6)
    init = InitProducerIdRequest(
        transactional_id="payer", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    producer_id = (await walk.step("init", init, 5)).producer_id
    for index, value in enumerate((b"ten", b"twenty")):
        data = [PartitionProduceData(index=index, records=_records(producer_id, 0, value))]
        produce = ProduceRequest(
            transactional_id="payer",
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="payments", partition_data=data)],
        )
        await walk.step(f"produce {index}", produce, 12)
    walk.bytes_of("bytes of a record", "payments-0", 0)
    ends = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=1,
        topics=[
            ListOffsetsTopic(
                name="payments", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
            )
        ],
    )
    await walk.step("stable before", ends, 7)
    offsets = TxnOffsetCommitRequest(
        transactional_id="payer",
        group_id="auditors",
        producer_id=producer_id,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="payments",
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
        ],
    )
    await walk.step("offsets", offsets, 5)
    end = EndTxnRequest(transactional_id="payer", producer_id=producer_id, producer_epoch=0, committed=True)
    await walk.step("end", end, 5)
    walk.bytes_of("bytes of a marker", "payments-0", 1)
    await walk.step("stable after", ends, 7)


async def _coordinated(client: Client, key_type: int, key: str) -> None:
    """Wait until there is a coordinator: its topic is created when somebody first asks for it."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    while True:
        [found] = (await client.answer(request, 6)).coordinators
        if Error(found.error_code) not in _NOT_YET:
            return
        await asyncio.sleep(0)


_BLOCK = re.compile(r"(<!-- walk: ([\w ]+) -->\n```text\n)(.*?)(```)", re.DOTALL)


def renewed(document: str, blocks: dict[str, str]) -> str:
    """Return the document with these blocks. Raises KeyError if it has a block that isn't among them."""
    return _BLOCK.sub(lambda found: f"{found[1]}{blocks[found[2]]}\n{found[4]}", document)


def names(document: str) -> list[str]:
    """Return the names of the blocks in the document."""
    return [found[2] for found in _BLOCK.finditer(document)]


if __name__ == "__main__":
    DOCUMENT.write_text(renewed(DOCUMENT.read_text("utf-8"), asyncio.run(walked())), "utf-8")
