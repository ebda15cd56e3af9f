"""`python -m tests.bench.day`: what many million transactions leave in the internal topics, in minutes.

It sends the records that coordinators would write to `__transaction_state` and `__consumer_offsets` as fast as the
broker accepts them. Meanwhile another connection sends a thousand requests a second, and the broker compacts. Then the
broker is stopped and started, until every transactional id and every group is known again. Apache Kafka does the same
with the same settings in the same run.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import barnabas
from protocol.errors import Error
from protocol.messages.groups import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.produce import ProduceResponse
from protocol.messages.transactions import DescribeTransactionsRequest
from protocol.wire.codec import decode
from tests.bench import coordinator_records as made
from tests.bench.measures import processor_s
from tests.bench.pinging import Pings, pinging
from tests.support.apache_kafka import why_unavailable
from tests.support.kafka_server import KafkaServer, Server
from tests.support.log_sizes import log_bytes
from tests.support.ready_requests import PRODUCE_VERSION
from tests.support.waiting import until
from tests.support.wire import Client

IN_FLIGHT = 4
KEYS = 1_000
"""How many transactional ids and groups."""
RECORDS_PER_BATCH = 12
PARTITIONS = 10
LOOK_EVERY_S = 0.25
QUIET_S = 3.0
PATIENCE_S = 600.0
SETTINGS = {
    "transaction.state.log.num.partitions": PARTITIONS,
    "offsets.topic.num.partitions": PARTITIONS,
    "transaction.state.log.segment.bytes": 1_048_576,
    "offsets.topic.segment.bytes": 1_048_576,
    "log.cleaner.backoff.ms": 500,
    "log.segment.delete.delay.ms": 1_000,
}
_NOT_YET = {Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR}
_TOPICS = (made.TRANSACTIONS, made.OFFSETS)


@dataclass
class Day:
    """The results of one broker. Sizes are in bytes, times in seconds."""

    took_s: float = 0.0
    cpu_s: float = 0.0
    written: int = 0
    sizes: list[int] = field(default_factory=list)
    settled: int = 0
    ready_s: float = 0.0
    known_s: float = 0.0
    pings: Pings = field(default_factory=Pings)


def day(broker: Server, transactions: int) -> Day:
    """Raises RuntimeError if the broker refuses a record, AssertionError if it no longer knows what was written."""
    ids, groups = made.transactional_ids(KEYS), made.groups(KEYS)
    found = Day()
    broker.start()
    try:
        _create_internal_topics(broker)
        one_round = [
            *made.rounds_of_transactions(ids, PARTITIONS, RECORDS_PER_BATCH),
            *made.rounds_of_commits(groups, PARTITIONS, RECORDS_PER_BATCH),
        ]
        frames = itertools.chain.from_iterable(itertools.repeat(one_round, transactions // KEYS))
        began_cpu_s, began_s = processor_s(broker.pid), time.perf_counter()
        with pinging(broker.bootstrap) as found.pings, _looking(broker.data, found.sizes):
            found.written = _send(broker, frames)
            found.took_s = time.perf_counter() - began_s
            found.settled = _settled(broker.data)
        found.cpu_s = processor_s(broker.pid) - began_cpu_s
        broker.stop()
        began_s = time.perf_counter()
        broker.start()
        found.ready_s = time.perf_counter() - began_s
        _until_all_is_known(broker, ids, groups)
        found.known_s = time.perf_counter() - began_s
    finally:
        broker.stop()
    return found


def _create_internal_topics(broker: Server) -> None:
    with Client.of(broker.bootstrap) as client:

        def is_there(key: str, key_type: int) -> bool:
            answer = client.ask(FindCoordinatorRequest(key=key, key_type=key_type), 2)
            return answer.error_code == Error.NONE

        until(lambda: is_there("g", 0), "a coordinator of groups", PATIENCE_S)
        until(lambda: is_there("t", 1), "a coordinator of transactions", PATIENCE_S)


def _send(broker: Server, frames: Iterator[bytes]) -> int:
    """Send the frames, and return their size in bytes."""
    size = 0
    with Client.of(broker.bootstrap) as client:
        in_flight = 0
        for frame in frames:
            if in_flight == IN_FLIGHT:
                _take_answer(client)
                in_flight -= 1
            client.send_bytes(frame)
            size += len(frame)
            in_flight += 1
        for _ in range(in_flight):
            _take_answer(client)
    return size


def _take_answer(client: Client) -> None:
    answer = decode(ProduceResponse, PRODUCE_VERSION, client.next_frame()[4:])
    for topic in answer.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise RuntimeError(f"{topic.name}: {partition}")


class _looking:
    """Records the size of the internal topics from time to time."""

    def __init__(self, folder: Path, sizes: list[int]) -> None:
        self._folder, self._sizes = folder, sizes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self._sizes.append(size_of(self._folder))


def size_of(folder: Path) -> int:
    """Return the size of the internal topics."""
    return sum(log_bytes(partition) for partition in folder.iterdir() if partition.name.startswith(_TOPICS))


def _settled(folder: Path) -> int:
    """Return the size once it no longer changes."""
    last, since_s = size_of(folder), time.monotonic()

    def is_quiet() -> bool:
        nonlocal last, since_s
        time.sleep(LOOK_EVERY_S)
        now = size_of(folder)
        if now != last:
            last, since_s = now, time.monotonic()
        return time.monotonic() - since_s > QUIET_S

    until(is_quiet, "the cleaner rests", PATIENCE_S)
    return last


def _until_all_is_known(broker: Server, ids: Sequence[str], groups: Sequence[str]) -> None:
    with Client.of(broker.bootstrap) as client:
        until(lambda: _are_transactions_known(client, ids), "all transactions are known", PATIENCE_S)
        until(lambda: _are_offsets_known(client, groups), "all offsets are known", PATIENCE_S)


def _are_transactions_known(client: Client, ids: Sequence[str]) -> bool:
    states = client.ask(DescribeTransactionsRequest(transactional_ids=list(ids)), 0).transaction_states
    if any(each.error_code in _NOT_YET for each in states):
        return False
    wrong = [each for each in states if each.transaction_state != "CompleteCommit"]
    assert not wrong, wrong[:3]
    assert len(states) == len(ids)
    return True


def _are_offsets_known(client: Client, groups: Sequence[str]) -> bool:
    asked = [
        OffsetFetchRequestGroup(
            group_id=name, topics=[OffsetFetchRequestTopics(name="flights", partition_indexes=[0])]
        )
        for name in groups
    ]
    answers = client.ask(OffsetFetchRequest(groups=asked), 8).groups
    if any(each.error_code in _NOT_YET for each in answers):
        return False
    offsets = [each.topics[0].partitions[0].committed_offset for each in answers]
    assert offsets == [made.COMMITTED] * len(groups), offsets[:3]
    return True


_ROWS: list[tuple[str, Callable[[Day], str]]] = [
    ("sent, MB", lambda day: f"{day.written / 1e6:,.0f}"),
    ("taken in, s", lambda day: f"{day.took_s:.1f}"),
    ("broker's processor time, s", lambda day: f"{day.cpu_s:.1f}"),
    ("largest, first half, MB", lambda day: f"{max(day.sizes[: len(day.sizes) // 2]) / 1e6:.1f}"),
    ("largest, second half, MB", lambda day: f"{max(day.sizes[len(day.sizes) // 2 :]) / 1e6:.1f}"),
    ("once the cleaner rests, MB", lambda day: f"{day.settled / 1e6:.1f}"),
    ("start until ready, s", lambda day: f"{day.ready_s:.2f}"),
    ("start until all is known, s", lambda day: f"{day.known_s:.2f}"),
    ("ping, median, ms", lambda day: f"{day.pings.percentile(500):.2f}"),
    ("ping, 99th percentile, ms", lambda day: f"{day.pings.percentile(990):.2f}"),
    ("ping, 99.9th percentile, ms", lambda day: f"{day.pings.percentile(999):.2f}"),
    ("ping, longest, ms", lambda day: f"{max(day.pings.took_ms):.1f}"),
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.day", description=__doc__)
    parser.add_argument("--transactions", type=int, default=10_000_000)
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument("--folder", type=Path, help="where the data goes (default: the temporary folder)")
    options = parser.parse_args()
    days: dict[str, Day] = {}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="barnabas-day-") as folder:
        broker = barnabas.Broker(data=Path(folder) / "barnabas", config=SETTINGS)
        days["barnabas"] = day(broker, options.transactions)
        reason = "it was not asked for" if options.alone else why_unavailable()
        if reason:
            print(f"Apache Kafka is left out: {reason}")
        else:
            days["Apache Kafka"] = day(KafkaServer(Path(folder) / "kafka", SETTINGS), options.transactions)
    print(f"{options.transactions:,} transactions of {KEYS:,} ids, and as many commits of {KEYS:,} groups")
    for name, text in _ROWS:
        print(f"{name:32}" + "".join(f"{side}: {text(found):>12}   " for side, found in days.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
