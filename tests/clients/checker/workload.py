"""The workload: clients at work on their transactions, and what befalls them and their broker."""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.checker.clients import Client, Slot, planned
from tests.clients.checker.history import History, Operation, Outcome, Poll, Record
from tests.clients.confluent import PATIENCE_S, consumer_of, create_topic
from tests.clients.transactions import READ_COMMITTED, log_end, new_producer, stable_end
from tests.support.kafka_server import Server
from tests.support.waiting import POLL_S, until

KILL_A_CLIENT = "kill a client"
CRASH_A_CLIENT = "crash a client"
"""Within a transaction, before its commit."""
STOP_A_CLIENT = "stop a client"
"""Let another one take over its transactional id, and have it go on as if nothing had been."""
PAUSE_A_CLIENT = "pause a client"
"""The same within a transaction, before its commit."""
KILL_THE_BROKER = "kill the broker"
OF_CLIENTS = (KILL_A_CLIENT, CRASH_A_CLIENT, STOP_A_CLIENT, PAUSE_A_CLIENT)
FAULTS = (*OF_CLIENTS, KILL_THE_BROKER)

STEPS = 4
ABORTS = 1 / 32
"""Chance that a transaction aborts, at each of its steps."""
START_ATTEMPTS = 5
TIMEOUT_MS = 5_000
PATIENCE_AT_THE_END_S = 30.0


@dataclass(frozen=True, slots=True)
class Plan:
    """seed: of what clients do, and of what befalls whom; how their steps interleave is up to the machine.

    operations: transactions of those that write and read.
    clients: how many do so; of them `java_clients` are Java's. One more copies, in a group.
    faults: of OF_CLIENTS, or of those of who serves them; what happens, at even distances.
    java: the class path of `CheckerClient`.
    waits: transactions may take longer than they are allowed.
    """

    seed: int
    operations: int
    clients: int = 3
    java_clients: int = 0
    java: str | None = None
    partitions: int = 2
    topics: int = 2
    faults: tuple[str, ...] = ()
    waits: bool = False


class Served(Protocol):
    """What the clients are served by."""

    @property
    def bootstrap(self) -> str: ...

    def befall(self, fault: str, chance: random.Random, work: Workload) -> None:
        """Something of what can happen to it; returns once it is over."""


