"""Processes that only compute, like the other tests of a suite beside a broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

COMPUTE = "while True: sum(range(10_000))"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` processes during the block."""
    processes = [subprocess.Popen([sys.executable, "-c", COMPUTE]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
