"""Regular expressions of RE2's syntax over names, in time linear in the name.

A client may send any expression, so nothing here backtracks. What an expression is matched with is made of a known
alphabet: that of topic names, or the characters of the ids that are asked about. What an expression says of other
characters is read, and matches nothing. Syntax and error texts are those of RE2/J with its flag PERL, as in Kafka.

Conscious differences: groups nest 200 deep at most, and an expression becomes no more than 100,000 steps; a letter's
script is taken from its Unicode name.
"""

from __future__ import annotations

from functools import lru_cache

from coordinator.re2.alphabet import TOPIC_ALPHABET, Alphabet
from coordinator.re2.automaton import Pattern
from coordinator.re2.nodes import Chars, PatternSyntaxError
from coordinator.re2.syntax import parse

__all__ = ["Pattern", "PatternSyntaxError", "compile_pattern"]


@lru_cache(maxsize=256)
def compile_pattern(text: str, chars: Chars | None = None) -> Pattern:
    """`chars`: what the names are made of, beside what topic names are. Raises PatternSyntaxError."""
    return Pattern(parse(text, TOPIC_ALPHABET if chars is None else Alphabet(TOPIC_ALPHABET.chars | chars)))
