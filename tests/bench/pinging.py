"""A connection that only sends requests, in a process of its own: how long does anybody wait?"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from protocol.messages.metadata import ApiVersionsRequest
from tests.support.wire import Client, request_frame

EVERY_S = 0.001
PATIENCE_S = 30.0


@dataclass
class Pings:
    """How long each answer took, in ms. It is filled when the pinging is over."""

    took_ms: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """`share`: in thousandths, such as 999 for the 99.9th percentile."""
        return statistics.quantiles(self.took_ms, n=1000)[round(share) - 1]


@contextmanager
def pinging(bootstrap: str) -> Iterator[Pings]:
    """Send a request a millisecond after each answer, as long as the block lasts."""
    pings = Pings()
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_ping, args=(bootstrap, there), daemon=True)
    process.start()
    there.close()
    here.recv()  # it has begun
    try:
        yield pings
    finally:
        here.send(None)
        pings.took_ms = here.recv() if here.poll(PATIENCE_S) else []
        process.join(PATIENCE_S)


def _ping(bootstrap: str, lead) -> None:  # type: ignore[no-untyped-def]
    frame = request_frame(ApiVersionsRequest(), 0, client_id="ping")
    took_ms: list[float] = []
    with Client.of(bootstrap) as client:
        lead.send(None)
        while not lead.poll(EVERY_S):
            asked_s = time.perf_counter()
            client.send_bytes(frame)
            client.next_frame()
            took_ms.append((time.perf_counter() - asked_s) * 1000)
    lead.send(took_ms)
