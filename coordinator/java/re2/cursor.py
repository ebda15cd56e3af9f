"""A place in an expression that is read."""

from __future__ import annotations


class Cursor:
    """`pos` may be moved."""

    __slots__ = ("pos", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    @property
    def more(self) -> bool:
        return self.pos < len(self.text)

    def at(self, *wanted: str) -> bool:
        """Whether one of these comes next."""
        return any(self.text.startswith(each, self.pos) for each in wanted)

    def take(self, wanted: str) -> bool:
        """Go past it, if it comes next."""
        if not self.text.startswith(wanted, self.pos):
            return False
        self.pos += len(wanted)
        return True

    def next(self) -> str:
        char = self.text[self.pos]
        self.pos += 1
        return char
