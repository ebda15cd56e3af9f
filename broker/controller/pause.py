"""When those who decide pause, so that others may be served (`protocol.waiting`).

Nobody else changes the metadata meanwhile: decisions wait for one another (`controller.Controller`).
"""

from __future__ import annotations

PER_STEP = 500
"""Entries, records or partitions that one step goes through: some milliseconds."""


class Pause:
    """Says when it is time for one, over loops within loops."""

    __slots__ = ("_left", "_per_step")

    def __init__(self, per_step: int = PER_STEP) -> None:
        self._per_step = self._left = per_step

    def is_due(self, entries: int = 1) -> bool:
        """Asked once for each entry, or for so many at a time, before them or behind them."""
        self._left -= entries
        if self._left > 0:
            return False
        self._left = self._per_step
        return True
