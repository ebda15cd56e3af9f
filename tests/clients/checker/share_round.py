"""Share consumers in processes of their own, while these and the broker are killed: what the rules of
`tests.simulation.shares.deliveries` say of what clients saw.

A client doesn't see when a fetch was sent that it has from its library: it was a second before the last poll but one,
at the earliest. A run of the broker is a term of all share partitions, as long as some consumer is there.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Message, Producer

from protocol.errors import Error, error_of
from tests.clients.checker.workload import OneBroker
from tests.clients.confluent import PATIENCE_S, begin_at_the_start, create_topic
from tests.simulation.shares.deliveries import Acknowledgement, Deliveries, Delivery, OfRecord, Session
from tests.support.waiting import until

LIMIT = 5
LOCK_S = 3.0
PARTITIONS = 2
LEAST_CODE = int(Error.UNKNOWN_SERVER_ERROR)
"""Of what a broker says: those of librdkafka's own lie below."""

SHARE_SETTINGS = {
    "group_share_min_heartbeat_interval_ms": 100,
    "group_share_heartbeat_interval_ms": 200,
    "group_share_min_session_timeout_ms": 1000,
    "group_share_session_timeout_ms": 2000,
    "group_share_assignment_interval_ms": 0,
    "group_share_min_record_lock_duration_ms": 1000,
    "group_share_record_lock_duration_ms": int(LOCK_S * 1000),
    "share_coordinator_state_topic_num_partitions": 2,
    "share_coordinator_snapshot_update_records_per_snapshot": 20,
    "group_share_initialize_retry_interval_ms": 2000,
}
"""Of the broker."""


class Plan(NamedTuple):
    """`kills` counts those of the broker. A consumer is killed together with every second one."""

    seed: int
    kills: int
    consumers: int = 3
    between_s: tuple[float, float] = (0.3, 5)


@dataclass(eq=False)
class _Run:
    """A run of the broker, from one moment to another."""

    began_s: float
    ended_s: float = math.inf


