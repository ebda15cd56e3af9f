"""Runs Kafka's command-line tools in one JVM, one after the other (`tests/kafka/ToolServer.java`)."""

from __future__ import annotations

import atexit
import os
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """How a tool ended, and its output."""

    status: int
    output: bytes
    errors: bytes


class ToolServer:
    """A JVM for the runner's tools. The first tool starts it."""

    def __init__(self, runner: Path, options: str) -> None:
        self._command = [str(runner), "serve"]
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._in_use = threading.Lock()

    def run(self, arguments: Sequence[str], stdin: bytes, timeout_s: float) -> Ended | None:
        """Run a tool with its arguments. Return None if another one is running, or the JDK is missing.

        Raises subprocess.TimeoutExpired, or EOFError if the JVM died. In both cases the next tool gets a new JVM.
        """
        if shutil.which("javac") is None or not self._in_use.acquire(blocking=False):
            return None
        try:
            return self._ask(arguments, stdin, timeout_s)
        except BaseException:
            # After an interrupt nobody needs this answer, and the next caller mustn't get it.
            self._end()
            raise
        finally:
            self._in_use.release()

    def _ask(self, arguments: Sequence[str], stdin: bytes, timeout_s: float) -> Ended:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "KAFKA_OPTS": self._options},
                # An interrupt is for the tests. The JVM ends when its input does.
                start_new_session=True,
            )
            atexit.register(self._end)
        process = self._process
        assert process.stdin is not None
        texts = [argument.encode() for argument in arguments]
        process.stdin.write(struct.pack(">i", len(texts)))
        for text in [*texts, stdin]:
            process.stdin.write(struct.pack(">i", len(text)) + text)
        process.stdin.flush()

        answer = _Answer(process, time.monotonic() + timeout_s)
        try:
            return Ended(answer.number(), answer.bytes(answer.number()), answer.bytes(answer.number()))
        except TimeoutError:
            raise subprocess.TimeoutExpired(list(arguments), timeout_s) from None

    def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            atexit.unregister(self._end)
            process.kill()
            process.communicate()


class _Answer:
    """Reads until the deadline by `time.monotonic`, then raises TimeoutError."""

    def __init__(self, process: subprocess.Popen[bytes], deadline_s: float) -> None:
        assert process.stdout is not None
        self._file = process.stdout.fileno()
        self._readable = select.poll()  # `select` can't wait for the descriptors of a process with many
        self._readable.register(self._file, select.POLLIN)
        self._deadline_s = deadline_s

    def number(self) -> int:
        (found,) = struct.unpack(">i", self.bytes(4))
        return int(found)

    def bytes(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            left_s = max(0.0, self._deadline_s - time.monotonic())
            if not self._readable.poll(left_s * 1000):
                raise TimeoutError
            part = os.read(self._file, count - len(found))
            if not part:
                raise EOFError("the JVM that runs Kafka's tools has ended")
            found += part
        return bytes(found)
