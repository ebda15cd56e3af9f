"""Measure how fast a Kafka is for a client on this machine: producing, consuming, transactions, end-to-end latency.

  barnabas bench                        everything, in a topic of its own that is deleted at the end
  barnabas bench produce consume --seconds 10

Paste the last line into an issue.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cli.client.answers import check, the_one
from cli.client.cluster import KafkaCluster
from cli.client.topics import create_topics, delete_topics
from cli.errors import CommandError, CommandUsageError
from cli.librdkafka import Client, confluent_kafka, reason
from cli.options import BOOTSTRAP, add_connection, add_json, client_settings
from cli.output import say, show_json, show_table
from protocol.messages.topics import CreatableTopic

PATIENCE_S: Final = 60.0
POLL_EVERY: Final = 1000
PACE_S: Final = 0.002
SENT_AT: Final = b"sent at "
MAX_BYTES: Final = 2 * 1024 * 1024 * 1024
"""The most that is written, however long the time: it goes to a disk."""


class Figure(NamedTuple):
    """One row of results."""

    what: str
    value: float
    unit: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.commands.Command`."""
    parser.add_argument(
        "measures", nargs="*", metavar="MEASURE", help=f"one of {', '.join(MEASURES)} (default: all)"
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="duration of each (default: 5)"
    )
    parser.add_argument(
        "--record-bytes", type=int, default=1024, metavar="N", help="size of a record's value (default: 1024)"
    )
    parser.add_argument("-p", "--partitions", type=int, default=1, metavar="N", help="(default: 1)")
    parser.add_argument("-r", "--replicas", type=int, default=-1, metavar="N", help="(default: the broker's)")
    add_json(parser)
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`."""
    _check(options)
    confluent_kafka()
    settings = client_settings(options)
    topic = f"barnabas-bench-{uuid.uuid4().hex[:8]}"
    figures: list[Figure] = []
    with KafkaCluster(settings) as cluster:
        whose = cluster.metadata([])
        _create(cluster, topic, options)
    bench = _Bench(options, topic)
    try:
        for name in options.measures or MEASURES:
            if not options.json:
                say(f"{name} …")
            figures += _measured(name, bench)
    finally:
        bench.drop()
        _delete(settings, topic)
    told = {
        "kafka": settings[BOOTSTRAP],
        "cluster": whose.cluster_id,
        "brokers": len(whose.brokers),
        "partitions": options.partitions,
        "record_bytes": options.record_bytes,
        "client": f"confluent-kafka {confluent_kafka().version()}, librdkafka {confluent_kafka().libversion()[0]}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, "
        f"Python {platform.python_version()}",
    }
    if options.json:
        show_json({**told, "figures": [figure._asdict() for figure in figures]})
        return 0
    show_table(("measure", "figure", "unit"), figures)
    pasted = "; ".join(f"{figure.what} {figure.value:,.2f} {figure.unit}" for figure in figures)
    sys.stdout.write(
        f"\nbarnabas bench: {pasted} ({', '.join(f'{k} {v}' for k, v in told.items() if k != 'kafka')})\n"
    )
    return 0


def _check(options: argparse.Namespace) -> None:
    for name in options.measures:
        if name not in MEASURES:
            raise CommandUsageError(f"there is no measure {name}; there are {', '.join(MEASURES)}")
    if options.seconds <= 0 or not 0 < options.record_bytes <= 900_000 or options.partitions < 1:
        raise CommandUsageError("--seconds, --record-bytes (at most 900,000) and -p must be greater than 0")


def _measured(name: str, bench: _Bench) -> list[Figure]:
    try:
        return MEASURES[name](bench)
    except bench.library.KafkaException as error:
        raise CommandError(f"{name}: {reason(error)}") from None


class _Bench:
    """What every measure needs."""

    def __init__(self, options: argparse.Namespace, topic: str) -> None:
        self.options = options
        self.topic = topic
        self.seconds: float = options.seconds
        self.value = os.urandom(options.record_bytes)
        self.library = confluent_kafka()
        self._producers: list[Any] = []

    def drop(self) -> None:
        """Drop unsent records: nobody waits for them."""
        for producer in self._producers:
            producer.purge()

    def producer(self, **own: object) -> Any:
        given = {"linger.ms": 5, "queue.buffering.max.kbytes": 256 * 1024, **own}
        # A producer asks for its topics' metadata until it ends, and would have the broker make the deleted one again.
        client = Client(self.options, {"allow.auto.create.topics": False, **given})
        self._producers.append(client.made(self.library.Producer))
        return self._producers[-1]

    def consumer(self, **own: object) -> Any:
        given = {"group.id": self.topic, "auto.offset.reset": "earliest", "enable.auto.commit": False, **own}
        return Client(self.options, given).made(self.library.Consumer)


def _produce(bench: _Bench) -> list[Figure]:
    producer = bench.producer()
    failures: list[Any] = []
    produced, began_s = 0, time.perf_counter()
    most = MAX_BYTES // bench.options.record_bytes

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    while time.perf_counter() < began_s + bench.seconds and produced < most:
        for _ in range(POLL_EVERY):
            _queue(producer, bench, on_delivery=delivered)
        produced += POLL_EVERY
        producer.poll(0)
    left = producer.flush(PATIENCE_S)
    took_s = time.perf_counter() - began_s
    if failures or left:
        raise CommandError(
            f"produce: {reason(failures[0]) if failures else f'{left} records are still in flight'}"
        )
    return _pace("produce", produced, bench, took_s)


def _consume(bench: _Bench) -> list[Figure]:
    """Read what was produced, or a few records if nothing was."""
    producer = bench.producer()
    for _ in range(POLL_EVERY):
        _queue(producer, bench)
    if producer.flush(PATIENCE_S):
        raise CommandError("consume: the records to read can't be written")
    consumer = bench.consumer(**{"enable.partition.eof": True})
    consumer.assign(
        [bench.library.TopicPartition(bench.topic, index, 0) for index in range(bench.options.partitions)]
    )
    came, ended, began_s = 0, 0, time.perf_counter()
    first_s = last_s = began_s
    while ended < bench.options.partitions and time.perf_counter() < began_s + bench.seconds + PATIENCE_S:
        messages = consumer.consume(POLL_EVERY, 0.1)
        if not messages:
            continue
        for message in messages:
            if message.error() is None:
                came += 1
            elif message.error().name() == "_PARTITION_EOF":
                ended += 1
            else:
                raise CommandError(f"consume: {reason(message.error())}")
        last_s = time.perf_counter()
        if last_s > began_s + bench.seconds:
            break
    consumer.close()
    return _pace("consume", came, bench, last_s - first_s)


def _transactions(bench: _Bench) -> list[Figure]:
    """Measure transactions of one record each, one after the other."""
    producer = bench.producer(**{"transactional.id": bench.topic, "linger.ms": 0})
    producer.init_transactions(PATIENCE_S)
    commits: list[float] = []
    began_s = time.perf_counter()
    while time.perf_counter() < began_s + bench.seconds:
        producer.begin_transaction()
        producer.produce(bench.topic, bench.value)
        producer.flush(PATIENCE_S)
        at_s = time.perf_counter()
        producer.commit_transaction(PATIENCE_S)
        commits.append(time.perf_counter() - at_s)
    took_s = time.perf_counter() - began_s
    return [
        Figure("transactions", len(commits) / took_s, "/s"),
        *_spread("commit", commits),
    ]


def _end_to_end(bench: _Bench) -> list[Figure]:
    """Measure 500 records a second; each contains the time at which it was sent."""
    producer, consumer = bench.producer(**{"linger.ms": 0}), bench.consumer(**{"fetch.wait.max.ms": 100})
    places = [bench.library.TopicPartition(bench.topic, index) for index in range(bench.options.partitions)]
    at_ends = []
    for place in places:
        _, high = consumer.get_watermark_offsets(place, PATIENCE_S)
        at_ends.append(bench.library.TopicPartition(place.topic, place.partition, high))
    consumer.assign(at_ends)
    took: list[float] = []
    began_s = next_s = time.perf_counter()
    while (passed_s := time.perf_counter() - began_s) < bench.seconds or (not took and passed_s < PATIENCE_S):
        if time.perf_counter() >= next_s:
            producer.produce(bench.topic, SENT_AT + repr(time.perf_counter()).encode())
            next_s += PACE_S
        producer.poll(0)
        message = consumer.poll(max(0.0, min(PACE_S, next_s - time.perf_counter())))
        # A high watermark that lags may leave records of earlier measures to be read first.
        if message is not None and message.error() is None and message.value().startswith(SENT_AT):
            took.append(time.perf_counter() - float(message.value()[len(SENT_AT) :]))
    consumer.close()
    producer.flush(PATIENCE_S)
    if not took:
        raise CommandError("end-to-end: no record arrived")
    return _spread("end to end", took)


MEASURES: Final[dict[str, Callable[[_Bench], list[Figure]]]] = {
    "produce": _produce,
    "consume": _consume,
    "transactions": _transactions,
    "end-to-end": _end_to_end,
}


def _pace(what: str, count: int, bench: _Bench, took_s: float) -> list[Figure]:
    per_s = count / took_s if took_s else 0.0
    return [
        Figure(what, per_s, "records/s"),
        Figure(what, per_s * bench.options.record_bytes / 1e6, "MB/s"),
    ]


def _spread(what: str, seconds: list[float]) -> list[Figure]:
    ordered = sorted(seconds)
    last = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return [
        Figure(f"{what}, median", statistics.median(ordered) * 1000, "ms"),
        Figure(f"{what}, 99th percentile", last * 1000, "ms"),
    ]


def _create(cluster: KafkaCluster, topic: str, options: argparse.Namespace) -> None:
    made = CreatableTopic(name=topic, num_partitions=options.partitions, replication_factor=options.replicas)
    error_code, message = the_one([*create_topics(cluster, [made]).values()], f"topic {topic}")
    check(error_code, message, f"topic {topic}")


def _delete(settings: Mapping[str, str], topic: str) -> None:
    """Use a connection of its own: brokers close one that was idle for as long as a bench may take."""
    try:
        with KafkaCluster(settings) as cluster:
            error_code, message = the_one([*delete_topics(cluster, [topic]).values()], f"topic {topic}")
            check(error_code, message, f"topic {topic}")
    except CommandError as error:
        say(f"topic {topic} wasn't deleted: {error}")


def _queue(producer: Any, bench: _Bench, **arguments: Any) -> None:
    while True:
        try:
            producer.produce(bench.topic, bench.value, **arguments)
            return
        except BufferError:
            producer.poll(0.01)
