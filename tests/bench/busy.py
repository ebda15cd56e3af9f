"""Processes that compute and do nothing else, as what other tests of a suite do beside a broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

COMPUTE = "while True: sum(range(10_000))"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many, until this is left."""
    processes = [subprocess.Popen([sys.executable, "-c", COMPUTE]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
