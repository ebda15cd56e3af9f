"""Sends a job its input while it runs, a few chunks ahead of its batches, even while the broker is killed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.spark.jobs.inputs import Chunks, Record

PATIENCE_S = 600.0
POLL_S = 0.3
QUIET = {"log_level": 2, "log.connection.close": False}  # brokers are expected to go away here


class Feeder:
    """Feeds in its own thread, from the start of the `with` block.

    ahead: how many chunks are sent before the batch that reads the first of them begins.
    closing: is sent last, once the group has committed all other records, because it moves watermarks past them.
    fed: a file, created once everything has been sent.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        chunks: Chunks,
        closing: Sequence[Record],
        *,
        ahead: int,
        group: str,
        fed: Path,
    ) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._chunks = chunks
        self._closing = closing
        self._group = group
        self._fed = fed
        self._wanted = self._ahead = ahead
        self._changed = threading.Condition()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: Exception | None = None

    def begun(self, batch: int) -> None:
        """A batch of this number has begun."""
        with self._changed:
            self._wanted = max(self._wanted, batch + 1 + self._ahead)
            self._changed.notify()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self.begun(len(self._chunks))
        self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._feed()
        except Exception as error:
            self._failure = error

    def _feed(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                **QUIET,
            }
        )
        for number, chunk in enumerate(self._chunks):
            with self._changed:
                self._changed.wait_for(lambda number=number: self._wanted > number)  # type: ignore[misc]
            if self._ended.is_set():
                return
            self._send(producer, chunk)
        while not self._is_read():
            if self._ended.wait(POLL_S):
                return
        self._send(producer, self._closing)
        self._fed.touch()

    def _send(self, producer: Producer, records: Sequence[Record]) -> None:
        for record in records:
            producer.produce(
                f"{self._prefix}-{record.topic}",
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=self._delivered,
            )
        assert producer.flush(PATIENCE_S) == 0, "records were not taken"
        if self._failure is not None:
            raise self._failure

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failure = RuntimeError(f"a record was not taken: {error}")

    def _is_read(self) -> bool:
        """Also False if the broker doesn't answer because it was just killed."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap, **QUIET})
        topics = {f"{self._prefix}-{record.topic}" for chunk in self._chunks for record in chunk}
        try:
            partitions = [
                TopicPartition(topic, partition)
                for topic in topics
                for partition in admin.list_topics(topic, timeout=10).topics[topic].partitions
            ]
            latest = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), request_timeout=10)
            ends = {(one.topic, one.partition): answer.result().offset for one, answer in latest.items()}
            asked = [ConsumerGroupTopicPartitions(self._group)]
            answer = admin.list_consumer_group_offsets(asked, request_timeout=10)[self._group].result()
        except Exception:
            return False
        read = {(one.topic, one.partition): one.offset for one in answer.topic_partitions}
        return all(read.get(place, 0) == end for place, end in ends.items())
