"""`python -m tests.churn`: applications that live on compacted topics, for an hour.

Kafka Streams counts the words of the flights with `exactly_once_v2`; Connect carries lines from one file to another,
while its connectors are altered; a registry adds and deletes. Each is killed again and again, the broker too. In the
end Streams and the registry begin anew from what their topics hold. Ends with status 1 where a state is wrong, or a
compacted topic grows.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.churn.connect import CONFIGS, OFFSETS, STATUS, Connect
from tests.churn.registry import TOPIC as REGISTRY
from tests.churn.registry import Registry
from tests.clients.confluent import create_topic
from tests.clients.flights import data, streams
from tests.clients.flights.sender import send
from tests.clients.java_programs import java_classes
from tests.clients.transactions import running_server
from tests.support.kafka_server import Server
from tests.support.log_sizes import log_bytes

SEGMENT_BYTES = 1_048_576
BROKER = {
    "log_segment_bytes": SEGMENT_BYTES,
    "offsets_topic_segment_bytes": SEGMENT_BYTES,
    "transaction_state_log_segment_bytes": SEGMENT_BYTES,
    "offsets_topic_num_partitions": 4,
    "transaction_state_log_num_partitions": 4,
    "log_roll_ms": 20_000,
    "log_cleaner_backoff_ms": 1_000,
    "log_segment_delete_delay_ms": 1_000,
    "log_cleaner_delete_retention_ms": 60_000,
}
COMPACTED = (
    "__consumer_offsets",
    "__transaction_state",
    CONFIGS,
    OFFSETS,
    STATUS,
    REGISTRY,
    f"{streams.APPLICATION}-counts-changelog",
    f"{streams.APPLICATION}-sums-changelog",
)
ROUND_S = 0.5
FLIGHTS_PER_ROUND = 100
LINES_PER_ROUND = 100
WRITES_PER_ROUND = 20
KILL_EVERY_S = 45.0
MOST_PER_PARTITION = 300_000
"""Of a compacted topic, in bytes: what is live, what waits for the dirty ratio, and the active segment."""

_began_s = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _began_s:7.1f} s  {what}", flush=True)


class Churn:
    def __init__(self, server: Server, folder: Path, seed: int) -> None:
        self._server = server
        self._chance = random.Random(seed)
        bootstrap = server.bootstrap
        create_topic(bootstrap, streams.FLIGHTS, partitions=streams.PARTITIONS)
        for topic in (streams.COUNTS, streams.SUMS):
            create_topic(bootstrap, topic, partitions=streams.OUTPUT_PARTITIONS)
        self.application = streams.Application(bootstrap, java_classes(), folder, streams.SETTINGS)
        self.connect = Connect(bootstrap, folder)
        self.registry = Registry(bootstrap, seed)
        self._sample = data.sample()
        self.fed: list[data.Flight] = []
        self.lines = 0
        self.kills = 0

    def run(self, seconds: float) -> list[str]:
        """What is wrong, in sentences."""
        self.application.start()
        self.connect.start()
        self.connect.make_connectors()
        try:
            self._churn(seconds)
            return self._look()
        finally:
            self.application.end(signal.SIGKILL)
            self.connect.end()

    def _churn(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        kill_s = time.monotonic() + KILL_EVERY_S
        victims: list[tuple[str, Callable[[], None]]] = [
            ("Streams", self._kill_streams),
            ("Connect", self._kill_connect),
            ("the broker", self._kill_broker),
        ]
        while time.monotonic() < end_s:
            self._feed()
            self.connect.churn()
            for _ in range(WRITES_PER_ROUND):
                self.registry.write()
            if time.monotonic() > kill_s:
                name, kill = self._chance.choice(victims)
                kill()
                self.kills += 1
                kill_s = time.monotonic() + KILL_EVERY_S
                _say(f"{name} was killed; {self._sizes_told()}")
            time.sleep(ROUND_S)

    def _feed(self) -> None:
        flights = [self._chance.choice(self._sample) for _ in range(FLIGHTS_PER_ROUND)]
        send(self._server.bootstrap, streams.FLIGHTS, flights, "lz4", streams.PARTITIONS)
        self.fed += flights
        with self.connect.source.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(self.lines, self.lines + LINES_PER_ROUND))
        self.lines += LINES_PER_ROUND

    def _kill_streams(self) -> None:
        self.application.end(signal.SIGKILL)
        self.application.start()

    def _kill_connect(self) -> None:
        self.connect.end()
        self.connect.start()

    def _kill_broker(self) -> None:
        self._server.kill()
        self._server.start()

    # ---- what came of it

    def _look(self) -> list[str]:
        wrong: list[str] = []
        self.application.end(signal.SIGKILL)
        self.application.forget_state()
        self.application.start()
        self._feed()
        expected = streams.words_of(self.fed)
        words = sum(map(len, expected.values()))
        streams.wait_until_all_is_there(self._server.bootstrap, 2 * words, self.application)
        counts, sums = (
            streams.read(self._server.bootstrap, topic) for topic in (streams.COUNTS, streams.SUMS)
        )
        wrong += streams.differences(expected, counts, sums)
        _say(f"Streams: {words:,} words of {len(self.fed):,} flights, its state read from the changelogs")
        self._kill_connect()
        self.connect.resume()
        self.connect.wait_until_all_run()
        self.connect.wait_until_sunk(self.lines)
        sunk = self.connect.sink_lines()
        strange = set(sunk) ^ {f"line {number}" for number in range(self.lines)}
        if strange:
            wrong.append(f"{len(strange)} lines are lost or were never there: {sorted(strange)[:3]}")
        _say(f"Connect: {self.lines:,} lines, {len(sunk) - len(set(sunk)):,} of them twice by the sink")
        found = self.registry.read()
        if found != self.registry.known:
            wrong.append("the registry's topic holds something else than what was written")
        _say(f"registry: {self.registry.writes:,} writes, {len(found)} versions are left")
        for topic, (partitions, size) in self._sizes().items():
            if size > partitions * MOST_PER_PARTITION:
                wrong.append(f"{topic} has {size:,} bytes in {partitions} partitions")
        _say(self._sizes_told())
        return wrong

    def _sizes(self) -> dict[str, tuple[int, int]]:
        """By topic: partitions, and bytes of their segments."""
        found = {}
        for topic in COMPACTED:
            partitions = [
                each for each in self._server.data.iterdir() if each.name.rpartition("-")[0] == topic
            ]
            found[topic] = len(partitions), sum(map(log_bytes, partitions))
        return found

    def _sizes_told(self) -> str:
        return ", ".join(f"{topic} {size / 1e6:.1f} MB" for topic, (_, size) in self._sizes().items())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.churn", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--logs", type=Path, help="where the applications' logs stay (default: nowhere)")
    options = parser.parse_args()
    _say(f"seed {options.seed}")
    with tempfile.TemporaryDirectory() as name, running_server(Path(name, "server"), **BROKER) as server:
        churn = Churn(server, Path(name), options.seed)
        try:
            wrong = churn.run(options.minutes * 60)
        finally:
            if options.logs is not None:
                options.logs.mkdir(parents=True, exist_ok=True)
                for log in Path(name).glob("*.log"):
                    shutil.copy(log, options.logs)
    for sentence in wrong[:20]:
        print(f"           {sentence}")
    _say(f"{churn.kills} kills, {len(wrong)} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
