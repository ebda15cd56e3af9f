"""Matching: all ways through the expression at once, so that no name takes longer than another of its length."""

from __future__ import annotations

from coordinator.re2.nodes import (
    WORD,
    Alternatives,
    Assertion,
    Chars,
    Node,
    One,
    PatternSyntaxError,
    Repeat,
    Sequence,
)

MAX_STEPS = 100_000
MAX_REMEMBERED = 10_000

_MATCH = -1
_EDGE, _OTHER, _WORD, _NEWLINE = range(4)  # what is beside a place in the name

_States = frozenset[int]


def _kind(char: str) -> int:
    if char == "\n":
        return _NEWLINE
    return _WORD if char in WORD else _OTHER


class Pattern:
    """An expression, to be matched as a whole."""

    def __init__(self, node: Node) -> None:
        self._chars: list[Chars | None] = []  # a state takes one of these characters, or none and goes on
        self._next: list[tuple[int, ...]] = []
        self._assertions: dict[int, Assertion] = {}
        self._start: _States = frozenset((self._compile(node, _MATCH),))
        self._remembered: dict[tuple[_States, int, str], _States] = {}

    def matches(self, name: str) -> bool:
        states, before = self._start, _EDGE
        remembered = self._remembered
        for char in name:
            key = (states, before, char)
            found = remembered.get(key)
            if found is None:
                if len(remembered) >= MAX_REMEMBERED:
                    remembered.clear()
                found = remembered[key] = self._step(states, before, char)
            states, before = found, _kind(char)
            if not states:
                return False
        return _MATCH in self._closure(states, before, _EDGE)

    def _step(self, states: _States, before: int, char: str) -> _States:
        reached: set[int] = set()
        for state in self._closure(states, before, _kind(char)):
            chars = self._chars[state] if state != _MATCH else None
            if chars is not None and char in chars:
                reached.update(self._next[state])
        return frozenset(reached)

    def _closure(self, states: _States, before: int, after: int) -> set[int]:
        """All states that are reached without a character, at a place between these."""
        reached: set[int] = set()
        to_visit = [*states]
        while to_visit:
            state = to_visit.pop()
            if state in reached:
                continue
            reached.add(state)
            if state == _MATCH or self._chars[state] is not None:
                continue
            assertion = self._assertions.get(state)
            if assertion is None or _holds(assertion, before, after):
                to_visit += self._next[state]
        return reached

    # --- compiling ------------------------------------------------------------------------------------------

    def _add(
        self, chars: Chars | None, following: tuple[int, ...], assertion: Assertion | None = None
    ) -> int:
        if len(self._next) >= MAX_STEPS:
            raise PatternSyntaxError("expression too large")
        self._chars.append(chars)
        self._next.append(following)
        if assertion is not None:
            self._assertions[len(self._next) - 1] = assertion
        return len(self._next) - 1

    def _compile(self, node: Node, then: int) -> int:
        """The state to begin with, from which `then` is reached."""
        if isinstance(node, One):
            return self._add(node.chars, (then,))
        if isinstance(node, Assertion):
            return self._add(None, (then,), node)
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                then = self._compile(part, then)
            return then
        if isinstance(node, Alternatives):
            return self._add(None, tuple(self._compile(part, then) for part in node.parts))
        return self._compile_repeat(node, then)

    def _compile_repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            again = self._add(None, ())
            self._next[again] = (self._compile(node.part, again), then)
            then = again
        else:
            end = then
            for _ in range(node.most - node.least):
                then = self._add(None, (self._compile(node.part, then), end))
        for _ in range(node.least):
            then = self._compile(node.part, then)
        return then


def _holds(assertion: Assertion, before: int, after: int) -> bool:
    if assertion is Assertion.BEGIN:
        return before == _EDGE
    if assertion is Assertion.END:
        return after == _EDGE
    if assertion is Assertion.BEGIN_OF_LINE:
        return before in (_EDGE, _NEWLINE)
    if assertion is Assertion.END_OF_LINE:
        return after in (_EDGE, _NEWLINE)
    return ((before == _WORD) != (after == _WORD)) == (assertion is Assertion.BOUNDARY)
