"""Sending records to a Kafka by librdkafka, in transactions or not, and dealing with failures."""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from cli.errors import CommandError
from cli.librdkafka import Client, confluent_kafka, reason
from cli.output import say
from cli.wording import number_of

POLL_EVERY: Final = 1000
SHORT_S: Final = 0.5
ABANDON_S: Final = 5.0
FLUSH_S: Final = 60.0
TRANSACTION_MS: Final = 900_000
"""The longest that a broker allows by default: input may come slowly."""
LINGER_MS: Final = 5
QUEUE_KIB: Final = 64 * 1024
"""A larger queue is slower: records would have left the processor's caches by the time they are sent."""
QUEUE_RECORDS: Final = 1_000_000
ANY_PARTITION: Final = -1


class Record(NamedTuple):
    """A record to send. `partition` ANY_PARTITION: the key chooses it. `timestamp_ms` 0: the present time."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int


class Sending:
    """Hands records to librdkafka, and handles transactions and failures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._library = confluent_kafka()
        self._every = options.transaction
        self.is_transactional = options.transaction is not None
        own: dict[str, object] = {
            "linger.ms": LINGER_MS,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "queue.buffering.max.kbytes": QUEUE_KIB,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
        }
        if self.is_transactional:
            own["transaction.timeout.ms"] = TRANSACTION_MS
            own["transactional.id"] = options.transactional_id or f"barnabas-cli-{uuid.uuid4()}"
        self._client = Client(options, own)
        self._client.refuse({"transactional.id": "use --transaction and --transactional-id"})
        has_lines_name_it = options.json and options.partition is None
        self._hints = {
            "_UNKNOWN_PARTITION": " (with --any-partition the key chooses one)"
            if has_lines_name_it
            else " (barnabas topics {topic} lists its partitions)",
            "MSG_SIZE_TOO_LARGE": " (-X message.max.bytes=N, and the topic's max.message.bytes, allow larger ones)",
        }
        self._producer = self._client.made(self._library.Producer)
        self.sent = 0
        self._in_transaction = 0
        self._known: set[str] = set()
        self._failure: str | None = None

    def send(self, record: Record) -> None:
        """Queue a record. Raises CommandError if it, or an earlier one, can't be sent."""
        if record.topic not in self._known:
            self._meet(record.topic)
        if self.is_transactional and not self._in_transaction:
            try:
                self._producer.begin_transaction()
            except self._library.KafkaException as error:
                raise CommandError(f"no transaction can begin: {reason(error)}") from None
        arguments: dict[str, Any] = {}
        if record.key is not None:
            arguments["key"] = record.key
        if record.partition != ANY_PARTITION:
            arguments["partition"] = record.partition
        if record.headers:
            arguments["headers"] = record.headers
        if record.timestamp_ms:
            arguments["timestamp"] = record.timestamp_ms
        self._queue(record.topic, record.value, **arguments)
        self.sent += 1
        self._in_transaction += 1
        if self._every and self._in_transaction >= self._every:
            self._commit()
        elif self.sent % POLL_EVERY == 0:
            self._producer.poll(0)
            self._look()

    def send_values(self, topic: str, values: Sequence[bytes]) -> None:
        """Like `send`, for values without anything else and outside of transactions. A long input mostly consists of
        these."""
        if topic not in self._known:
            self._meet(topic)
        produce = self._producer.produce
        for value in values:
            try:
                produce(topic, value)
            except (BufferError, self._library.KafkaException):
                self._queue(topic, value)
        self.sent += len(values)
        self._producer.poll(0)
        self._look()

    def _queue(self, topic: str, value: bytes | None, **arguments: Any) -> None:
        """Raises ValueError if it can't be a record, and CommandError."""
        while True:
            try:
                self._producer.produce(topic, value, **arguments)
                return
            except BufferError:
                self._producer.poll(0.1)
                self._look()
            except (OverflowError, TypeError) as error:
                raise ValueError(str(error)) from None
            except self._library.KafkaException as error:
                hint = self._hints.get(error.args[0].name(), "").format(topic=topic)
                raise self._aborted(f"a record for {topic}: {reason(error)}{hint}") from None

    def end(self) -> None:
        """Wait until everything is sent. Raises CommandError if it can't be."""
        if self.is_transactional:
            self._commit()
            return
        while self._flush(FLUSH_S) and self._failure is None:
            pass
        self._look()

    def abandon(self) -> None:
        """Abort what isn't committed. Outside of transactions, send what was read and report how much of it was
        sent."""
        if self.is_transactional:
            self._abort()
        elif self.sent and self._failure is None:
            left = self._flush(ABANDON_S)
            say(f"{self.sent - left:,} of {number_of(self.sent, 'record')} sent")

    def _abort(self) -> bool:
        """Abort the transaction. Return True if none is open any more."""
        if self._in_transaction:
            self._in_transaction = 0
            try:
                self._in_short(self._producer.abort_transaction, ABANDON_S)
            except self._library.KafkaException:
                return False
        return True

    def _flush(self, patience_s: float) -> int:
        """Flush, and return how many records are left. It uses short calls, because nothing interrupts librdkafka's."""
        deadline_s = time.monotonic() + patience_s
        left = int(self._producer.flush(SHORT_S))
        while left and time.monotonic() < deadline_s:
            left = int(self._producer.flush(SHORT_S))
        return left

    def _in_short(self, call: Callable[[float], None], patience_s: float = FLUSH_S) -> None:
        """Repeat a call for as long as librdkafka says that it may be repeated. Raises KafkaException.

        A call that takes longer than asked for ends with _TIMED_OUT, or with the broker's last answer: a Kafka that
        just creates __transaction_state says COORDINATOR_LOAD_IN_PROGRESS.
        """
        deadline_s = time.monotonic() + patience_s
        while True:
            try:
                call(SHORT_S)
                return
            except self._library.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline_s:
                    raise

    def _meet(self, topic: str) -> None:
        self._client.partitions(self._producer, topic, creates=True)
        if self.is_transactional and not self._known:
            try:
                self._in_short(self._producer.init_transactions)
            except self._library.KafkaException as error:
                raise CommandError(f"no transaction can begin: {reason(error)}") from None
        self._known.add(topic)

    def _commit(self) -> None:
        if not self._in_transaction:
            return
        try:
            self._in_short(self._producer.commit_transaction)
        except self._library.KafkaException as error:
            raise self._aborted(
                f"the transaction can't be committed: {self._failure or reason(error)}"
            ) from None
        self._in_transaction = 0
        self._look()

    def _look(self) -> None:
        self._client.check()
        if self._failure is not None:
            raise self._aborted(self._failure)

    def _aborted(self, why: str) -> CommandError:
        if not self.is_transactional:
            return CommandError(why)
        told = (
            "its transaction is aborted"
            if self._abort()
            else "the broker aborts its transaction when its time is up"
        )
        return CommandError(f"{why} ({told})")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = (
                f"a record of {message.topic()}-{message.partition()} wasn't written: {reason(error)}"
            )
