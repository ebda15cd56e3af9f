"""A fresh broker on an empty folder: how soon it serves, its memory and work when idle, and a suite of tests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import groups, measures, suites, transactions
from tests.bench.report import Row
from tests.support.kafka_server import Server

ROWS = [
    Row("launch", "launch to first acknowledged record", "s", 0.25, less_is_better=True, decimals=3),
    Row("launch-commit", "launch to first committed transaction", "s", 0.3, less_is_better=True, decimals=3),
    Row("launch-group", "first group's first record", "s", 0.4, less_is_better=True, decimals=3),
    Row("suite", "a suite, launch to stop", "s", less_is_better=True, decimals=2),
    Row("rss", "idle memory, RSS", "MB", 40, less_is_better=True, decimals=1),
    Row("pss", "idle memory, PSS", "MB", less_is_better=True, decimals=1),
    Row("idle-cpu", "broker's processor time, idle", "ms/s", less_is_better=True, decimals=1),
]

IDLE_S = 3.0

MakeServer = Callable[[Path], Server]


def measure(make: MakeServer, folder: Path, name: str) -> dict[str, float]:
    """Measure all rows of this file. `name` distinguishes launches in the same `folder`."""
    figures = {}
    server = make(folder / f"launch-{name}")
    started_s = time.perf_counter()
    with running(server):
        measures.first_acknowledged(server.bootstrap)
        figures["launch"] = time.perf_counter() - started_s
        used_s = measures.processor_s(server.pid)
        time.sleep(IDLE_S)
        figures["idle-cpu"] = (measures.processor_s(server.pid) - used_s) / IDLE_S * 1000
        figures["rss"], figures["pss"] = measures.memory_mb(server.pid)
        figures["launch-group"] = groups.first_record(server.bootstrap, "first")
    server = make(folder / f"launch-commit-{name}")
    started_s = time.perf_counter()
    with running(server):
        transactions.first_committed(server.bootstrap)
        figures["launch-commit"] = time.perf_counter() - started_s
    server = make(folder / f"suite-{name}")
    started_s = time.perf_counter()
    with running(server):
        suites.play(server.bootstrap)
    figures["suite"] = time.perf_counter() - started_s
    return figures


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()
