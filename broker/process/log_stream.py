"""The broker's log: its lines, and the standard error that they go to.

One event is one line. Names of groups, topics and clients come from outside. A newline or an escape code in one of
them would forge lines, or do something to the terminal of whoever reads them: all that isn't printable is escaped, in
this one place.

Whoever reads the standard error may be slow, or never read at all. A pipe takes 64 KiB, and then who writes to it
waits: the loop, and with it every client. So a line goes straight out where there is room. Where there is none a
thread takes over, which may wait, until it has caught up.
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
    """Time, level, logger, message. Behind it, indented, the stack of what went wrong, where there is one."""

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
    """One JSON object a line: `time` (ISO 8601, UTC), `level`, `logger`, `message`, and the `stack` of what went wrong,
    where there is one. JSON escapes what would end a line or move a cursor."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # no start waits for it that has lines for people

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
"""By what `--log-format` takes."""


def _told(argument: object) -> object:
    """An error without a text of its own, such as MemoryError, by its name."""
    if isinstance(argument, BaseException) and not str(argument):
        return type(argument).__name__
    return argument


def _indented(text: str) -> str:
    return "\n".join("  " + printable(line) for line in text.split("\n"))


# --- The standard error -------------------------------------------------------------------------------------

MOST_WAITING_BYTES = 1 << 20
"""Of lines that wait for a reader. Kafka's console appender waits for the reader, and whoever logs with it."""

LAST_WAIT_S = 1.0

_AT_ONCE = 4096
"""What a pipe that is ready has room for (POSIX: PIPE_BUF); a terminal and a socket have more."""


class LogStream:
    """Over an open descriptor, which stays its owner's; whole lines are written, from any thread."""

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
        """Never waits. Raises `OSError` where nobody is there to read."""
        data = text.encode(self._encoding, "backslashreplace")
        with self._lock:
            if self._writer is None and not self._waiting:
                data = self._write_what_fits(data)
            if data:
                self._keep(data)
            if self._writer is None and self._waiting:
                writer = threading.Thread(target=self._write_waiting, name="log", daemon=True)
                writer.start()  # which may fail: the next line tries again
                self._writer = writer

    def flush(self) -> None:
        """Nothing is held back that could be written."""

    def end(self) -> None:
        """The process ends: who is slow to read has a second left."""
        writer = self._writer
        if writer is not None:
            writer.join(LAST_WAIT_S)

    def _write_what_fits(self, data: bytes) -> bytes:
        """Returns the rest."""
        while data and self._poll.poll(0):
            data = data[os.write(self._descriptor, data[:_AT_ONCE]) :]
        return data

    def _keep(self, data: bytes) -> None:
        # Once a line is dropped so are the next, until it is told how many: it is told where they are missing.
        if self._dropped or (self._waiting and self._waiting_bytes + len(data) > MOST_WAITING_BYTES):
            self._dropped += 1
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _write_waiting(self) -> None:
        while (data := self._next_waiting()) is not None:
            with contextlib.suppress(OSError):  # nobody reads any more: the next line that is logged tells
                while data:
                    self._poll.poll()  # whoever opened it may have set it not to wait
                    data = data[os.write(self._descriptor, data[:_AT_ONCE]) :]

    def _next_waiting(self) -> bytes | None:
        """None where the thread has caught up, and ends."""
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
