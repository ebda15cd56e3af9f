"""What must be in a share group's dead letter queue, and what must not be, by what its members know
(`deliveries.py`).

1. What is there was rejected, as far as anybody knows, or was delivered as often as the group's limit says.
2. What was surely accepted, or surely never existed, isn't there.
3. Once all has settled, what was surely rejected is there, and so is what reached the delivery limit and was
   never acknowledged. That isn't demanded of what was deleted, nor where a queue was given up because it was out
   of reach for longer than it is asked again.
4. The original's value is copied, if the group wants that and the original isn't deleted.

A dead letter may be there twice: an answer got lost, or the broker died before it could write that down.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from unittest.mock import patch

from broker.shares.dead_letters import DeadLetterQueues, Dying
from coordinator.share_partition.states import AcknowledgeType
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.records.batch import Record, read_records, walk_batches
from tests.simulation.shares.deliveries import Deliveries, OfRecord, is_held
from tests.simulation.wire_client import WireClient
from tests.simulation.work import Place

PARTITIONS = 2
REJECT = AcknowledgeType.REJECT

Letters = dict[tuple[Place, int], list[bytes | None]]
"""The values in the queue, by place and offset of the original."""


@dataclass(eq=False, slots=True)
class Queue:
    """The queue of the group with these deliveries. `copies`: True if originals are copied."""

    name: str
    deliveries: Deliveries
    copies: bool
    letters: Letters = field(default_factory=dict)

    async def read(self, client: WireClient) -> None:
        """Read everything that is there now."""
        self.letters = {}
        for index in range(PARTITIONS):
            for record in await _records(client, self.name, index):
                headers = {key: (value or b"").decode() for key, value in record.headers}
                place = headers[b"__dlq.errors.topic"], int(headers[b"__dlq.errors.partition"])
                assert headers[b"__dlq.errors.group"] == self.deliveries.name
                assert place[1] % PARTITIONS == index
                found = self.letters.setdefault((place, int(headers[b"__dlq.errors.offset"])), [])
                found.append(None if record.value is None else bytes(record.value))

    def missing(self, begins: Mapping[Place, int], given_up: set[tuple[str, Place]]) -> Iterator[str]:
        """Yield what must be there and isn't. `begins`: records before these offsets were deleted."""
        for place, offset, of_record in self._records():
            if (
                (self.deliveries.name, place) in given_up
                or offset < begins[place]
                or (place, offset) in self.letters
            ):
                continue
            if any(
                told.is_final and told.kind == REJECT and is_held(told) for told in of_record.acknowledgements
            ):
                yield f"{place} at {offset} was rejected, and isn't in {self.name}"
            elif self._is_exhausted(of_record):
                yield f"{place} at {offset} was delivered as often as may be, and isn't in {self.name}"

    def complaints(
        self, everything: Mapping[Place, Mapping[int, bytes]], begins: Mapping[Place, int]
    ) -> Iterator[str]:
        """Yield complaints about what is there."""
        for (place, offset), values in sorted(self.letters.items(), key=str):
            of_record = self.deliveries.records.get(place, {}).get(offset) or OfRecord()
            if offset < begins[place]:
                continue
            told = of_record.acknowledgements
            may_be_rejected = any(each.may_be_final and each.kind == REJECT for each in told)
            if not may_be_rejected and not self._may_be_exhausted(place, of_record):
                yield f"{place} at {offset} is in {self.name}, and was neither rejected nor delivered too often"
            if any(each.is_final and each.kind != REJECT and is_held(each) for each in told):
                yield f"{place} at {offset} is in {self.name}, and was accepted"
            if not self.copies:
                expected: bytes | None = None
            elif offset in everything[place]:
                expected = everything[place][offset]
            else:
                continue  # a marker is copied, too, as in Kafka, and a missing record has nothing to copy
            if any(value != expected for value in values):
                yield f"{place} at {offset} is in {self.name} as {values!r}, and is {expected!r}"

    def _records(self) -> Iterator[tuple[Place, int, OfRecord]]:
        for place, records in self.deliveries.records.items():
            for offset, of_record in records.items():
                yield place, offset, of_record

    def _is_exhausted(self, of_record: OfRecord) -> bool:
        """Return True if it was delivered for the last time, and nothing may have ended it otherwise."""
        return any(each.count >= self.deliveries.limit for each in of_record.deliveries) and not any(
            each.may_be_final for each in of_record.acknowledgements
        )

    def _may_be_exhausted(self, place: Place, of_record: OfRecord) -> bool:
        known = max((each.count for each in of_record.deliveries), default=0)
        return known + self.deliveries.lost_of(place) >= self.deliveries.limit


async def _records(client: WireClient, topic: str, index: int) -> list[Record]:
    found: list[Record] = []
    end = 0

    async def poll() -> Error:
        nonlocal end
        asked = FetchPartition(partition=index, fetch_offset=len(found), partition_max_bytes=1 << 16)
        request = FetchRequest(
            max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[asked])]
        )
        answer = (await client.ask(request, 11)).responses[0].partitions[0]
        if answer.error_code:
            return Error(answer.error_code)
        end = answer.high_watermark
        data = memoryview(bytes(answer.records or b""))
        for position, header in walk_batches(data):
            records = read_records(data[position : position + header.size_bytes])
            found.extend(each for each in records if each.offset >= len(found))
        return Error.NONE

    while True:
        error = await client.insist(poll)
        assert error is Error.NONE, error
        if len(found) >= end:
            return found


@contextlib.contextmanager
def noted_where_given_up() -> Iterator[set[tuple[str, Place]]]:
    """Collect, by group, the partitions of which some broker gives up a dead letter."""
    given_up: set[tuple[str, Place]] = set()
    give_up = DeadLetterQueues._give_up

    def noted(queues: DeadLetterQueues, led: Dying, error: KafkaError) -> None:
        given_up.add((led.share.group_id, (led.partition.topic.name, led.partition.index)))
        give_up(queues, led, error)

    with patch.object(DeadLetterQueues, "_give_up", noted):
        yield given_up
