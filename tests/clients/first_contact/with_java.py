"""The first contact of Java's clients: all of them in one JVM (`java/FirstContact.java`)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import IO

from tests.clients.java_programs import java_classes
from tests.support.apache_kafka import RUNNER, TOOL_OPTIONS

PATIENCE_S = 240.0


class _Outcomes:
    """The program's outcome for each name. Outcomes may come from several threads at once."""

    def __init__(self, printed: IO[str]) -> None:
        self._printed = printed
        self._lock = threading.Lock()
        self._told: dict[str, Future[str]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def of(self, name: str) -> Future[str]:
        with self._lock:
            return self._told.setdefault(name, Future())

    def _read(self) -> None:
        for line in self._printed:
            name, tab, outcome = line.rstrip("\n").partition("\t")
            if tab:
                self.of(name).set_result(outcome)


@contextlib.contextmanager
def running() -> Iterator[Callable[[str, str], None]]:
    """Does all firsts at an address with a name, in a program that runs as long as this. Skips without `javac`."""
    environment = {**os.environ, "KAFKA_CP": os.fspath(java_classes()), "KAFKA_OPTS": TOOL_OPTIONS}
    program = subprocess.Popen(
        [RUNNER, "class", "FirstContact"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        text=True,
        bufsize=1,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    outcomes = _Outcomes(program.stdout)

    def first_contact(bootstrap: str, name: str) -> None:
        assert program.stdin is not None
        program.stdin.write(f"{bootstrap} {name}\n")
        assert outcomes.of(name).result(PATIENCE_S) == "ok"

    with program:
        yield first_contact
        program.stdin.close()
