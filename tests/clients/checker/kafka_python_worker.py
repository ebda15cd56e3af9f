"""A client process of kafka-python: see `worker`. Its groups are of the classic protocol."""

from __future__ import annotations

import time
from typing import Any

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
from tests.clients.kafka_python import kafka

GROUP_POLL_S = 2.0
"""A poll whose time is up just when its member is told its assignment loses that: it takes itself for a member, and has
nothing to read, for ever (kafka-python 3.0.12; one of four that joined by polls of 50 ms)."""


class KafkaPythonWorker(Worker):
    """A worker with kafka-python's producer and consumer."""

    def start(self) -> None:
        self.unacknowledged: list[tuple[Any, list[Any]]] = []
        self.has_pending_offsets = False
        shared = {
            "bootstrap_servers": self.bootstrap.split(","),
            "retry_backoff_ms": 20,
            "reconnect_backoff_max_ms": 100,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "metrics_enabled": False,
        }
        if self.sends:
            self.producer = kafka.KafkaProducer(**self._kind_of_producer(), **shared)
            if self.transactional_id is not None:
                self.producer.init_transactions()
        if self.reads:
            self.consumer = kafka.KafkaConsumer(
                group_id=self.group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
                fetch_max_wait_ms=50,
                max_poll_records=RECORDS_A_POLL,
                **shared,
            )
            if self.group is None:
                self.consumer.assign([kafka.TopicPartition(*place) for place in self.inputs])
                self.seek_positions()
            else:
                self.consumer.subscribe(self.topics)

    def _kind_of_producer(self) -> dict[str, Any]:
        if self.transactional_id is None:
            return {"enable_idempotence": True}
        return {"transactional_id": self.transactional_id, "transaction_timeout_ms": self.timeout_ms}

    def begin(self) -> None:
        self.unacknowledged.clear()
        self.producer.begin_transaction()

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def is_abortable(self, error: Exception) -> bool:
        """Offsets that were refused, as those of a member that the group has left behind, it commits with its next
        transaction, though it has aborted theirs (3.0.12: nothing clears `_pending_txn_offset_commits`): records are
        skipped. Where it has another reason to end, `abort` fails, too."""
        return isinstance(error, kafka.errors.KafkaError) and not self.has_pending_offsets

    def send(self, place: Place, payload: bytes, sent: list[Any]) -> None:
        topic, partition = place
        self.unacknowledged.append((self.producer.send(topic, payload, partition=partition), sent))

    def flush(self) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        for future, sent in self.unacknowledged:
            sent[3] = future.get(max(deadline_s - time.monotonic(), 0.001)).offset
        self.unacknowledged.clear()

    def consume(self) -> Polled:
        polled = self.consumer.poll(timeout_ms=int(1_000 * (POLL_S if self.group is None else GROUP_POLL_S)))
        return [
            (record.topic, record.partition, record.offset, record.value)
            for records in polled.values()
            for record in records
        ]

    def seek_positions(self) -> None:
        for place, offset in self.positions.items():
            self.consumer.seek(kafka.TopicPartition(*place), offset)

    def seek_committed(self) -> None:
        for partition in self.consumer.assignment():
            offset = self.consumer.committed(partition, timeout_ms=int(1_000 * PATIENCE_S))
            self.consumer.seek(partition, offset or 0)

    def membership(self) -> Any:
        metadata = self.consumer.group_metadata()
        return metadata if metadata.generation_id >= 0 else None

    def add_offsets(self, ends: dict[Place, int], membership: Any) -> None:
        self.has_pending_offsets = True
        self.producer.send_offsets_to_transaction(_offsets(ends), membership)
        self.has_pending_offsets = False

    def commit_offsets(self, ends: dict[Place, int]) -> None:
        self.consumer.commit(_offsets(ends), timeout_ms=int(1_000 * PATIENCE_S))


def _offsets(ends: dict[Place, int]) -> dict[Any, Any]:
    return {kafka.TopicPartition(*place): kafka.OffsetAndMetadata(end, "", -1) for place, end in ends.items()}


if __name__ == "__main__":
    run(KafkaPythonWorker)
