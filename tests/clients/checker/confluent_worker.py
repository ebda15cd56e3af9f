"""A client process of confluent-kafka, which is librdkafka: see `worker`."""

from __future__ import annotations

from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.clients.checker.worker import (
    HEARTBEAT_MS,
    PATIENCE_S,
    POLL_S,
    RECORDS_A_POLL,
    SESSION_TIMEOUT_MS,
    Place,
    Polled,
    Worker,
    run,
)


class ConfluentWorker(Worker):
    """A worker with librdkafka's producer and consumer."""

    errors: ClassVar[tuple[type[Exception], ...]] = (KafkaException,)
    was_purged = False
    """Whether an abort took back what was still to be sent, or to be sent again. librdkafka (2.16.0) gives the next
    records the same sequences: where a leader had appended what it hadn't acknowledged yet, it takes them for that once
    more, and acknowledges them without writing them. So it is with Apache Kafka."""

    def start(self) -> None:
        shared = {
            "bootstrap.servers": self.bootstrap,
            "log_level": 0,
            "reconnect.backoff.max.ms": 100,
            "metadata.recovery.strategy": "none",
        }
        if self.sends:
            self.producer = Producer({**self._kind_of_producer(), "linger.ms": 0, **shared})
            if self.transactional_id is not None:
                self.producer.init_transactions(PATIENCE_S)
        if self.reads:
            self.consumer = Consumer(
                {
                    "group.id": self.group or "unused",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 50,
                    **self._group_protocol(),
                    **shared,
                }
            )
            if self.group is None:
                self.seek_positions()
            else:
                self.consumer.subscribe(self.topics)

    def _kind_of_producer(self) -> dict[str, Any]:
        if self.transactional_id is None:
            return {"enable.idempotence": True}
        return {"transactional.id": self.transactional_id, "transaction.timeout.ms": self.timeout_ms}

    def _group_protocol(self) -> dict[str, Any]:
        if self.group is not None and self.protocol == "consumer":
            return {"group.protocol": "consumer"}
        return {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS}

    def begin(self) -> None:
        self.producer.begin_transaction()

    def commit(self) -> None:
        self.producer.commit_transaction(PATIENCE_S)

    def abort(self) -> None:
        self.producer.abort_transaction(PATIENCE_S)

    def is_abortable(self, error: Exception) -> bool:
        return bool(error.args[0].txn_requires_abort())

    def _goes_on_after(self, error: Exception) -> bool:
        """If something was purged, another producer takes over, with another epoch."""
        goes_on = super()._goes_on_after(error)
        if self.sends:
            self.producer.poll(0)
        return goes_on and not self.was_purged

    def send(self, place: Place, payload: bytes, sent: list[Any]) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                sent[3] = message.offset()
            elif error.code() == KafkaError._PURGE_QUEUE:
                self.was_purged = True

        topic, partition = place
        self.producer.produce(topic, payload, partition=partition, on_delivery=delivered)

    def flush(self) -> None:
        self.producer.flush(PATIENCE_S)

    def consume(self) -> Polled:
        return [
            (message.topic(), message.partition(), message.offset(), message.value())
            for message in self.consumer.consume(RECORDS_A_POLL, timeout=POLL_S)
            if message.error() is None
        ]

    def seek_positions(self) -> None:
        self.consumer.assign(
            [
                TopicPartition(topic, partition, offset)
                for (topic, partition), offset in self.positions.items()
            ]
        )

    def seek_committed(self) -> None:
        assigned = self.consumer.assignment()
        for each in self.consumer.committed(assigned, timeout=PATIENCE_S) if assigned else []:
            self.consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))

    def membership(self) -> Any:
        """Before it is assigned anything it may not have joined; what the metadata hold can't be seen."""
        if not self.consumer.assignment():
            return None
        metadata = self.consumer.consumer_group_metadata()
        return metadata if self.consumer.assignment() else None

    def add_offsets(self, ends: dict[Place, int], membership: Any) -> None:
        self.producer.flush(PATIENCE_S)  # an abort for what is wrong with the offsets purges nothing then
        self.producer.send_offsets_to_transaction(_offsets(ends), membership, PATIENCE_S)

    def commit_offsets(self, ends: dict[Place, int]) -> None:
        for each in self.consumer.commit(offsets=_offsets(ends), asynchronous=False) or []:
            if each.error is not None:
                raise KafkaException(each.error)


def _offsets(ends: dict[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]


if __name__ == "__main__":
    run(ConfluentWorker)
