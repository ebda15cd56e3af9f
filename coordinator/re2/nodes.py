"""What an expression is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

ALPHABET = "-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""What topic names are made of."""

Chars = frozenset[str]

ANY: Chars = frozenset(ALPHABET)
WORD: Chars = ANY - frozenset("-.")


class PatternSyntaxError(Exception):
    """The text is RE2/J's description of what is wrong."""


class Assertion(Enum):
    BEGIN = "^"
    END = "$"
    BOUNDARY = "\\b"
    NO_BOUNDARY = "\\B"


@dataclass(frozen=True, slots=True)
class One:
    """One character of a set."""

    chars: Chars


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`most` is None where there is no limit."""

    part: Node
    least: int
    most: int | None


Node = One | Sequence | Alternatives | Repeat | Assertion
