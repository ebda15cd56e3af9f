"""Four clients that read a topic whole, and the comparison of what they read with what was sent.

A reader takes the bootstrap address, the topic, and how many records each partition must hold. It yields
(partition, offset, key, value) until it has as many as that; AssertionError where they stop coming.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import aiokafka
from confluent_kafka import Consumer, TopicPartition

from tests.clients.confluent import end_offsets
from tests.clients.flights.sender import Expected
from tests.clients.kafka_python import kafka
from tests.support.apache_kafka import RUNNER, TOOL_OPTIONS

Read = tuple[int, int, bytes | None, bytes | None]
Reader = Callable[[str, str, Sequence[int]], Iterator[Read]]

STALLED_S = 30.0


def check(bootstrap: str, topic: str, expected: Expected, reader: Reader) -> int:
    """Read the whole topic, compare it with the sent records byte by byte, and return their number.

    AssertionError names the first that differs, is missing, or is one too many.
    """
    counts = [len(flights) for flights in expected]
    assert end_offsets(bootstrap, topic, len(counts)) == counts
    next_offsets = [0] * len(counts)
    for partition, offset, key, value in reader(bootstrap, topic, counts):
        at = f"partition {partition}, offset {offset}"
        assert offset == next_offsets[partition], f"{at}: offset {next_offsets[partition]} comes next"
        sent = expected[partition][offset]
        assert (key, value) == sent, f"{at}: read {(key, value)}, sent {sent}"
        next_offsets[partition] += 1
    assert next_offsets == counts
    return sum(counts)


def with_confluent_kafka(bootstrap: str, topic: str, counts: Sequence[int]) -> Iterator[Read]:
    config = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(len(counts))])
    progress = _Progress(sum(counts))
    while not progress.is_done:
        messages = consumer.consume(10_000, timeout=0.2)
        progress.add(len(messages))
        for message in messages:
            assert message.error() is None, message.error()
            yield message.partition(), message.offset(), message.key(), message.value()
    consumer.close()


def with_kafka_python(bootstrap: str, topic: str, counts: Sequence[int]) -> Iterator[Read]:
    with closing(kafka.KafkaConsumer(bootstrap_servers=bootstrap)) as consumer:
        partitions = [kafka.TopicPartition(topic, partition) for partition in range(len(counts))]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        progress = _Progress(sum(counts))
        while not progress.is_done:
            polled = consumer.poll(timeout_ms=1_000, max_records=10_000)
            progress.add(sum(map(len, polled.values())))
            for records in polled.values():
                for record in records:
                    yield record.partition, record.offset, record.key, record.value


def with_aiokafka(bootstrap: str, topic: str, counts: Sequence[int]) -> Iterator[Read]:
    async def read() -> list[Read]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in range(len(counts))])
            came: list[Read] = []
            progress = _Progress(sum(counts))
            while not progress.is_done:
                polled = await consumer.getmany(timeout_ms=1_000, max_records=10_000)
                progress.add(sum(map(len, polled.values())))
                for records in polled.values():
                    came += [
                        (record.partition, record.offset, record.key, record.value) for record in records
                    ]
            return came
        finally:
            await consumer.stop()

    yield from asyncio.run(read())


def with_the_console_consumer(bootstrap: str, topic: str, counts: Sequence[int]) -> Iterator[Read]:
    """One run of Kafka's tool for each partition that holds something."""
    for partition, count in enumerate(counts):
        if count == 0:
            continue
        command = [RUNNER, "console-consumer", "--bootstrap-server", bootstrap, "--topic", topic]
        command += ["--partition", str(partition), "--offset", "earliest", "--max-messages", str(count)]
        command += ["--timeout-ms", str(int(STALLED_S * 1_000))]
        for name in ("print.offset", "print.key"):
            command += ["--formatter-property", f"{name}=true"]
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "KAFKA_OPTS": TOOL_OPTIONS},
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                offset, key, value = line.removesuffix(b"\n").split(b"\t", 2)
                yield partition, int(offset.removeprefix(b"Offset:")), key, value


READERS: dict[str, Reader] = {
    "confluent-kafka": with_confluent_kafka,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
    "console-consumer": with_the_console_consumer,
}


class _Progress:
    """How many records have come of those that must; AssertionError where they stop coming."""

    def __init__(self, total: int) -> None:
        self._left = total
        self._moved_s = time.monotonic()

    @property
    def is_done(self) -> bool:
        return self._left <= 0

    def add(self, count: int) -> None:
        now_s = time.monotonic()
        if count:
            self._left -= count
            self._moved_s = now_s
        assert now_s - self._moved_s < STALLED_S, f"{self._left} records are missing, and nothing comes"
