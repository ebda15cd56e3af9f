"""The user's program in a process group of its own, which can be started, killed and restarted: a command, or a
function of Python."""

from __future__ import annotations

import abc
import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP"
BOOTSTRAP_WORD = "{bootstrap}"
FOLDER_VARIABLE = "BARNABAS_FOLDER"
FOLDER_WORD = "{folder}"

_SHOWN_BYTES = 4_096

Runnable: TypeAlias = Sequence[str] | Callable[[str], object]
"""A command, or a function that gets the broker's address."""


def check(run: Runnable) -> None:
    """Raises ValueError, with one line, if another process can't import this function."""
    if not callable(run):
        return
    try:
        pickle.dumps(run)
    except (pickle.PicklingError, AttributeError, TypeError):
        is_importable = False
    else:
        main = getattr(sys.modules["__main__"], "__file__", None) or ""
        is_importable = getattr(run, "__module__", "") != "__main__" or os.path.isfile(main)
    if not is_importable:
        raise ValueError(
            f"no other process can import {run!r}: define it at the top level of a module's file"
        )


def started(run: Runnable, bootstrap: str, folder: str, environment: Mapping[str, str]) -> Program:
    """Start it. It finds the broker's address and a folder for files of its own in `BARNABAS_BOOTSTRAP` and
    `BARNABAS_FOLDER`. Raises OSError if there is no such command."""
    variables = {**environment, BOOTSTRAP_VARIABLE: bootstrap, FOLDER_VARIABLE: folder}
    if callable(run):
        return _CalledFunction(run, bootstrap, variables)
    words = [word.replace(BOOTSTRAP_WORD, bootstrap).replace(FOLDER_WORD, folder) for word in run]
    return _Command(words, variables)


class Program(abc.ABC):
    """One process of the program."""

    def __init__(self) -> None:
        self._output = tempfile.NamedTemporaryFile()  # noqa: SIM115 - goes with this object

    @property
    @abc.abstractmethod
    def status(self) -> int | None:
        """Its exit status, or None while it runs."""

    @abc.abstractmethod
    def kill(self) -> None:
        """Send SIGKILL to its whole process group, as when a machine is lost, and wait for its end."""

    def ended(self) -> str:
        """Kill it if it still runs, and return the end of its output."""
        self.kill()
        with self._output:
            return self.printed

    @property
    def printed(self) -> str:
        """The end of its output."""
        size = os.fstat(self._output.fileno()).st_size
        shown = os.pread(self._output.fileno(), _SHOWN_BYTES, max(size - _SHOWN_BYTES, 0))
        return shown.decode("utf-8", errors="replace")


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


class _Command(Program):
    def __init__(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        super().__init__()
        self._process = subprocess.Popen(
            words,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def status(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        _kill_group(self._process.pid)
        self._process.wait()


class _CalledFunction(Program):
    def __init__(
        self, function: Callable[[str], object], bootstrap: str, variables: Mapping[str, str]
    ) -> None:
        super().__init__()
        arguments = (pickle.dumps(function), bootstrap, variables, self._output.name)
        self._process = multiprocessing.get_context("spawn").Process(target=_call, args=arguments)
        self._process.start()

    @property
    def status(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        assert self._process.pid is not None
        _kill_group(self._process.pid)
        self._process.kill()  # it may not lead a group yet
        self._process.join()


def _call(function: bytes, bootstrap: str, variables: Mapping[str, str], output: str) -> None:
    """Call the function, in its own process. Its module finds the variables when it is imported here."""
    os.setsid()
    with open(output, "ab") as file:
        for standard in (1, 2):
            os.dup2(file.fileno(), standard)
    os.environ.update(variables)
    pickle.loads(function)(bootstrap)
