"""Batches that take long to check, and a stand-in for the threads that check them, which a test controls."""

from __future__ import annotations

import asyncio
from typing import Any

from protocol.errors import Error
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.compression import ZSTD
from protocol.records.validation_budget import LITTLE
from tests.support.record_bytes import batch, record
from tests.support.wire import Outcome

LONG = batch([record(0, value=bytes(LITTLE.unpacked_bytes))], attributes=ZSTD)
SHORT = batch([record(0)])


class Held:
    """Holds computations back until the test lets them go. They count as begun, so they can't be cancelled."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any]] = []
        self._asker: Any = None

    def __call__(self, compute: Any, then: Any, asker: Any) -> None:
        self.waiting.append((compute, then))
        self._asker = asker

    def took(self, seconds: float) -> None:
        self._asker.computed_s += seconds

    def stop(self) -> None:
        self.waiting.clear()

    def compute(self) -> None:
        """Compute the next one. Nobody is told of the result before `let_go`."""
        compute, then = self.waiting[0]
        computed = compute()
        self.waiting[0] = (lambda: computed), then

    async def let_go(self) -> None:
        compute, then = self.waiting.pop(0)
        then(compute(), None)
        for _ in range(5):
            await asyncio.sleep(0)


def produce(*batches: tuple[int, bytes | bytearray], acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=bytes(records)) for index, records in batches]
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )


def told(answer: Any) -> list[tuple[int, Error, int]]:
    assert not isinstance(answer, Outcome)
    return [
        (each.index, Error(each.error_code), each.base_offset)
        for topic in answer.message.responses
        for each in topic.partition_responses
    ]