class _Consumer:
    """A consumer's process, and its messages as they arrive."""

    def __init__(
        self, bootstrap: str, group: str, seed: str, deliveries: Deliveries, runs: Sequence[_Run]
    ) -> None:
        self._group = group
        self._deliveries = deliveries
        self._runs = runs
        self._session = Session(seed)
        self._held: dict[int, dict[int, Delivery]] = {}
        self._said: dict[int, list[Acknowledgement]] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.checker.share_worker", bootstrap, group, seed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._told(json.loads(line))
            except json.JSONDecodeError:
                return  # cut off by the kill

    def _run_of(self, from_s: float, to_s: float) -> _Run | None:
        """Return the run that contains all of that time."""
        return next((run for run in self._runs if run.began_s <= from_s and to_s <= run.ended_s), None)

    def _told(self, what: dict[str, Any]) -> None:
        at_s = what["at"]
        for index, offset, count, value in what.get("given", ()):
            asked_s = what["asked"]
            delivery = self._deliveries.delivered(
                self._session,
                (self._group, index),
                offset,
                count,
                value.encode(),
                asked_s,
                at_s,
                self._run_of(asked_s, at_s),
            )
            self._held.setdefault(index, {})[offset] = delivery
        if "says" in what:
            kinds: dict[int, dict[int, int]] = {}
            for index, offset, kind in what["says"]:
                kinds.setdefault(index, {})[offset] = kind
            self._said = {
                index: self._deliveries.acknowledging(
                    self._session, (self._group, index), of_place, self._held[index], at_s
                )
                for index, of_place in kinds.items()
            }
        for index, code in what.get("done", ()):
            for told in self._said.get(index, ()) if code >= LEAST_CODE else ():
                self._deliveries.acknowledged(told, error_of(code), at_s, self._run_of(told.sent_s, at_s))

    def calm_down(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended by itself, which its kill tells
            self._process.stdin.write("calm\n")
            self._process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> int | None:
        """What it was given and hasn't said nobody knows. Returns its status where it has ended by itself before."""
        status = self._process.poll()
        self._session.over_s = time.monotonic()
        self._process.kill()
        self._listening.join()
        with contextlib.suppress(BrokenPipeError), self._process:
            pass  # its pipes are closed, and it is waited for
        return status


class ShareRound:
    """One broker, and a group of consumers of one topic. `history` is there once it has run."""

    def __init__(
        self, broker: OneBroker, plan: Plan, say: Callable[[str], object] = lambda what: None
    ) -> None:
        self._bootstrap = broker.bootstrap
        self._broker = broker
        self._plan = plan
        self._say = say
        self._luck = random.Random(plan.seed)
        self._name = f"shared-{plan.seed}"
        self._sent: dict[int, dict[int, bytes]] = {index: {} for index in range(PARTITIONS)}
        self._consumers: list[_Consumer] = []
        self._ended: list[str] = []
        self._started = 0
        self._runs = [_Run(time.monotonic())]
        self._is_over = False
        self.deliveries = Deliveries(self._name, lock_s=LOCK_S, limit=LIMIT, is_latest=False, may_lose=False)

    def run(self) -> list[str]:
        """Run the round. Return the complaints."""
        create_topic(self._bootstrap, self._name, partitions=PARTITIONS)
        begin_at_the_start(self._bootstrap, self._name)
        producing = threading.Thread(target=self._produce)
        producing.start()
        try:
            for _ in range(self._plan.consumers):
                self._start_one()
            for number in range(self._plan.kills):
                time.sleep(self._luck.uniform(*self._plan.between_s))
                if number % 2:
                    self._kill_one()
                self._runs[-1].ended_s = time.monotonic()
                self._broker.kill()
                self._runs.append(_Run(time.monotonic()))
                if number % 2:
                    self._start_one()
                self._say(f"{number + 1} kills, {sum(map(len, self._sent.values()))} records")
        finally:
            self._is_over = True
            producing.join()
        for consumer in self._consumers:
            consumer.calm_down()
        try:
            until(lambda: self._some_ended or not self._due(), "all records are done with", PATIENCE_S)
        finally:
            for consumer in self._consumers:
                self._kill(consumer)
        places = {(self._name, index): values for index, values in self._sent.items()}
        return [*self._ended, *self.deliveries.complaints(places, None, dict.fromkeys(places, 0))]

    @property
    def done(self) -> int:
        """The number of records that are surely done."""
        of_records = self._of_records()
        return sum(any(told.is_final for told in each.acknowledgements) for each in of_records)

    @property
    def summary(self) -> str:
        """The amounts of work, as a text."""
        given = sum(len(each.deliveries) for each in self._of_records())
        return (
            f"{self._plan.kills} kills of the broker, {sum(map(len, self._sent.values()))} records, "
            f"{given} deliveries, {self.done} records surely done with"
        )

    def _of_records(self) -> list[OfRecord]:
        return [each for found in self.deliveries.records.values() for each in found.values()]

    # --- consumers ------------------------------------------------------------------------------------------

    def _start_one(self) -> None:
        self._started += 1
        seed = f"{self._plan.seed} {self._started}"
        self._consumers.append(_Consumer(self._bootstrap, self._name, seed, self.deliveries, self._runs))

    def _kill_one(self) -> None:
        """Kill one consumer. A fetch of its may be answered, with records that no consumer then has."""
        consumer = self._luck.choice(self._consumers)
        self._consumers.remove(consumer)
        self._kill(consumer)
        places = frozenset((self._name, index) for index in range(PARTITIONS))
        self.deliveries.lost_answer(places, time.monotonic())

    @property
    def _some_ended(self) -> bool:
        return any(consumer.has_ended for consumer in self._consumers)

    def _kill(self, consumer: _Consumer) -> None:
        status = consumer.kill()
        if status is not None:
            self._ended.append(f"a consumer ended by itself, with status {status}")

    def _due(self) -> list[int]:
        return [
            offset
            for index, values in self._sent.items()
            for offset in [*values]
            if self.deliveries.is_due((self._name, index), offset)
        ]

    # --- records --------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        """Produce until the round is over, whatever happens to the broker."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        luck = random.Random(f"{self._plan.seed} records")
        number = 0
        while not self._is_over:
            for _ in range(luck.randint(1, 8)):
                number += 1
                written = partial(self._written, time.monotonic())
                place = luck.randrange(PARTITIONS)
                producer.produce(self._name, f"{number}".encode(), partition=place, on_delivery=written)
            producer.poll(0)
            time.sleep(luck.uniform(0.01, 0.1))
        assert producer.flush(PATIENCE_S) == 0

    def _written(self, sent_s: float, error: object, message: Message) -> None:
        assert error is None, error
        index, offset = message.partition(), message.offset()
        assert index is not None
        assert offset is not None
        self.deliveries.written_s[(self._name, index), offset] = sent_s
        self._sent[index][offset] = bytes(message.value() or b"")
