"""The lines of the broker's log: one event is one line, whatever a client, a file or a disk has named.

Names of groups, topics and clients come from outside. A newline or an escape code in one of them would forge lines, or
do something to the terminal of whoever reads them: all that isn't printable is escaped, in this one place.
"""

from __future__ import annotations

import logging
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


def _told(argument: object) -> object:
    """An error without a text of its own, such as MemoryError, by its name."""
    if isinstance(argument, BaseException) and not str(argument):
        return type(argument).__name__
    return argument


def _indented(text: str) -> str:
    return "\n".join("  " + printable(line) for line in text.split("\n"))
