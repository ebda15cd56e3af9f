"""Brokers of checkouts, this one or another, all started in the same way."""

from __future__ import annotations

import compileall
from collections.abc import Mapping
from pathlib import Path

import barnabas
from barnabas.broker import LAUNCHER

ROOT = Path(__file__).parents[2]

START_TIMEOUT_S = 300.0
CONFIG = {
    # Deleted topics must not fill the page cache for the default minute.
    "log.segment.delete.delay.ms": 100,
    # Apache Kafka would make each group's first member wait three seconds for others.
    "group.initial.rebalance.delay.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
}


def compile_checkout(checkout: Path) -> None:
    """Compile the checkout, as pip does when it installs."""
    for folder in ("barnabas", "broker", "cli", "coordinator", "protocol", "storage"):
        compileall.compile_dir(checkout / folder, quiet=1)


class OfCheckout(barnabas.Broker):
    """`under`: the command under which the process runs, if it isn't Python itself. `settings` are added."""

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
