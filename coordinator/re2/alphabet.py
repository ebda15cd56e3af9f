"""The characters that a text may have, and which of them a set takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from unicodedata import category, name

from coordinator.re2.nodes import TOPIC_NAMES, Chars

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
    """A set is only asked about these: an expression becomes as small as what it is matched with."""

    __slots__ = ("chars",)

    def __init__(self, chars: Chars) -> None:
        self.chars = chars

    def taken(self, takes: Takes, *, folds: bool) -> Chars:
        """`folds`: a character is taken too where another case of it is."""
        if folds:
            return frozenset(char for char in self.chars if any(map(takes, cases(char))))
        return frozenset(filter(takes, self.chars))

    def __sub__(self, chars: Chars) -> Chars:
        return self.chars - chars

    def span(self, first: str, last: str, *, folds: bool) -> Chars:
        return self.taken(lambda char: first <= char <= last, folds=folds)

    def literal(self, char: str, *, folds: bool) -> Chars:
        return self.span(char, char, folds=folds)


TOPIC_ALPHABET = Alphabet(TOPIC_NAMES)


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
