"""`python -m tests.clients.flights.streams`: a Kafka Streams application over the flights, killed again and again.

`java/FlightTotals.java` counts the words of the flights and sums their delays with `exactly_once_v2`. Its caches are
off, so that each word of a flight is one record in either output, and its counts go 1, 2, 3, ... whatever happened in
between. Ends with status 1 where one is missing, doubled or out of order, or a sum is wrong.

`--streams-group --instances 4 --standbys 1 --kills 10 --broker-kills 10` grows a streams group from one instance to
four, with a standby of each task, while instances and broker are killed in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.clients.confluent import consumer_of, create_topic
from tests.clients.flights import data
from tests.clients.flights.data import Flight
from tests.clients.flights.sender import send
from tests.clients.java_programs import java_classes
from tests.clients.transactions import READ_COMMITTED, READ_UNCOMMITTED, running_server
from tests.support.apache_kafka import RUNNER, TOOL_OPTIONS
from tests.support.kafka_server import Server
from tests.support.waiting import until

APPLICATION = "totals"
FLIGHTS, COUNTS, SUMS = "flights", "word-counts", "delay-sums"
PARTITIONS = 3
OUTPUT_PARTITIONS = 2
LATE_S = 0.2
LATE_WITH_ALL_S = 3.0
PATIENCE_S = 60.0
FIRST_PORT = 7_000  # where nobody listens: the instances are only told of each other's
OPEN_PATIENCE_S = 2.0
SETTINGS = {
    "num.stream.threads": 2,
    "commit.interval.ms": 500,
    "statestore.cache.max.bytes": 0,
    "repartition.purge.interval.ms": 500,
    "session.timeout.ms": 1_000,
    "heartbeat.interval.ms": 200,
    "reconnect.backoff.max.ms": 100,
    "auto.offset.reset": "earliest",
}

STREAMS_PROTOCOL_SETTINGS = {
    name: value
    for name, value in SETTINGS.items()
    if name not in ("session.timeout.ms", "heartbeat.interval.ms")
} | {"group.protocol": "streams"}
"""With KIP-1071, where the broker says how long a session is, and makes the internal topics."""

Totals = Mapping[str, list[int]]
"""word → the values it has had, in order."""


class Application:
    """The program as a process; what it prints is kept in `log`. Of several instances each has a number."""

    def __init__(
        self, bootstrap: str, classes: Path, folder: Path, settings: Mapping[str, object], number: int = 0
    ) -> None:
        self.log = folder / f"application-{number}.log"
        self._state = folder / f"state-{number}"
        self._command = [RUNNER, "class", "FlightTotals", bootstrap, APPLICATION, self._state]
        self._command += [FLIGHTS, COUNTS, SUMS]
        self._command += [f"{name}={value}" for name, value in settings.items()]
        self._command.append(f"application.server=127.0.0.1:{FIRST_PORT + number}")
        self._environment = {**os.environ, "KAFKA_CP": str(classes), "KAFKA_OPTS": TOOL_OPTIONS}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )

    @property
    def is_running(self) -> bool:
        """AssertionError, with what it printed, where it ended by itself."""
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-5000:]
        return True

    def forget_state(self) -> None:
        """Once it has ended: it reads its changelogs then."""
        shutil.rmtree(self._state)

    @property
    def tasks(self) -> int:
        """How many it has kept state of, as an active one or as a standby."""
        return sum(each.is_dir() for each in (self._state / APPLICATION).glob("[0-9]*_[0-9]*"))

    def end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None


@dataclass(slots=True)
class Result:
    """words: how many the flights have. wrong: sentences. took_s: from the first flight to the last word. tasks: of how
    many each instance has had state."""

    flights: int
    words: int
    outputs: int = 0
    aborted_outputs: int = 0
    kills: list[str] = field(default_factory=list)
    took_s: float = 0.0
    tasks: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def run(
    server: Server,
    classes: Path,
    folder: Path,
    flights: Sequence[Flight],
    *,
    kills: int,
    broker_kills: int = 1,
    seed: int,
    late_s: float = LATE_S,
    settings: Mapping[str, object] = SETTINGS,
    instances: int = 1,
    say: Callable[[str], object] = lambda what: None,
) -> Result:
    """Feed the flights in as many parts as there are kills, and one more; each kill falls amid the work on one.

    kills: of one of the application's instances. broker_kills: of the broker, evenly between those. With each part one
    more instance comes, until all are there. AssertionError where the work isn't done.
    """
    chance = random.Random(seed)
    parts = kills + broker_kills + 1
    of_broker = killing_the_broker(kills, broker_kills)
    bootstrap = server.bootstrap
    create_topic(bootstrap, FLIGHTS, partitions=PARTITIONS)
    for topic in (COUNTS, SUMS):
        create_topic(bootstrap, topic, partitions=OUTPUT_PARTITIONS)
    expected = words_of(flights)
    result = Result(len(flights), sum(map(len, expected.values())))
    began_s = time.monotonic()
    applications = [
        Application(bootstrap, classes, folder, settings, number) for number in range(max(instances, 1))
    ]
    applications[0].start()
    try:
        for number in range(parts - 1):
            running = applications[: number + 1]
            application = running[-1]
            if 0 < number < instances:
                application.start()
            send(bootstrap, FLIGHTS, flights[number::parts], "lz4", PARTITIONS)
            written = _wait_until_it_writes(bootstrap, application)
            time.sleep(chance.random() * late_s)
            _wait_for_an_open_transaction(bootstrap)
            if number in of_broker:
                server.kill()
                server.start()
                result.kills.append("the broker")
            else:
                application = chance.choice(running)
                application.end(signal.SIGKILL)
                application.start()
                result.kills.append("the application")
            say(f"kill {number + 1}: {result.kills[-1]}, which had written {written:,} records and markers")
        send(bootstrap, FLIGHTS, flights[parts - 1 :: parts], "lz4", PARTITIONS)
        wait_until_all_is_there(bootstrap, 2 * result.words, applications[0])
        result.took_s = time.monotonic() - began_s
        result.tasks = [application.tasks for application in applications]
        for application in applications:
            application.end(signal.SIGTERM)
    finally:
        for application in applications:
            application.end(signal.SIGKILL)
    counts, sums = (read(bootstrap, topic) for topic in (COUNTS, SUMS))
    result.outputs = sum(len(values) for totals in (counts, sums) for values in totals.values())
    result.aborted_outputs = sum(map(len, read(bootstrap, COUNTS, READ_UNCOMMITTED).values()))
    result.aborted_outputs += sum(map(len, read(bootstrap, SUMS, READ_UNCOMMITTED).values())) - result.outputs
    result.wrong = differences(expected, counts, sums)
    return result


def killing_the_broker(kills: int, broker_kills: int) -> set[int]:
    """Which of all kills, counted from 0, strike the broker."""
    together = kills + broker_kills
    return {(2 * index + 1) * together // (2 * broker_kills) for index in range(broker_kills)}


def words_of(flights: Sequence[Flight]) -> dict[str, list[int]]:
    """word → the delay of each flight that has it, as `FlightTotals` takes them apart."""
    words: dict[str, list[int]] = defaultdict(list)
    for _carrier, flight in flights:
        fields = json.loads(flight)
        delay = fields["dep_delay"]
        for name in ("carrier", "origin", "dep_delay"):
            words[f"{name} {'null' if fields[name] is None else fields[name]}"].append(delay or 0)
    return dict(words)


def differences(expected: Totals, counts: Totals, sums: Totals) -> list[str]:
    """What is wrong with the outputs, in sentences."""
    wrong = [
        f"{word}, counted though no flight has it" for word in sorted({*counts, *sums} - expected.keys())
    ]
    for word, delays in expected.items():
        counted, summed = counts.get(word, []), sums.get(word, [])
        if counted != list(range(1, len(delays) + 1)):
            doubled = len(counted) - len(set(counted))
            last = counted[-1] if counted else "nothing"
            wrong.append(f"{word}: counted up to {last} of {len(delays)}, {doubled} counts doubled")
        if len(summed) != len(delays) or summed[-1] != sum(delays):
            last = summed[-1] if summed else "nothing"
            wrong.append(f"{word}: {len(summed)} of {len(delays)} summed to {last}, not to {sum(delays)}")
    return wrong


def read(bootstrap: str, topic: str, isolation_level: str = READ_COMMITTED) -> dict[str, list[int]]:
    """What a reader sees, up to the end."""
    totals: dict[str, list[int]] = defaultdict(list)
    with closing(_reader(bootstrap, isolation_level)) as reader:
        reader.assign([TopicPartition(topic, partition, 0) for partition in range(OUTPUT_PARTITIONS)])
        ended, deadline_s = 0, time.monotonic() + PATIENCE_S
        while ended < OUTPUT_PARTITIONS:
            assert time.monotonic() < deadline_s, f"the end of {topic} did not come"
            for message in reader.consume(5_000, timeout=0.1):
                if message.error() is not None:
                    ended += 1
                else:
                    totals[message.key().decode()].append(int.from_bytes(message.value(), "big", signed=True))
    return dict(totals)


def purged(bootstrap: str) -> int:
    """How many records of the repartition topic were deleted, having been worked on."""
    topic = f"{APPLICATION}-words-repartition"
    with closing(_reader(bootstrap, READ_COMMITTED)) as reader:
        partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        return sum(reader.get_watermark_offsets(each, timeout=PATIENCE_S)[0] for each in partitions)


def _wait_until_it_writes(bootstrap: str, application: Application) -> int:
    """How much of the outputs is committed by then."""
    with closing(_reader(bootstrap, READ_COMMITTED)) as reader:
        before = _end(reader)
        until(lambda: application.is_running and _end(reader) > before, "the application writes", PATIENCE_S)
        return _end(reader)


def _wait_for_an_open_transaction(bootstrap: str) -> None:
    """For a moment: where all that was fed is committed none is going to come."""
    with (
        closing(_reader(bootstrap, READ_COMMITTED)) as committed,
        closing(_reader(bootstrap, READ_UNCOMMITTED)) as all_,
        suppress(AssertionError),
    ):
        until(lambda: _end(all_) > _end(committed), "a transaction is open", OPEN_PATIENCE_S)


def _end(reader: Consumer) -> int:
    """Of the outputs together, as far as the reader sees them."""
    return sum(reader.get_watermark_offsets(each, timeout=PATIENCE_S)[1] for each in _outputs())


def wait_until_all_is_there(bootstrap: str, count: int, application: Application) -> None:
    with closing(_reader(bootstrap, READ_COMMITTED)) as reader:
        reader.assign([TopicPartition(each.topic, each.partition, 0) for each in _outputs()])
        left, deadline_s = count, time.monotonic() + PATIENCE_S
        while left > 0:
            came = sum(message.error() is None for message in reader.consume(5_000, timeout=0.1))
            if came:
                left, deadline_s = left - came, time.monotonic() + PATIENCE_S
            assert time.monotonic() < deadline_s, (
                f"{left:,} of {count:,} missing\n{application.log.read_text()[-3000:]}"
            )


def _reader(bootstrap: str, isolation_level: str) -> Consumer:
    return consumer_of(
        bootstrap,
        **{"isolation.level": isolation_level, "enable.partition.eof": True, "log_level": 0},
        **{"reconnect.backoff.max.ms": 100},
    )


def _outputs() -> list[TopicPartition]:
    return [TopicPartition(topic, index) for topic in (COUNTS, SUMS) for index in range(OUTPUT_PARTITIONS)]


def main() -> int:
    options = _options()
    if options.kafka:
        os.environ["BARNABAS_CLIENTS_KAFKA"] = "1"
    flights = data.sample() if options.sample else data.all_flights()
    print(f"{len(flights):,} flights, seed {options.seed}", flush=True)
    standbys = {"group_streams_num_standby_replicas": options.standbys}
    with tempfile.TemporaryDirectory() as name, running_server(Path(name, "server"), **standbys) as server:
        folder = Path(name)
        result = run(
            server,
            java_classes(),
            folder,
            flights,
            kills=options.kills,
            broker_kills=options.broker_kills,
            seed=options.seed,
            late_s=LATE_S if options.sample else LATE_WITH_ALL_S,
            instances=options.instances,
            settings=STREAMS_PROTOCOL_SETTINGS if options.streams_group else SETTINGS,
            say=_say,
        )
        _say(f"{purged(server.bootstrap):,} records of the repartition topic were deleted")
    _say(
        f"{result.flights:,} flights, {len(result.kills)} kills: all was written after {result.took_s:.1f} s"
    )
    _say(
        f"{result.words:,} words, counted and summed in {result.outputs:,} records; {result.aborted_outputs:,}"
        " more of aborted transactions, seen by nobody"
    )
    _say(f"the instances had state of {', '.join(map(str, result.tasks))} tasks")
    for sentence in result.wrong[:20]:
        print(f"             {sentence}")
    _say(
        f"{len(result.wrong)} words differ"
        if result.wrong
        else "Every word is counted and summed exactly once."
    )
    return 1 if result.wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.flights.streams", description=__doc__)
    parser.add_argument("--sample", action="store_true", help="2,005 flights instead of 336,776")
    parser.add_argument("--kills", type=int, default=9, help="of the application (%(default)s)")
    parser.add_argument("--broker-kills", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--streams-group", action="store_true", help="by the protocol of KIP-1071")
    parser.add_argument("--instances", type=int, default=1, help="of the application (%(default)s)")
    parser.add_argument("--standbys", type=int, default=0, help="of a streams group (%(default)s)")
    parser.add_argument("--kafka", action="store_true", help="with Apache Kafka, to judge the judge")
    return parser.parse_args()


_began_s = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _began_s:7.1f} s  {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
