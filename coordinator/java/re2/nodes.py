"""What an expression is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

Chars = frozenset[str]

WORD: Chars = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
TOPIC_NAMES: Chars = WORD | frozenset("-.")
"""What topic names are made of."""


class PatternSyntaxError(Exception):
    """The text is RE2/J's description of what is wrong."""


TOO_LARGE = "expression too large"
MAX_STEPS = 12_000
"""What an expression may become: characters to take, and places where it may go on in several ways."""
MAX_BITS = 8_000_000
"""What may be kept of where it goes on: a bit for each two characters, but where just the next one follows."""
MAX_WORK = 20_000
"""What may be read of an expression, and what may be done to compile it, where that becomes no step."""


MOST_HELD = 2_000_000
"""Characters in all classes of an expression, some 50 bytes each. What is matched with topics' names stays below, but
ids may have all characters that there are, and each class of an expression nearly all of those."""
MOST_READ_PER_STEP = 500
"""Things and members of classes that are read in one step: some 5 ms."""


class Assertion(Enum):
    """What holds at a place between two characters, written as RE2 does."""

    BEGIN = "\\A"
    END = "\\z"
    BEGIN_OF_LINE = "(?m)^"
    END_OF_LINE = "(?m)$"
    BOUNDARY = "\\b"
    NO_BOUNDARY = "\\B"


@dataclass(frozen=True, slots=True)
class One:
    """One character of a set."""

    chars: Chars


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part behind the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The first part that matches, in their order."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`most` is None where there is no limit."""

    part: Node
    least: int
    most: int | None


Node = One | Sequence | Alternatives | Repeat | Assertion
