"""One client process, whichever library it is made of: what `confluent_worker`, `kafka_python_worker` and
`aiokafka_worker` share, each of which is run as `python -m tests.clients.checker.confluent_worker CONFIG`.

Takes an operation per line of standard input, as JSON: {"steps": [...], "commit": true}, where a step is
["send", key, value], ["poll"], ["copy"] (what a poll returns, with its offsets), ["wait", seconds], or, once all
that it sent is acknowledged, ["crash"] or ["pause"] (until SIGCONT). Before it asks to commit it prints a line
{"steps", "commit_at_ns"}, and when the operation is over one with "outcome", too.
`java/CheckerClient.java` does the same with Java's clients.

An operation is a transaction; of a client that has no transactional id, sends that stand each for itself, or the
reading of a group's member, which commits the offsets of what it has read.
"""

from __future__ import annotations

import abc
import json
import os
import signal
import sys
import time
from typing import Any, ClassVar

PATIENCE_S = 30.0
MOST_S = 90
"""An operation that takes longer ends the process, as a crash would: librdkafka's send_offsets_to_transaction waits
for ever for a coordinator that has left the metadata, whatever its timeout (librdkafka's issues 5456, 5511), and
kafka-python's commit_transaction has no timeout."""
POLL_S = 0.05
RECORDS_A_POLL = 20
REQUEST_TIMEOUT_MS = 5_000
"""Of requests to a broker that is paused: they are sent again, to another one."""
SESSION_TIMEOUT_MS = 1_000
HEARTBEAT_MS = 200
FAILURES = 5
"""So many readings may fail one after the other, while a group is rebalanced; then the client is given up."""

Place = tuple[str, int]
Polled = list[tuple[str, int, int, bytes]]
"""Records as (topic, partition, offset, value)."""


class UnacknowledgedError(Exception):
    """A send was not acknowledged, so the transaction must not be committed."""


class NotJoinedError(Exception):
    """Records came of a group of which the client was no member yet when it asked for them, so that nothing would
    fence the commit of their offsets."""


