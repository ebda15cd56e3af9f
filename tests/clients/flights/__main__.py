"""`python -m tests.clients.flights`: send every flight with every codec, crash, and read it all back.

The broker is killed with SIGKILL and started again in the midst of each sending and once more before the
reading. Ends with status 1 where a record is missing, changed, out of order or doubled.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import barnabas
from tests.clients.confluent import CODECS, stored_codecs
from tests.clients.flights import data
from tests.clients.flights.readers import READERS, check
from tests.clients.flights.sender import Expected, create_topic, send
from tests.support.apache_kafka import why_unavailable
from tests.support.kafka_server import KafkaServer, Server


def main() -> int:
    options = _options()
    readers = list(READERS)
    reason = why_unavailable()
    if reason:
        print(f"Kafka's console-consumer can't be had ({reason}): it is left out.")
        readers.remove("console-consumer")
    flights = data.sample() if options.sample else data.all_flights()
    size_mb = sum(len(key) + len(value) for key, value in flights) / 1e6
    print(f"{len(flights):,} flights, {size_mb:,.0f} MB as keys and JSON values")

    with _server(of_kafka=options.kafka) as server:
        sent: dict[str, Expected] = {}
        rows = {codec: [codec] for codec in options.codecs}
        for codec in options.codecs:
            started_s = time.perf_counter()
            topic = f"flights-{codec}"
            create_topic(server.bootstrap, topic, options.partitions)
            sent[topic] = send(
                server.bootstrap, topic, flights, codec, options.partitions, half_way=lambda: _crash(server)
            )
            took_s = time.perf_counter() - started_s
            _say(f"sent with {codec}, the broker killed half-way: {took_s:.1f} s")
            rows[codec] += [f"{took_s:.1f} s", f"{_size_mb(server.data, topic):,.1f} MB"]
        _crash(server)
        _say("the broker was killed and started again")
        good = True
        for codec in options.codecs:
            stored = stored_codecs(server.bootstrap, f"flights-{codec}", options.partitions)
            if stored != {codec}:
                good = False
                _say(f"FAILED: what was sent with {codec} is stored with {stored}")
            for reader in readers:
                started_s = time.perf_counter()
                try:
                    count = check(
                        server.bootstrap, f"flights-{codec}", sent[f"flights-{codec}"], READERS[reader]
                    )
                except AssertionError as error:
                    good = False
                    _say(f"FAILED: {codec} read by {reader}: {error}")
                    rows[codec].append("FAILED")
                else:
                    took_s = time.perf_counter() - started_s
                    _say(f"{codec} read by {reader}: {count:,} equal, in order, in {took_s:.1f} s")
                    rows[codec].append(f"{count:,} in {took_s:.1f} s")

    print()
    _print_table([["codec", "sent in", "on disk", *readers], *rows.values()])
    print("\nEvery record came back equal, byte for byte, in order." if good else "\nSomething differs.")
    return 0 if good else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.flights", description=__doc__)
    parser.add_argument("--sample", action="store_true", help="2,005 flights instead of 336,776")
    parser.add_argument("--codecs", nargs="+", choices=CODECS, default=list(CODECS), metavar="CODEC")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--kafka", action="store_true", help="do it with Apache Kafka, to judge the judge")
    return parser.parse_args()


@contextlib.contextmanager
def _server(*, of_kafka: bool) -> Iterator[Server]:
    if not of_kafka:
        with barnabas.Broker() as broker:
            yield broker
        return
    with tempfile.TemporaryDirectory() as folder, KafkaServer(Path(folder)) as server:
        yield server


def _crash(server: Server) -> None:
    server.kill()
    server.start()


def _size_mb(folder: Path, topic: str) -> float:
    return sum(log.stat().st_size for log in folder.glob(f"{topic}-*/*.log")) / 1e6


_began_s = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _began_s:7.1f} s  {what}", flush=True)


def _print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
