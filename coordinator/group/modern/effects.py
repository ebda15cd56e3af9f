"""What a decision about a group does besides its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Effects:
    """Of one decision."""

    effects: list[Callable[[], None]] = field(init=False, default_factory=list)
    """Timers and lines of the log: where the decision is taken, not where it is made, which may be in a thread, and
    more than once."""
    once_written: list[Callable[[], None]] = field(init=False, default_factory=list)
    """The same of what follows from its records: a time limit that ends with a state, where the state stays."""

    def take_effect(self) -> None:
        """Once, before the records are written. What a step has brought about that a later one refuses is done, too."""
        for effect in self.effects:
            effect()

    def was_written(self) -> None:
        """Once, behind the records; the group may be another one by then, that took its place."""
        for effect in self.once_written:
            effect()
