"""Regular expressions of RE2's syntax over topic names, in time linear in the name.

A client may send any expression, so nothing here backtracks. Topic names are of letters, digits, dots, underscores and
hyphens alone, and that is the whole alphabet: what an expression says of other characters is read, and matches nothing.
Syntax and error texts are those of RE2/J, which Kafka uses, with its flag PERL.

Two conscious differences: groups nest 200 deep at most, and an expression becomes no more than 100,000 steps.
"""

from __future__ import annotations

from functools import lru_cache

from coordinator.re2.automaton import Pattern
from coordinator.re2.nodes import PatternSyntaxError
from coordinator.re2.syntax import parse

__all__ = ["Pattern", "PatternSyntaxError", "compile_pattern"]


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Raises PatternSyntaxError."""
    return Pattern(parse(text))
