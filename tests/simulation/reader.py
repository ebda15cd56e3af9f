"""Consumers of one partition, outside of any group."""

from __future__ import annotations

import asyncio

from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records.batch import ABORT, read_control_type, read_records, walk_batches
from tests.simulation.wire_client import NoAnswer, WireClient
from tests.simulation.work import Place, Work

READ_COMMITTED = 1
EARLIEST_TIMESTAMP = -2


class Reader:
    """A consumer of one partition. Now and then it starts again somewhere, and must get the same records."""

    def __init__(self, client: WireClient, work: Work, place: Place, *, committed: bool = True) -> None:
        self.client = client
        self.work = work
        self.place = place
        self.committed = committed
        self.offset = 0
        self.last_stable_offset = -1
        self.high_watermark = -1
        self.values: dict[int, bytes] = {}
        """What it was given, by offset."""
        self._bounds: dict[object, tuple[int, int]] = {}
        """High watermark and last stable offset by leader, as each one last reported: another leader may lag at
        first."""

    async def run(self) -> None:
        while True:
            if self.client.luck.random() < 0.05:
                self.offset = self.client.luck.randint(0, self.offset)
            try:
                error = await self.poll(max_wait_ms=400)
            except NoAnswer:
                await asyncio.sleep(0.3)
                continue
            if error is Error.OFFSET_OUT_OF_RANGE:
                self.offset = 0
            await asyncio.sleep(self.client.luck.expovariate(5))

    async def read_all(self, *, from_start: bool = False) -> dict[int, bytes]:
        """Read everything that it can get now. `from_start`: from the log start, which needn't be 0."""
        self.offset = 0
        self.values = {}
        if from_start or self.work.may_lose_of(self.place):  # even the first segment may be lost
            assert await self.client.insist(self._go_to_start) is Error.NONE
        while True:
            before = self.offset
            error = await self.client.insist(self.poll)
            if error is Error.OFFSET_OUT_OF_RANGE and from_start and not self.values:
                # another broker leads now, whose log was deleted further: each one records that by itself
                assert await self.client.insist(self._go_to_start) is Error.NONE
                continue
            assert error is Error.NONE, error
            bound = self.last_stable_offset if self.committed else self.high_watermark
            if self.offset >= bound:
                return self.values
            if self.offset == before:
                # a power loss took the end of a segment, and a transaction after it never ends
                if not self.work.may_lose_of(self.place):
                    self.work.complain(f"{self.place}: there is nothing to read from {before} up to {bound}")
                return self.values

    async def _go_to_start(self) -> Error:
        topic, index = self.place
        earliest = ListOffsetsPartition(partition_index=index, timestamp=EARLIEST_TIMESTAMP)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[earliest])])
        answer = (await self.client.ask(request, 7)).topics[0].partitions[0]
        self.offset = answer.offset
        return Error(answer.error_code)

    async def poll(self, max_wait_ms: int = 0) -> Error:
        topic, index = self.place
        start = self.offset
        asked = FetchPartition(partition=index, fetch_offset=start, partition_max_bytes=1 << 14)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=READ_COMMITTED if self.committed else 0,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        answer = (await self.client.ask(request, 11)).responses[0].partitions[0]
        if answer.error_code:
            return Error(answer.error_code)
        self.last_stable_offset, self.high_watermark = answer.last_stable_offset, answer.high_watermark
        self._check_bounds()
        data = memoryview(bytes(answer.records or b""))
        aborted = sorted(
            ((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()),
            reverse=True,
        )
        being_aborted: set[int] = set()
        expected = None
        for position, header in walk_batches(data):
            if expected is not None and header.base_offset != expected:
                self.work.complain(f"{self.place}: {header.base_offset} follows {expected}")
            expected = header.last_offset + 1
            while aborted and aborted[-1][0] <= header.last_offset:
                being_aborted.add(aborted.pop()[1])
            records = [*read_records(data[position : position + header.size_bytes])]
            if header.is_control:
                if read_control_type(records[0].key) == ABORT:
                    being_aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in being_aborted):
                for each in records:
                    if each.offset >= start:
                        self._given(each.offset, bytes(each.value or b""))
            self.offset = max(start, header.last_offset + 1)
        return Error.NONE

    def _check_bounds(self) -> None:
        leader, bounds = self.client.asked_in, (self.high_watermark, self.last_stable_offset)
        if not leader:
            return
        known = self._bounds.get(leader, bounds)
        if bounds[0] < known[0] or bounds[1] < known[1]:
            self.work.complain(f"{self.place}: {leader} goes back from {known} to {bounds}")
        self._bounds[leader] = bounds

    def _given(self, offset: int, value: bytes) -> None:
        self.values[offset] = value
        seen = self.work.seen if self.committed else self.work.seen_uncommitted
        known = seen.setdefault(self.place, {}).setdefault(offset, value)
        if known != value:
            self.work.complain(f"{self.place}: offset {offset} is {value!r}, and was {known!r}")
