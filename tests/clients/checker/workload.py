"""The workload: clients that do transactions, and faults of the clients and their broker."""

from __future__ import annotations

import itertools
import math
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from tests.clients.checker.clients import Client, Slot, planned
from tests.clients.checker.history import Committed, History, Operation, Outcome, Poll, Record
from tests.clients.checker.plan import (
    CONSUMER_GROUPS,
    CRASH_A_CLIENT,
    KILL_A_CLIENT,
    KILL_THE_BROKER,
    OF_CLIENTS,
    PAUSE_A_CLIENT,
    Plan,
)
from tests.clients.checker.questions import committed, read, until_nothing_is_open
from tests.clients.checker.roles import Kind
from tests.clients.confluent import PATIENCE_S, create_topic
from tests.support.kafka_server import Server
from tests.support.waiting import POLL_S

STEPS = 4
CHANCES_OF_ABORT = {Kind.TRANSACTS: 1 / 32, Kind.COPIES: 1 / 8}
"""That a transaction aborts, at each of its steps."""
PATIENCE_TO_START_S = 200.0
TIMEOUT_MS = 5_000
LAST_OPERATION_S = 5.0
PATIENCE_AT_THE_END_S = 90.0
PATIENCE_WITH_ONE_S = 20.0
MOST_SUPERSEDED = 3
"""Operations that a client tries once another has taken its place: then it has shown that it does no harm."""


class Served(Protocol):
    """The brokers that serve the clients."""

    @property
    def bootstrap(self) -> str: ...

    def befall(self, fault: str, chance: random.Random, work: Workload) -> None:
        """Cause one of the possible faults. Return once it is over."""


ONE_BROKER = {name.replace(".", "_"): value for name, value in CONSUMER_GROUPS.items()}
"""Settings for `running_server`."""


