"""The brokers of checkouts, this one or another, each started as this one's is."""

from __future__ import annotations

import compileall
from collections.abc import Mapping
from pathlib import Path

import barnabas
from barnabas.broker import LAUNCHER

ROOT = Path(__file__).parents[2]

START_TIMEOUT_S = 300.0
CONFIG = {
    # Deleted topics must not fill the page cache for the minute that is the default.
    "log.segment.delete.delay.ms": 100,
    # Apache Kafka would let each first member of a group wait for others for three seconds.
    "group.initial.rebalance.delay.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
}


def compile_checkout(checkout: Path) -> None:
    """As pip does with what it installs."""
    for folder in ("barnabas", "broker", "cli", "coordinator", "protocol", "storage"):
        compileall.compile_dir(checkout / folder, quiet=1)


class OfCheckout(barnabas.Broker):
    """`under`: the command that its process is started by, where that isn't Python's own. `settings` are added."""

    def __init__(
        self,
        checkout: Path,
        folder: Path,
        under: tuple[str, ...] = (),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        config = {**CONFIG, **(settings or {})}
        super().__init__(data=folder, config=config, startup_timeout_s=START_TIMEOUT_S)
        self._launcher = checkout / LAUNCHER.relative_to(ROOT)
        self._under = under

    def _command(self, control_fd: int) -> list[str]:
        command = super()._command(control_fd)
        command[command.index(str(LAUNCHER))] = str(self._launcher)
        return [*self._under, *command]