class Worker(abc.ABC):
    """config: bootstrap, transactional_id (None without transactions), timeout_ms, keys ([topic, partition] of each),
    input_keys (how many of them are read), copies_key, reads (whether it has a consumer), sends (a producer), group
    (None for a consumer that keeps its positions itself), protocol (of the group), first_copy (the value it has)."""

    errors: ClassVar[tuple[type[Exception], ...]] = (Exception,)
    """What the library raises. Those in Python fail by whatever their own faults make of it."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.bootstrap: str = config["bootstrap"]
        self.transactional_id: str | None = config["transactional_id"]
        self.timeout_ms: int = config["timeout_ms"]
        self.keys: list[Place] = [(topic, partition) for topic, partition in config["keys"]]
        self.key_of = {place: key for key, place in enumerate(self.keys)}
        self.inputs = self.keys[: config["input_keys"]]
        self.topics = sorted({topic for topic, _ in self.inputs})
        self.copies_key: int = config["copies_key"]
        self.reads: bool = config["reads"]
        self.sends: bool = config["sends"]
        self.group: str | None = config["group"]
        self.protocol: str = config["protocol"]
        self.next_copy: int = config["first_copy"]
        self.positions = dict.fromkeys(self.inputs, 0)
        self.failures = 0
        self.start()

    # --- what each library does in its way

    @abc.abstractmethod
    def start(self) -> None:
        """Create a producer, ready for a transaction, and a consumer, as configured."""

    @abc.abstractmethod
    def begin(self) -> None: ...

    @abc.abstractmethod
    def commit(self) -> None: ...

    @abc.abstractmethod
    def abort(self) -> None: ...

    @abc.abstractmethod
    def is_abortable(self, error: Exception) -> bool:
        """Whether the producer can do another transaction, once it has aborted this one."""

    @abc.abstractmethod
    def send(self, place: Place, payload: bytes, sent: list[Any]) -> None:
        """Send a record. Its offset is set in `sent[3]` once it is acknowledged."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Returns once all sends are acknowledged, or it is known that one isn't."""

    @abc.abstractmethod
    def consume(self) -> Polled: ...

    @abc.abstractmethod
    def seek_positions(self) -> None:
        """Read on from `positions`."""

    @abc.abstractmethod
    def seek_committed(self) -> None:
        """Read on from what the group has committed."""

    @abc.abstractmethod
    def membership(self) -> Any:
        """The client's membership in the group, or None while it isn't a member."""

    @abc.abstractmethod
    def add_offsets(self, ends: dict[Place, int], membership: Any) -> None:
        """Commit them with the transaction."""

    @abc.abstractmethod
    def commit_offsets(self, ends: dict[Place, int]) -> None: ...

    # --- operations

    def transact(self, command: dict[str, Any]) -> dict[str, Any]:
        steps: list[list[Any]] = []
        done: dict[str, Any] = {"steps": steps, "commit_at_ns": None, "outcome": "failed", "goes_on": True}
        if self.transactional_id is None and self.sends:
            done["outcome"] = "unknown"
        try:
            if self.transactional_id is not None:
                self.begin()
            for step in command["steps"]:
                self._take(step, steps)
            self._flush(steps)
            if command["commit"]:
                done["commit_at_ns"] = time.monotonic_ns()
                print(json.dumps({"steps": steps, "commit_at_ns": done["commit_at_ns"]}), flush=True)
                done["outcome"] = "unknown"
                self._commit(steps)
                done["outcome"] = "ok"
            elif self.transactional_id is not None:
                self.abort()
            self.failures = 0
        except (*self.errors, UnacknowledgedError, NotJoinedError) as error:
            done["error"] = f"{type(error).__name__}: {error}"
            done["goes_on"] = self._goes_on_after(error)
        if done["outcome"] == "ok":
            self.positions.update(_ends(self.keys, steps))
        elif done["goes_on"] and self.transactional_id is not None:
            self._rewind(done)
        return done

    def _goes_on_after(self, error: Exception) -> bool:
        if self.transactional_id is None:
            self.failures += 1
            return not self.sends and self.failures < FAILURES
        if not (isinstance(error, UnacknowledgedError | NotJoinedError) or self.is_abortable(error)):
            return False
        try:
            self.abort()
        except self.errors:
            return False
        return True

    def _rewind(self, done: dict[str, Any]) -> None:
        try:
            if self.group is None:
                self.seek_positions()
            else:
                self.seek_committed()
        except self.errors as error:
            done["error"], done["goes_on"] = f"{type(error).__name__}: {error}", False

    def _flush(self, steps: list[list[Any]]) -> None:
        if self.sends:
            self.flush()
        if any(step[0] == "send" and step[3] is None for step in steps):
            raise UnacknowledgedError

    def _commit(self, steps: list[list[Any]]) -> None:
        if self.transactional_id is not None:
            self.commit()
        elif ends := _ends(self.keys, steps):
            self.commit_offsets(ends)

    def _take(self, step: list[Any], steps: list[list[Any]]) -> None:
        match step:
            case ["send", key, value]:
                self._send(key, value, None, steps)
            case ["poll"]:
                self._poll(steps)
            case ["copy"]:
                self._copy(steps)
            case ["wait", seconds]:
                time.sleep(seconds)
            case ["crash"]:
                self._flush(steps)
                os.kill(os.getpid(), signal.SIGKILL)
            case ["pause"]:
                self._flush(steps)
                os.kill(os.getpid(), signal.SIGSTOP)

    def _send(self, key: int, value: int, source: int | None, steps: list[list[Any]]) -> None:
        sent = ["send", key, value, None, source]
        steps.append(sent)
        payload = str(value) if source is None else f"{value} {source}"
        self.send(self.keys[key], payload.encode(), sent)

    def _poll(self, steps: list[list[Any]]) -> list[list[Any]]:
        records = [
            [self.key_of[topic, partition], offset, *map(int, value.split())]
            for topic, partition, offset, value in self.consume()
        ]
        steps.append(["poll", records, time.monotonic_ns()])
        return records

    def _copy(self, steps: list[list[Any]]) -> None:
        """As who has polled it: a member that the group has left behind since then must not commit."""
        membership = self.membership()
        records = self._poll(steps)
        if not records:
            return
        if membership is None:
            raise NotJoinedError
        for _key, _offset, value, *_ in records:
            self._send(self.copies_key, self.next_copy, value, steps)
            self.next_copy += 1
        self.add_offsets(_ends(self.keys, steps), membership)


def _ends(keys: list[Place], steps: list[list[Any]]) -> dict[Place, int]:
    """The offset after the last polled record of each partition."""
    return {keys[key]: offset + 1 for step in steps if step[0] == "poll" for key, offset, *_ in step[1]}


def run(kind: type[Worker]) -> None:
    signal.alarm(MOST_S)
    worker = kind(json.loads(sys.argv[1]))
    signal.alarm(0)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        signal.alarm(MOST_S)
        done = worker.transact(json.loads(line))
        signal.alarm(0)
        print(json.dumps(done), flush=True)
    # Threads of a library's that wait for what will never come don't keep the process.
    os._exit(0)