class OneBroker:
    """A single broker, which can be killed."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def bootstrap(self) -> str:
        return self._server.bootstrap

    def befall(self, fault: str, chance: random.Random, work: Workload) -> None:
        assert fault == KILL_THE_BROKER
        self.kill()

    def kill(self) -> None:
        """Kill the broker and start it again."""
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
        self._keys += [(f"{self._name}-copies", index) for index, _ in enumerate(plan.copying_groups)]
        self._groups = [f"{self._name}-{group}" for group in plan.groups]
        self._changed = threading.Condition()
        self._processes = itertools.count(1)
        self._values = itertools.count(1)
        self._done = 0
        self._is_over = False
        self._threads: list[threading.Thread] = []
        self._clients: list[Client] = []
        self._errors: list[BaseException] = []

    @property
    def bootstrap(self) -> str:
        return self._served.bootstrap

    @property
    def keys(self) -> list[tuple[str, int]]:
        """The topic and partition of each key."""
        return self._keys

    def coordinated(self) -> list[dict[str, str]]:
        """Who has a coordinator: `group` or `transactional_id`."""
        ids = [
            {"transactional_id": self._transactional_id(number)}
            for number, role in enumerate(self._plan.roles)
            if role.kind in (Kind.TRANSACTS, Kind.COPIES)
        ]
        return [*({"group": group} for group in self._groups), *ids]

    def _transactional_id(self, number: int) -> str:
        return f"{self._name}-{number}"

    def outcomes(self) -> dict[str, tuple[int, Counter[str]]]:
        """The number of clients of each role, and the outcomes of their operations."""
        roles = {client.process: str(client.role) for client in self._clients}
        found = {role: (count, Counter[str]()) for role, count in Counter(roles.values()).items()}
        for operation in self.history:
            if operation.process in roles:
                found[roles[operation.process]][1][operation.outcome.value] += 1
        return found

    def go_on(self, operations: int, most_s: float = math.inf) -> None:
        """Return once a number of operations is done, or nothing is left to do, or the time is over."""
        target = self._done + operations
        with self._changed:
            came = self._changed.wait_for(
                lambda: self._done >= target or self._is_over or self._errors,
                timeout=min(most_s, 10 * PATIENCE_S),
            )
        assert came or most_s < math.inf, f"only {self._done} operations are done"

    def run(self) -> History:
        """What the clients saw, and at the end one that reads everything. AssertionError where that can't be."""
        for topic in sorted({topic for topic, _ in self._keys}):
            partitions = 1 + max(index for name, index in self._keys if name == topic)
            create_topic(self.bootstrap, topic, partitions=partitions, replication_factor=-1)
        slots = [Slot(number, role) for number, role in enumerate(self._plan.roles)]
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
            while client is not None and self._takes_one(slot, client):
                self._transact(client, self._command(slot, chance))
                if slot.transacts:
                    with self._changed:
                        self._done += 1
                        self._changed.notify_all()
                if not client.goes_on:
                    client.end()
                    client = self._next_client(slot, client)
            if client is not None:
                client.end()
        except BaseException as error:
            self._errors.append(error)
            for each in [*self._clients]:
                each.end()
            with self._changed:
                self._changed.notify_all()
            raise

    def _takes_one(self, slot: Slot, client: Client) -> bool:
        """Whether there is another operation to do. Who does no transactions keeps pace with those who do."""
        with self._changed:
            if slot.client is not client:
                client.since_superseded += 1
                if client.since_superseded > MOST_SUPERSEDED:
                    return False
            if not slot.transacts:
                self._changed.wait_for(
                    lambda: self._done > slot.seen or self._is_over or self._errors, timeout=PATIENCE_S
                )
                slot.seen = self._done
            return not self._is_over and not self._errors

    def _next_client(self, slot: Slot, before: Client | None, *, settles: bool = False) -> Client | None:
        """A client in place of this one; None where there is another already, or nothing is left but to settle."""
        deadline_s = time.monotonic() + PATIENCE_TO_START_S
        while time.monotonic() < deadline_s:
            with self._changed:
                if slot.client is not before or ((self._is_over or self._errors) and not settles):
                    return None
                client = slot.client = self._new_client(slot)
            if client.wait_until_ready():
                return client
            client.end()
            before = client
        raise AssertionError(f"after {PATIENCE_TO_START_S:g} s no client has started: {slot}")

    def _new_client(self, slot: Slot) -> Client:
        role, plan = slot.role, self._plan
        copies = role.kind is Kind.COPIES
        config = {
            "bootstrap": self.bootstrap,
            "transactional_id": self._transactional_id(slot.number) if slot.transacts or copies else None,
            "timeout_ms": TIMEOUT_MS,
            "keys": self._keys,
            "input_keys": self._input_keys,
            "copies_key": self._input_keys + plan.copying_groups.index(role.group) if copies else None,
            "reads": role.kind is not Kind.SENDS,
            "sends": role.kind is not Kind.READS,
            "group": f"{self._name}-{role.group}" if role.group else None,
            "protocol": role.protocol,
        }
        client = Client(next(self._processes), role, config, plan.java)
        self._clients.append(client)
        return client

    def _command(self, slot: Slot, chance: random.Random) -> dict[str, Any]:
        kind = slot.role.kind
        steps: list[list[Any]] = []
        commit = True
        for _ in range(1 if slot.role.group else chance.randint(1, STEPS)):
            if kind is Kind.COPIES:
                steps.append(["copy"])
            elif kind is Kind.SENDS or (kind is Kind.TRANSACTS and chance.random() < 0.5):
                steps.append(["send", chance.randrange(self._input_keys), next(self._values)])
            else:
                steps.append(["poll"])
            if chance.random() < CHANCES_OF_ABORT.get(kind, 0):
                commit = False
                break
        if slot.ends_with:
            steps.append([slot.ends_with])
            slot.ends_with, commit = "", True
        if self._plan.waits and kind in CHANCES_OF_ABORT and chance.random() < 0.005:
            steps.append(["wait", TIMEOUT_MS / 1_000 * chance.random() * 2])
        return {"steps": steps, "commit": commit}

    def _transact(self, client: Client, command: dict[str, Any]) -> None:
        singly = client.role.kind is Kind.SENDS
        operation = Operation(
            client.process,
            Outcome.UNKNOWN if singly else Outcome.FAILED,
            planned(command["steps"]),
            group=client.group,
            singly=singly,
        )
        with self._changed:
            self.history.append(operation)
        client.transact(command, operation)

    # --- what befalls them

    def _strike(self, slots: list[Slot]) -> None:
        """The faults, with as many operations before each of them as after the last."""
        chance = random.Random(self._plan.seed)
        stopped: list[Client] = []
        pause = max(self._plan.operations // (len(self._plan.faults) + 1), 1)
        for fault in self._plan.faults:
            self.go_on(pause)
            if self._errors:
                break
            while stopped:
                stopped.pop().signal(signal.SIGCONT)
            slot = chance.choice(slots)
            whom = f" ({slot})" if fault in OF_CLIENTS else ""
            self._say(f"{fault}{whom} after {self._done} operations")
            if fault == CRASH_A_CLIENT:
                slot.ends_with = "crash"
            elif fault in OF_CLIENTS:
                victim = self._struck(slot, fault)
                if fault != KILL_A_CLIENT:
                    stopped.append(victim)
                    self._drive(slot, superseded=victim)
            else:
                self._served.befall(fault, chance, self)
            self._sample()
        if stopped:
            self.go_on(1)
        while stopped:
            stopped.pop().signal(signal.SIGCONT)
        self.go_on(pause)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

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
            if victim.is_stopped:
                return victim
            time.sleep(POLL_S)

    def _join(self) -> None:
        """Wait for the clients to end. Kill slow ones, as well as those that hang."""
        deadline_s = time.monotonic() + LAST_OPERATION_S
        for thread in self._threads:
            thread.join(timeout=max(deadline_s - time.monotonic(), 0))
        for client in [*self._clients]:
            client.end()
        for thread in self._threads:
            thread.join(timeout=PATIENCE_S)
            assert not thread.is_alive(), "the thread of a client that was killed hangs"
        if self._errors:
            raise self._errors[0]

    def _sample(self) -> None:
        """Record each group's committed offsets."""
        key_of = {place: key for key, place in enumerate(self._keys)}
        for group in self._groups:
            at_ns = time.monotonic_ns()
            ends = {key_of[place]: end for place, end in committed(self.bootstrap, group).items()}
            with self._changed:
                self.history.append(Operation(0, Outcome.OK, [Committed(group, ends, at_ns)]))

    # --- afterwards

    def _settle(self, slots: list[Slot]) -> None:
        """Wait for what is open to be over, have each group read the rest, and read it all."""
        self._say("wait until nothing is open")
        self._until_nothing_is_open()
        self._say("read it all")
        everything = self._read_all(range(self._input_keys))
        steps = [Poll(everything, time.monotonic_ns())]
        for slot in {slot.role.group: slot for slot in slots if slot.role.group}.values():
            self._say(f"go on to the end ({slot})")
            self._go_on_to_the_end(slot, everything)
        self._until_nothing_is_open()
        steps.append(Poll(self._read_all(range(self._input_keys, len(self._keys))), time.monotonic_ns()))
        self.history.append(Operation(0, Outcome.OK, list(steps)))
        self._sample()

    def _until_nothing_is_open(self) -> None:
        until_nothing_is_open(
            self.bootstrap, self._keys, self._name, TIMEOUT_MS / 1_000 + PATIENCE_AT_THE_END_S
        )

    def _go_on_to_the_end(self, slot: Slot, everything: list[Record]) -> None:
        """Read each group to its end. If one client gets stuck, try another: if all do, the brokers are to blame."""
        ends: dict[int, int] = {record.key: record.offset + 1 for record in everything}
        group = f"{self._name}-{slot.role.group}"
        step = "copy" if slot.role.kind is Kind.COPIES else "poll"
        client = self._next_client(slot, slot.client, settles=True)
        gone_on_s = given_s = time.monotonic()
        before: dict[tuple[str, int], int] = {}
        while client is not None:
            reached = committed(self.bootstrap, group)
            if all(reached.get(self._keys[key], 0) >= end for key, end in ends.items()):
                break
            now_s = time.monotonic()
            at = f"{slot} is at {reached}, not at {ends}, after {self.history[-1]}"
            assert now_s - gone_on_s < PATIENCE_AT_THE_END_S, at
            if reached != before:
                gone_on_s, given_s, before = now_s, now_s, reached
            elif now_s - given_s > PATIENCE_WITH_ONE_S:
                self._say(f"another client is to go on: {at}")
                client.goes_on, given_s = False, now_s
            if client.goes_on:
                self._transact(client, {"steps": [[step]], "commit": True})
            if not client.goes_on:
                client.end()
                client = self._next_client(slot, client, settles=True)
        if client is not None:
            client.end()

    def _read_all(self, keys: range) -> list[Record]:
        return [
            Record(key, offset, *map(int, value.split()))
            for key in keys
            for offset, value in read(self.bootstrap, self._keys[key])
        ]
