"""What kafka-python logs of the sink's connections. Part of the adapter (see `wire`).

Where a broker goes away it logs three errors of one loss, each time that it tries to connect another, and all of them
again in each task. The sink says what it means for the batch. So what kafka-python warns of while it works for the sink
counts as DEBUG; what it logs for others in the same process, who may use it too, is left as it is.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LIBRARY = "kafka"


class _Work(threading.local):
    """depth: of calls that this thread makes for the sink. A connection works in the threads of its callers alone."""

    depth = 0


_work = _Work()


@contextmanager
def quiet() -> Iterator[None]:
    """For calls into kafka-python."""
    _work.depth += 1
    try:
        yield
    finally:
        _work.depth -= 1


class _AsDebug(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not _work.depth or record.levelno < logging.WARNING:
            return True
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


_filter = _AsDebug()


def demote() -> None:
    """Have it so for all loggers that the library has by now: a logger's filters hold for it alone."""
    for name in list(logging.root.manager.loggerDict):
        if name == LIBRARY or name.startswith(LIBRARY + "."):
            logging.getLogger(name).addFilter(_filter)  # once, however often it is called
