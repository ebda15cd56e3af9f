"""Where a broker's time goes, hop by hop (`make profile`)."""

from __future__ import annotations

import time

import pytest

from tests.bench import hops
from tests.bench.stopwatch import Stopwatch


def work(ms: float) -> None:
    end_ns = time.thread_time_ns() + ms * 1e6
    while time.thread_time_ns() < end_ns:
        pass


def test_a_hop_is_timed_without_the_hops_that_it_calls() -> None:
    watch = Stopwatch()
    inner = watch.timed("inner", lambda: work(20))

    def call() -> None:
        work(5)
        inner()
        inner()

    watch.timed("outer", call)()
    taken_ms = {name: [each / 1e6 for each in of_hop] for name, of_hop in watch.taken.items()}
    assert [round(each) for each in taken_ms["inner"]] == [20, 20]
    assert [round(each) for each in taken_ms["outer"]] == [5]


def test_each_hop_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stopwatch finds a hop by its function's name, which nobody else uses. Here a renamed function is missed."""
    monkeypatch.setattr(hops, "WARMING_UP", 20)
    met: set[str] = set()
    for exchange in hops.EXCHANGES:
        taken, _, _ = hops.watched(exchange._replace(times=20))
        met |= {name for name, of_hop in taken.items() if len(of_hop) >= 20}
    assert met == taken.keys()
