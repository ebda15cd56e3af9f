"""A client process of aiokafka: see `worker`. Its groups are of the classic protocol.

It copies nothing. It asks for a group's offsets in a version that doesn't wait for transactions that are being
committed (KIP-447), and commits them in a version that doesn't name the member.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import aiokafka
import aiokafka.errors

from tests.clients.checker.worker import (
    HEARTBEAT_MS,
    PATIENCE_S,
    POLL_S,
    RECORDS_A_POLL,
    REQUEST_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Place,
    Polled,
    Worker,
    run,
)


class AiokafkaWorker(Worker):
    """A worker with aiokafka's producer and consumer. They run on an event loop in their own thread, so that they go on
    between operations."""

    def start(self) -> None:
        self.unacknowledged: list[tuple[asyncio.Future[Any], list[Any]]] = []
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        while True:
            try:
                self._do(self._start())
            except aiokafka.errors.KafkaConnectionError:
                time.sleep(POLL_S)  # no broker answers, now
            else:
                break

    async def _start(self) -> None:
        shared = {
            "bootstrap_servers": self.bootstrap,
            "retry_backoff_ms": 20,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }
        if self.sends:
            self.producer = aiokafka.AIOKafkaProducer(**self._kind_of_producer(), **shared)
            await self.producer.start()
        if self.reads:
            self.consumer = aiokafka.AIOKafkaConsumer(
                *(() if self.group is None else self.topics),
                group_id=self.group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                fetch_max_wait_ms=50,
                **shared,
            )
            await self.consumer.start()
            if self.group is None:
                self.consumer.assign([aiokafka.TopicPartition(*place) for place in self.inputs])
                await self._seek_positions()

    def _kind_of_producer(self) -> dict[str, Any]:
        if self.transactional_id is None:
            return {"enable_idempotence": True}
        return {"transactional_id": self.transactional_id, "transaction_timeout_ms": self.timeout_ms}

    def _do(self, what: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(PATIENCE_S)

    def begin(self) -> None:
        self.unacknowledged.clear()
        self._do(self.producer.begin_transaction())

    def commit(self) -> None:
        self._do(self.producer.commit_transaction())

    def abort(self) -> None:
        self._do(self.producer.abort_transaction())

    def is_abortable(self, error: Exception) -> bool:
        """It counts on over a batch that was refused, so that all that follow are out of order. Where it has another
        reason to end, `abort` fails, too."""
        lost_count = isinstance(error, aiokafka.errors.OutOfOrderSequenceNumber)
        return isinstance(error, aiokafka.errors.KafkaError) and not lost_count

    def send(self, place: Place, payload: bytes, sent: list[Any]) -> None:
        topic, partition = place
        future = self._do(self.producer.send(topic, payload, partition=partition))
        self.unacknowledged.append((future, sent))

    def flush(self) -> None:
        self._do(self._acknowledged())

    async def _acknowledged(self) -> None:
        """Raises only when all is over: what isn't would be sent in the next transaction, once this one is aborted."""
        if self.unacknowledged:
            await asyncio.wait([future for future, _sent in self.unacknowledged])
        for future, sent in self.unacknowledged:
            sent[3] = (await future).offset
        self.unacknowledged.clear()

    def consume(self) -> Polled:
        polled = self._do(self.consumer.getmany(timeout_ms=int(1_000 * POLL_S), max_records=RECORDS_A_POLL))
        return [
            (record.topic, record.partition, record.offset, record.value)
            for records in polled.values()
            for record in records
        ]

    def seek_positions(self) -> None:
        self._do(self._seek_positions())

    async def _seek_positions(self) -> None:
        for place, offset in self.positions.items():
            self.consumer.seek(aiokafka.TopicPartition(*place), offset)

    def seek_committed(self) -> None:
        self._do(self.consumer.seek_to_committed())

    def membership(self) -> Any:
        raise NotImplementedError

    def add_offsets(self, ends: dict[Place, int], membership: Any) -> None:
        raise NotImplementedError

    def commit_offsets(self, ends: dict[Place, int]) -> None:
        offsets = {aiokafka.TopicPartition(*place): end for place, end in ends.items()}
        self._do(self.consumer.commit(offsets))


if __name__ == "__main__":
    run(AiokafkaWorker)