class OneBroker:
    """A broker alone, which can be killed."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def bootstrap(self) -> str:
        return self._server.bootstrap

    def befall(self, fault: str, chance: random.Random, work: Workload) -> None:
        assert fault == KILL_THE_BROKER
        self._server.kill()
        self._server.start()


class Workload:
    def __init__(self, served: Served, plan: Plan, say: Callable[[str], object] = lambda what: None) -> None:
        self.history: History = []
        self._served = served
        self._plan = plan
        self._say = say
        self._name = f"checked-{uuid.uuid4().hex[:8]}"
        names = [f"{self._name}-{index}" for index in range(plan.topics)]
        self._keys = [(name, index) for name in names for index in range(plan.partitions)]
        self._input_keys = len(self._keys)
        self._keys.append((f"{self._name}-copies", 0))
        self._changed = threading.Condition()
        self._processes = itertools.count(1)
        self._values = itertools.count(1)
        self._left = plan.operations
        self._done = 0
        self._threads: list[threading.Thread] = []
        self._clients: list[Client] = []
        self._errors: list[BaseException] = []

    @property
    def bootstrap(self) -> str:
        return self._served.bootstrap

    @property
    def keys(self) -> list[tuple[str, int]]:
        """Topic and partition of each."""
        return self._keys

    def coordinated(self) -> list[dict[str, str]]:
        """Who has a coordinator: `group` or `transactional_id`."""
        ids = [{"transactional_id": f"{self._name}-{index}"} for index in range(self._plan.clients + 1)]
        return [{"group": self._name}, *ids]

    def go_on(self, operations: int) -> None:
        """Returns once so many more are done, or nothing is left to do."""
        self._wait_for(self._done + operations)

    def run(self) -> History:
        """What the clients saw, and at the end one that reads everything. AssertionError where that can't be."""
        for topic in sorted({topic for topic, _ in self._keys}):
            partitions = 1 + max(index for name, index in self._keys if name == topic)
            create_topic(self.bootstrap, topic, partitions=partitions, replication_factor=-1)
        plan = self._plan
        slots = [Slot(index, copies=False, java=index < plan.java_clients) for index in range(plan.clients)]
        slots.append(Slot(plan.clients, copies=True, java=plan.java_clients == plan.clients))
        try:
            for slot in slots:
                self._drive(slot)
            self._strike(slots)
            self._join()
            self._settle(slots)
        finally:
            for client in self._clients:
                client.end()
        return self.history

    # --- clients at work

    def _drive(self, slot: Slot, superseded: Client | None = None) -> None:
        """A thread for the clients of a slot, until nothing is left to do or another client has taken its place."""
        thread = threading.Thread(target=self._work, args=(slot, superseded), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self, slot: Slot, superseded: Client | None) -> None:
        try:
            chance = random.Random(f"{self._plan.seed} {slot.number} {superseded is not None}")
            client = self._next_client(slot, superseded)
            while client is not None and self._takes_one(slot):
                self._transact(client, self._command(slot, chance))
                if not slot.copies:
                    with self._changed:
                        self._done += 1
                        self._changed.notify_all()
                if not client.goes_on:
                    client = self._next_client(slot, client)
        except BaseException as error:
            self._errors.append(error)
            with self._changed:
                self._changed.notify_all()
            raise

    def _takes_one(self, slot: Slot) -> bool:
        """Whether there is another operation to do. Copies are made as long as the others are at work."""
        with self._changed:
            takes = self._left > 0 and not self._errors
            if not slot.copies:
                self._left -= 1
            return takes

    def _next_client(self, slot: Slot, before: Client | None) -> Client | None:
        """A client in place of this one; None where there is another already."""
        for _ in range(START_ATTEMPTS):
            with self._changed:
                if slot.client is not before:
                    return None
                client = slot.client = self._new_client(slot)
            if client.wait_until_ready():
                return client
            before = client
        raise AssertionError(f"{START_ATTEMPTS} clients in a row did not get a producer id")

    def _new_client(self, slot: Slot) -> Client:
        config = {
            "bootstrap": self.bootstrap,
            "transactional_id": f"{self._name}-{slot.number}",
            "timeout_ms": TIMEOUT_MS,
            "keys": self._keys,
            "input_keys": self._input_keys,
            "group": self._name if slot.copies else None,
        }
        client = Client(next(self._processes), config, self._plan.java if slot.java else None)
        self._clients.append(client)
        return client

    def _command(self, slot: Slot, chance: random.Random) -> dict[str, Any]:
        steps: list[list[Any]] = []
        commit = True
        for _ in range(1 if slot.copies else chance.randint(1, STEPS)):
            if slot.copies:
                steps.append(["copy"])
            elif chance.random() < 0.5:
                steps.append(["send", chance.randrange(self._input_keys), next(self._values)])
            else:
                steps.append(["poll"])
            if chance.random() < ABORTS * (4 if slot.copies else 1):
                commit = False
                break
        if slot.ends_with:
            steps.append([slot.ends_with])
            slot.ends_with, commit = "", True
        if self._plan.waits and chance.random() < 0.005:
            steps.append(["wait", TIMEOUT_MS / 1_000 * chance.random() * 2])
        return {"steps": steps, "commit": commit}

    def _transact(self, client: Client, command: dict[str, Any]) -> None:
        operation = Operation(
            client.process, Outcome.FAILED, planned(command["steps"]), None, in_group=client.in_group
        )
        with self._changed:
            self.history.append(operation)
        client.transact(command, operation)

    # --- what befalls them

    def _strike(self, slots: list[Slot]) -> None:
        """The faults, each when so many operations are done; then wait until all are."""
        chance = random.Random(self._plan.seed)
        stopped: list[Client] = []
        faults = self._plan.faults
        for number, fault in enumerate(faults, 1):
            self._wait_for(self._plan.operations * number // (len(faults) + 1))
            while stopped:
                stopped.pop().signal(signal.SIGCONT)
            slot = chance.choice(slots)
            self._say(f"{fault} ({slot.number}) after {self._done} operations")
            if fault == CRASH_A_CLIENT:
                slot.ends_with = "crash"
            elif fault in OF_CLIENTS:
                victim = self._struck(slot, fault)
                if fault != KILL_A_CLIENT:
                    stopped.append(victim)
                    self._drive(slot, superseded=victim)
            else:
                self._served.befall(fault, chance, self)
        if stopped:
            self._wait_for(self._plan.operations * len(faults) // (len(faults) + 1) + 1)
        while stopped:
            stopped.pop().signal(signal.SIGCONT)

    def _struck(self, slot: Slot, fault: str) -> Client:
        """The client of this slot, killed or stopped."""
        if fault == PAUSE_A_CLIENT:
            slot.ends_with = "pause"
        while True:
            with self._changed:
                victim = slot.client
            assert victim is not None
            if fault != PAUSE_A_CLIENT:
                victim.signal(signal.SIGKILL if fault == KILL_A_CLIENT else signal.SIGSTOP)
                return victim
            if victim.is_stopped or self._left <= 0:
                return victim
            time.sleep(POLL_S)

    def _wait_for(self, done: int) -> None:
        with self._changed:
            came = self._changed.wait_for(
                lambda: self._done >= done or self._left <= 0 or self._errors, timeout=10 * PATIENCE_S
            )
        assert came, f"only {self._done} operations are done"

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(timeout=10 * PATIENCE_S)
            assert not thread.is_alive(), "a client hangs"
        if self._errors:
            raise self._errors[0]

    # --- afterwards

    def _settle(self, slots: list[Slot]) -> None:
        """End what is open, copy the rest, and read it all."""
        for client in self._clients:
            client.end()
        for slot in slots:
            new_producer(self.bootstrap, f"{self._name}-{slot.number}")
        everything = self._read_all(range(self._input_keys))
        self._copy_up_to(slots[-1], everything)
        steps = [Poll(everything, time.monotonic_ns())]
        steps.append(Poll(self._read_all([self._input_keys]), time.monotonic_ns()))
        self.history.append(Operation(0, Outcome.OK, list(steps)))

    def _copy_up_to(self, slot: Slot, everything: list[Record]) -> None:
        ends: dict[int, int] = {record.key: record.offset + 1 for record in everything}
        client = self._next_client(slot, slot.client)
        assert client is not None
        deadline_s = time.monotonic() + PATIENCE_AT_THE_END_S
        while any(self._copied_up_to().get(self._keys[key], 0) < end for key, end in ends.items()):
            assert time.monotonic() < deadline_s, f"the copies end at {self._copied_up_to()}, not at {ends}"
            self._transact(client, {"steps": [["copy"]], "commit": True})
            if not client.goes_on:
                client = self._next_client(slot, client)
                assert client is not None

    def _copied_up_to(self) -> dict[tuple[str, int], int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        asked = ConsumerGroupTopicPartitions(self._name)
        found = admin.list_consumer_group_offsets([asked])[self._name].result(PATIENCE_S)
        return {(each.topic, each.partition): each.offset for each in found.topic_partitions}

    def _read_all(self, keys: range | list[int]) -> list[Record]:
        return [record for key in keys for record in self._read(key)]

    def _read(self, key: int) -> Iterator[Record]:
        topic, partition = self._keys[key]

        def at_rest() -> bool:
            stable = stable_end(self.bootstrap, topic, partition=partition)
            return stable == log_end(self.bootstrap, topic, partition=partition)

        until(at_rest, f"nothing is open in {topic}-{partition}", PATIENCE_AT_THE_END_S)
        consumer = consumer_of(
            self.bootstrap, **{"isolation.level": READ_COMMITTED, "enable.partition.eof": True}
        )
        with closing(consumer):
            consumer.assign([TopicPartition(topic, partition, 0)])
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"neither a record nor the end of {topic}-{partition} came"
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    return
                yield Record(key, message.offset(), *map(int, message.value().split()))
