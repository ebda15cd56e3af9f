"""Regular expressions of RE2's syntax over names, in time linear in the name.

A client may send any expression, so nothing here backtracks. What an expression is matched with is made of a known
alphabet: that of topic names, or the characters of the ids that are asked about. What an expression says of other
characters is read, and matches nothing. Syntax and error texts are those of RE2/J with its flag PERL, as in Kafka.

Conscious differences: groups nest 200 deep at most; an expression becomes no more than 12,000 steps (one for each
character that it takes, and for each place where it may go on in several ways; what is repeated counts each time), nor
may it go on in too many ways at once (`MAX_BITS`), nor are more than 20,000 things read or repeated; a letter's script
is taken from its Unicode name.
"""

from __future__ import annotations

from coordinator.java.re2.alphabet import Alphabet
from coordinator.java.re2.automaton import Pattern
from coordinator.java.re2.nodes import (
    MOST_READ_PER_STEP,
    TOPIC_NAMES,
    Chars,
    PatternSyntaxError,
)
from coordinator.java.re2.syntax import parsing
from protocol.waiting import at_once, turn

__all__ = ["Pattern", "PatternSyntaxError", "compile_pattern", "compiling"]


def compile_pattern(text: str, chars: Chars | None = None) -> Pattern:
    """`chars`: what the names are made of, beside what topic names are. Raises PatternSyntaxError.

    What is found along the way is remembered with it: keep it for as many names as there are, and no longer.
    """
    return at_once(compiling(text, chars))


async def compiling(text: str, chars: Chars | None = None) -> Pattern:
    """The same in steps: each is less than 20 ms where the names are those of topics."""
    node = await parsing(text, Alphabet(TOPIC_NAMES if chars is None else TOPIC_NAMES | chars))
    if len(text) > MOST_READ_PER_STEP:
        await turn()
    return Pattern(node)
