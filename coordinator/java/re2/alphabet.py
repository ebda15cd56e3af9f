"""The characters that a text may have, and which of them a set takes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from functools import cache
from unicodedata import category, name

from coordinator.java.re2.nodes import MOST_HELD, TOO_LARGE, Chars, PatternSyntaxError

Takes = Callable[[str], bool]

# Letters that are the same as others where case doesn't matter, and that neither upper() nor lower() of those finds.
_ALSO = {
    "s": "\u017f",
    "k": "\u212a",
    "\u00e5": "\u212b",
    "\u00df": "\u1e9e",
    "\u03c3": "\u03c2",
    "\u03c9": "\u2126",
}


class Alphabet:
    """A set is only asked about these: an expression becomes as small as what it is matched with.

    Each expression has its own: a class that it repeats is made once. Several may be read at the same time, in threads
    and in steps.
    """

    __slots__ = ("_cased", "_held", "_known", "_sorted", "chars")

    def __init__(self, chars: Chars) -> None:
        self.chars = chars
        self._sorted = sorted(chars)
        self._cased: list[tuple[str, str]] | None = None
        self._known: dict[Hashable, Chars] = {}
        self._held = 0

    def held(self, chars: Chars) -> Chars:
        """A class that an expression is to hold. Raises PatternSyntaxError where all of them hold too much."""
        self._held += len(chars)
        if self._held > MOST_HELD:
            raise PatternSyntaxError(TOO_LARGE)
        return chars

    def taken(self, key: Hashable, takes: Takes, *, folds: bool) -> Chars:
        """`folds`: a character is taken too where another case of it is. `key` names the class."""
        known = self._known.get((key, folds))
        if known is None:
            if folds:
                known = frozenset(char for char in self.chars if any(map(takes, cases(char))))
            else:
                known = frozenset(filter(takes, self.chars))
            self._known[key, folds] = self.held(known)
        return known

    def __sub__(self, chars: Chars) -> Chars:
        known = self._known.get(chars)
        if known is None:
            known = self._known[chars] = self.held(self.chars - chars)
        return known

    def span(self, first: str, last: str, *, folds: bool) -> Chars:
        """Those from `first` to `last`, found without asking all others."""
        if not folds:
            return frozenset(
                self._sorted[bisect_left(self._sorted, first) : bisect_right(self._sorted, last)]
            )
        if self._cased is None:
            self._cased = sorted((case, char) for char in self.chars for case in cases(char))
        begin = bisect_left(self._cased, first, key=_case)
        return frozenset(char for _, char in self._cased[begin : bisect_right(self._cased, last, key=_case)])

    def literal(self, char: str, *, folds: bool) -> Chars:
        return self.span(char, char, folds=folds)


def _case(pair: tuple[str, str]) -> str:
    return pair[0]


@cache
def cases(char: str) -> frozenset[str]:
    """A character, and all that are the same where case doesn't matter."""
    found = {char}
    for _ in range(2):
        for each in [*found]:
            found.update(other for other in (each.lower(), each.upper()) if len(other) == 1)
            if each in _ALSO:
                found.add(_ALSO[each])
    return frozenset(found)


def script_of(char: str) -> str:
    """The script of a letter by its name: what has none is Common, and Inherited what goes with the letter before."""
    kind = category(char)
    if kind.startswith("M"):
        return "Inherited"
    if not kind.startswith(("L", "Nl")):
        return "Common"
    if char in "\u212a\u212b":  # the signs of Kelvin and of Angstrom are letters
        return "Latin"
    return name(char, "COMMON").split()[0].capitalize()
