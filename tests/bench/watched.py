"""A broker whose metrics listener is scraped every 5 seconds, by a process of its own, as by Prometheus."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.bench.checkouts import OfCheckout
from tests.support.ports import free_ports

LISTENER = "barnabas.metrics.listener"

_SCRAPER = """
import sys, time, urllib.request
while True:
    with urllib.request.urlopen(sys.argv[1]) as answer:
        answer.read()
    time.sleep(5)
"""


class Watched(OfCheckout):
    """A watched broker of a checkout."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        (port,) = free_ports(1)
        super().__init__(checkout, folder, settings={LISTENER: f"127.0.0.1:{port}"})
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._scraper: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, and scrape it from now on."""
        super().start()
        self._scraper = subprocess.Popen(
            [sys.executable, "-c", _SCRAPER, self._url], stderr=subprocess.DEVNULL
        )
        return self

    def stop(self) -> None:
        """Stop scraping, and stop it."""
        if self._scraper is not None:
            self._scraper.kill()
            self._scraper.wait()
            self._scraper = None
        super().stop()
