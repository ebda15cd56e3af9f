"""Client processes, and the operations that they are asked for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.clients.checker.history import Operation, Outcome, Poll, Record, Send, Step
from tests.clients.checker.roles import JAVA, MODULES, Kind, Role
from tests.support.apache_kafka import RUNNER, TOOL_OPTIONS

ROOT = Path(__file__).parents[3]
COPIES_START = 1_000_000
"""Copies have values of their own: a million for each process."""


class Client:
    """A client process. `process` is its number in the history."""

    def __init__(self, process: int, role: Role, config: Mapping[str, Any], java: str | None = None) -> None:
        """java: the class path of `CheckerClient`, where the role is one of Java's."""
        self.process = process
        self.role = role
        self.group: str = config["group"] or ""
        argument = json.dumps({**config, "first_copy": process * COPIES_START})
        environment = dict(os.environ)
        if role.library == JAVA:
            assert java is not None
            command = [str(RUNNER), "class", "CheckerClient", argument]
            environment |= {"KAFKA_CP": java, "KAFKA_OPTS": TOOL_OPTIONS}
        else:
            command = [sys.executable, "-m", MODULES[role.library], argument]
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=environment,
        )
        self.goes_on = True
        self.since_superseded = 0

    def wait_until_ready(self) -> bool:
        """Wait for the producer id. Return False if the client dies before."""
        self.goes_on = self._line() is not None
        return self.goes_on

    def transact(self, command: Mapping[str, Any], operation: Operation) -> None:
        """Have it do a transaction, and note what became of it. Until it asks to commit, its operation is FAILED; what
        is sent singly is UNKNOWN from the start."""
        assert self._child.stdin is not None
        self.goes_on = False
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps(command) + "\n")
            self._child.stdin.flush()
        while (line := self._line()) is not None:
            operation.steps[:] = [_step(step) for step in line["steps"]]
            operation.commit_at_ns = line["commit_at_ns"]
            operation.outcome = Outcome(line.get("outcome", "unknown"))
            operation.error = line.get("error", "")
            if "outcome" in line:
                operation.done_at_ns = time.monotonic_ns()
                self.goes_on = line["goes_on"]
                return

    def _line(self) -> dict[str, Any] | None:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        # A killed process leaves half a line behind, at worst.
        return json.loads(line) if line.endswith("\n") else None

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    @property
    def is_stopped(self) -> bool:
        """Whether the process is stopped by SIGSTOP, or has ended."""
        flags = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return (
                self._child.returncode is not None or os.waitid(os.P_PID, self._child.pid, flags) is not None
            )
        except ChildProcessError:  # its end was waited for meanwhile
            return True

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def planned(steps: Sequence[Sequence[Any]]) -> list[Step]:
    """The part of an operation that is known before it begins: the values that it may send."""
    return [Send(step[1], step[2]) for step in steps if step[0] == "send"]


def _step(step: Sequence[Any]) -> Step:
    match step:
        case ["send", key, value, offset, source]:
            return Send(key, value, offset, source)
        case ["poll", records, at_ns]:
            return Poll([Record(*record) for record in records], at_ns)
    raise ValueError(step)


@dataclass(slots=True)
class Slot:
    """Clients of one role, and of one transactional id, if any, one after the other; a superseded one may still be
    there.

    ends_with: what the next transaction ends with instead of its commit, "crash" or "pause".
    seen: how many operations were done when the last of its own began.
    """

    number: int
    role: Role
    client: Client | None = None
    ends_with: str = ""
    seen: int = -1

    @property
    def transacts(self) -> bool:
        return self.role.kind is Kind.TRANSACTS

    def __str__(self) -> str:
        return f"{self.number}, {self.role}"
