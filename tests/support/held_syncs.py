"""A disk that syncs when a test tells it to."""

from __future__ import annotations

from collections.abc import Sequence

from storage.background import Lane, Then, Work, run_in_turn
from tests.support.immediate_background import run_at_once


class HeldSyncs:
    """The background of a node. Its syncs run when the test says so, everything else at once."""

    def __init__(self) -> None:
        self.is_held = False
        self.waiting: list[tuple[Work, Then]] = []

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None:
        if lane in (Lane.FLUSHING, Lane.METADATA) and self.is_held:
            self.waiting.append((work, then))
        elif not delay_ms:
            run_at_once(work, then, lane=lane)

    def run_all(self, works: Sequence[Work], /) -> list[Exception | None]:
        return run_in_turn(works)

    def run_one(self) -> None:
        run_at_once(*self.waiting.pop(0), lane=Lane.FLUSHING)

    def fail_one(self) -> None:
        _, then = self.waiting.pop(0)
        then(OSError("the disk is gone"))

    async def passed(self, lane: Lane) -> None:
        """Do nothing: everything that runs at once has run."""

    async def finish(self) -> None:
        self.is_held = False
        while self.waiting:
            self.run_one()
