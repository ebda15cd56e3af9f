"""Many questions to the persister, whose answers are of use together.

They are asked some at a time, others being served in between: a topic may have thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from coordinator.ports import Runtime, WhenCommitted
from protocol.errors import Error, KafkaError

MOST_ASKED_AT_ONCE = 50
"""So many are asked in one turn, at some 50 µs each."""

Ask = Callable[[WhenCommitted], None]
"""Asks something, and has it told what came of that."""

AskOutcomes = Sequence[KafkaError | None]
"""What came of each question, in their order."""


class AskingTogether:
    """What one shard asks."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._under_way: dict[_Asked, None] = {}

    def ask(self, asks: Sequence[Ask], then: Callable[[AskOutcomes], None]) -> None:
        """`then` is told once all is answered: in this call where the questions are few and are answered at once."""
        asked = _Asked(self._runtime, asks, lambda outcomes: self._over(asked, outcomes, then))
        self._under_way[asked] = None
        asked.go_on(0)

    def give_up(self) -> None:
        """The shard is given up: nothing more is asked, and what isn't answered yet is NOT_COORDINATOR."""
        for asked in [*self._under_way]:
            asked.give_up()

    def _over(self, asked: _Asked, outcomes: AskOutcomes, then: Callable[[AskOutcomes], None]) -> None:
        del self._under_way[asked]
        then(outcomes)


class _Asked:
    def __init__(self, runtime: Runtime, asks: Sequence[Ask], over: Callable[[AskOutcomes], None]) -> None:
        self._runtime = runtime
        self._asks = asks
        self._over: Callable[[AskOutcomes], None] | None = over
        self._outcomes: list[KafkaError | None] = [KafkaError(Error.NOT_COORDINATOR)] * len(asks)
        self._missing = len(asks)

    def go_on(self, first: int) -> None:
        last = min(first + MOST_ASKED_AT_ONCE, len(self._asks))
        if last < len(self._asks):
            self._runtime.schedule(self, 0, partial(self.go_on, last))
        if not self._asks:
            self.give_up()
        for index in range(first, last):
            self._asks[index](partial(self._answered, index))

    def give_up(self) -> None:
        """Wait for no more answers."""
        self._runtime.cancel(self)
        over, self._over = self._over, None  # who is told holds this, and no cycle is to stay
        if over is not None:
            over(self._outcomes)

    def _answered(self, index: int, outcome: KafkaError | None) -> None:
        if self._over is None:
            return
        self._outcomes[index] = outcome
        self._missing -= 1
        if not self._missing:
            self.give_up()
