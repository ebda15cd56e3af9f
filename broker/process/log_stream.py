"""The broker's log: its lines, and the standard error that they go to.

One event is one line. Names of groups, topics and clients come from outside. A newline or an escape code in one of
them could forge lines, or act on the reader's terminal. So this one place escapes all that isn't printable.

The reader of the standard error may be slow, or never read at all. A pipe takes 64 KiB. Then a write blocks, and with
it the loop and every client. So a line goes straight out if there is room. If there isn't, a thread takes over, which
may block, until it has caught up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from typing import Any

from broker.process.printable import printable

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class LineFormatter(logging.Formatter):
    """Writes time, level, logger and message, and below them, indented, the stack of an error, if there is one."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_told, record.args))
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(stack_info)


class JsonFormatter(logging.Formatter):
    """Writes one JSON object a line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, and the `stack` of an error,
    if there is one. JSON escapes characters that would end a line or move a cursor."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # imported here, so that a start with a log for people doesn't wait for it

        if isinstance(record.args, tuple):
            record.args = tuple(map(_told, record.args))
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        said = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["stack"] = self.formatException(record.exc_info)
        return json.dumps(said)


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": LineFormatter, "json": JsonFormatter}
"""The formatters, by the values of `--log-format`."""


def _told(argument: object) -> object:
    """The argument; for an error without a text, such as MemoryError, its class's name."""
    if isinstance(argument, BaseException) and not str(argument):
        return type(argument).__name__
    return argument


def _indented(text: str) -> str:
    return "\n".join("  " + printable(line) for line in text.split("\n"))


# --- The standard error -------------------------------------------------------------------------------------

MOST_WAITING_BYTES = 1 << 20
"""Most bytes of lines that wait for the reader. Kafka's console appender blocks the threads that log instead."""

LAST_WAIT_S = 1.0

_AT_ONCE = 4096
"""Bytes for which a ready pipe has room (POSIX: PIPE_BUF). Terminals and sockets have more."""


class LogStream:
    """Writes whole lines to an open descriptor, from any thread. It doesn't close the descriptor."""

    def __init__(self, descriptor: int, encoding: str) -> None:
        self._descriptor = descriptor
        self._encoding = encoding
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._lock = threading.RLock()  # in the middle of a line an object may be collected that logs a line
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._writer: threading.Thread | None = None

    def write(self, text: str) -> None:
        """Write a line. Never blocks. Raises OSError if the reader is gone."""
        data = text.encode(self._encoding, "backslashreplace")
        with self._lock:
            if self._writer is None and not self._waiting:
                data = self._write_what_fits(data)
            if data:
                self._keep(data)
            if self._writer is None and self._waiting:
                writer = threading.Thread(target=self._write_waiting, name="log", daemon=True)
                writer.start()  # if this fails, the next line tries again
                self._writer = writer

    def flush(self) -> None:
        """Does nothing: no line is held back that could be written."""

    def end(self) -> None:
        """The process ends: give a slow reader one more second."""
        writer = self._writer
        if writer is not None:
            writer.join(LAST_WAIT_S)

    def _write_what_fits(self, data: bytes) -> bytes:
        """Write as much as there is room for. Returns the rest."""
        while data and self._poll.poll(0):
            data = data[os.write(self._descriptor, data[:_AT_ONCE]) :]
        return data

    def _keep(self, data: bytes) -> None:
        # After a dropped line the next ones are dropped, too, until a line says how many, where they are missing.
        if self._dropped or (self._waiting and self._waiting_bytes + len(data) > MOST_WAITING_BYTES):
            self._dropped += 1
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _write_waiting(self) -> None:
        while (data := self._next_waiting()) is not None:
            with contextlib.suppress(OSError):  # the reader is gone: the next line that is logged fails
                while data:
                    self._poll.poll()  # the descriptor may be non-blocking
                    data = data[os.write(self._descriptor, data[:_AT_ONCE]) :]

    def _next_waiting(self) -> bytes | None:
        """The next line; None if the thread has caught up, and ends."""
        with self._lock:
            if self._waiting:
                data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
                return data
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                return f"{dropped} lines of the log are missing here: nobody read it\n".encode()
            self._writer = None
            return None
