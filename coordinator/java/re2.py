"""Regular expressions of RE2's syntax over names, in time linear in the name.

A client may send any expression, so nothing here backtracks. Names consist of a known alphabet: that of topic
names, or the characters of the ids in question. Other characters in an expression are parsed, and match
nothing. Syntax and error texts are those of RE2/J with its flag PERL, as in Kafka.

Deliberate differences: groups nest at most 200 deep. An expression becomes at most 12,000 steps: one for each
character that it takes, and for each place where it branches; repeated parts count each time. It may not have
too many branches at once (`MAX_BITS`), and at most 20,000 things are parsed or repeated. A letter's script
comes from its Unicode name.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import reduce
from itertools import chain, compress
from operator import or_

from coordinator.java.re2_syntax import (
    MAX_BITS,
    MAX_STEPS,
    MAX_WORK,
    MOST_READ_PER_STEP,
    TOO_LARGE,
    TOPIC_NAMES,
    WORD,
    Alphabet,
    Alternatives,
    Assertion,
    Chars,
    Node,
    One,
    PatternSyntaxError,
    Repeat,
    Sequence,
    parsing,
)
from protocol.waiting import at_once, turn

__all__ = ["Pattern", "PatternSyntaxError", "compile_pattern", "compiling"]


def compile_pattern(text: str, chars: Chars | None = None) -> Pattern:
    """Compile an expression. `chars`: more characters that names may have, besides those of topic names.

    The pattern caches what it finds out. Keep it for as many names as there are, and no longer. Raises
    PatternSyntaxError.
    """
    return at_once(compiling(text, chars))


async def compiling(text: str, chars: Chars | None = None) -> Pattern:
    """Do the same in steps. Each takes less than 20 ms if the names are those of topics."""
    node = await parsing(text, Alphabet(TOPIC_NAMES if chars is None else TOPIC_NAMES | chars))
    if len(text) > MOST_READ_PER_STEP:
        await turn()
    return Pattern(node)


# --- matching -------------------------------------------------------------------------------------------------
#
# All paths through the expression are followed at once, so no name takes longer than another of its length. A set
# of places in the expression is an int with a bit for each: where a character is to be taken, and the end (bit 0).

MAX_REMEMBERED = 5_000
MOST_WORK_PER_STEP = 50_000
"""For one name, some 5 ms: one step of a transactional id of 30,000 characters. All others wait for it."""

_END = 0
_EDGE, _OTHER, _WORD, _NEWLINE = range(4)  # the neighbours of a place in the name
_BITS = bytes.maketrans(b"01", b"\x00\x01")

_Compiling = Generator[tuple[Node, int], int, int]
_Beside = tuple[int, int]


def _kind(char: str) -> int:
    if char == "\n":
        return _NEWLINE
    return _WORD if char in WORD else _OTHER


class Pattern:
    """A compiled expression, matched against whole names. `work` counts the work so far, in steps of some 100 ns."""

    def __init__(self, node: Node) -> None:
        self.work = 0
        # Steps are numbered in the order of creation: a step is created before those that lead to it, except
        # in loops.
        self._next: list[tuple[int, ...]] = [()]
        self._assertions: dict[int, Assertion] = {}
        self._taking: dict[int, int] = {_END: 0}  # step → its bit
        self._takers: dict[Chars, list[int]] = {}  # bits
        self._start = self._compile(node)
        self._loose = self._order()
        # The bits that are followed by just the next lower bit: these are all moved at once.
        self._plain = sum(1 << bit for step, bit in self._taking.items() if self._is_plain(step, bit))
        branching = len(self._taking) - self._plain.bit_count()
        if branching * len(self._taking) > MAX_BITS:
            raise PatternSyntaxError(TOO_LARGE)
        self._masks: dict[str, int] = {}
        self._ways: dict[_Beside, list[int]] = {}
        self._remembered: dict[tuple[int, str, int], int] = {}

    def matches(self, name: str) -> bool:
        """True if the pattern matches the whole name. `work` grows by the characters that were looked at."""
        return at_once(self.matching(name))

    async def matching(self, name: str) -> bool:
        """Match in steps of `MOST_WORK_PER_STEP`, for names that may be long."""
        if not name:
            return bool(self._ways_between(_EDGE, _EDGE)[-1] & 1)
        kinds = [_kind(char) for char in name] if self._assertions else [_EDGE] * len(name)
        places = self._ways_between(_EDGE, kinds[0])[-1]
        remembered = self._remembered
        kinds.append(_EDGE)
        until = self.work + MOST_WORK_PER_STEP
        for index, char in enumerate(name):
            after = kinds[index + 1]
            key = (places, char, after)
            found = remembered.get(key)
            if found is None:
                if len(remembered) >= MAX_REMEMBERED:
                    remembered.clear()
                found = remembered[key] = self._step(places, char, (kinds[index], after))
                if self.work + index > until:
                    await turn()
                    until = self.work + index + MOST_WORK_PER_STEP
            if not found:
                self.work += index + 1
                return False
            places = found
        self.work += len(name)
        return bool(places & 1)

    def _step(self, places: int, char: str, beside: _Beside) -> int:
        mask = self._masks.get(char)
        if mask is None:
            mask = self._masks[char] = self._mask(char)
        taken = places & mask
        if not taken:
            return 0
        moved = (taken & self._plain) >> 1
        taken &= ~self._plain
        self.work += 1
        if not taken:
            return moved
        bits = bin(taken)[:1:-1].encode().translate(_BITS)
        self.work += taken.bit_count() + len(bits) // 4
        return reduce(or_, compress(self._ways_between(*beside), bits), moved)

    def _is_plain(self, step: int, bit: int) -> bool:
        return bit > 0 and self._taking.get(self._next[step][0]) == bit - 1

    def _mask(self, char: str) -> int:
        self.work += len(self._taking)
        return sum(1 << bit for chars, bits in self._takers.items() if char in chars for bit in bits)

    def _ways_between(self, before: int, after: int) -> list[int]:
        """For each bit, the places reached after taking its character; the last entry is for the beginning.

        It looks at places nearer to the end first, and then the other way round, because loops lead back. So
        the depth of nested loops doesn't matter.
        """
        found = self._ways.get((before, after))
        if found is not None:
            return found
        reached = [0] * len(self._next)
        for step, bit in self._taking.items():
            reached[step] = 1 << bit
        open_steps = [
            step
            for step in self._loose
            if step not in self._assertions or _holds(self._assertions[step], before, after)
        ]
        changes = True
        while changes:
            changes = False
            for step in chain(open_steps, reversed(open_steps)):
                self.work += 1
                places = 0
                for following in self._next[step]:
                    places |= reached[following]
                if places != reached[step]:
                    reached[step] = places
                    changes = True
        ways = [
            reached[self._next[step][0]] if bit and not self._is_plain(step, bit) else 0
            for step, bit in self._taking.items()
        ]
        ways.append(reached[self._start])
        self._ways[before, after] = ways
        return ways

    def _order(self) -> list[int]:
        """The steps that take no character, each after those that it leads to, except in loops."""
        order: list[int] = []
        seen = {*self._taking}
        for root in range(len(self._next)):
            to_visit = [root]
            while to_visit:
                step = to_visit.pop()
                if step < 0:
                    order.append(~step)  # everything that it leads to has been visited
                elif step not in seen:
                    seen.add(step)
                    to_visit += (~step, *self._next[step])
        return order

    # --- compiling ------------------------------------------------------------------------------------------

    def _add(self, *following: int) -> int:
        if len(self._next) > MAX_STEPS:
            raise PatternSyntaxError(TOO_LARGE)
        self._next.append(following)
        return len(self._next) - 1

    def _compile(self, node: Node) -> int:
        """The first step. It uses a stack of its own, because groups may nest deeper than calls may."""
        stack = [self._compiling(node, _END)]
        begin: int | None = None
        while True:
            try:
                wanted = stack[-1].send(begin) if begin is not None else next(stack[-1])
            except StopIteration as done:
                stack.pop()
                begin = done.value
                if not stack:
                    return done.value  # type: ignore[no-any-return]
                continue
            self.work += 1
            if self.work > MAX_WORK:
                raise PatternSyntaxError(TOO_LARGE)
            stack.append(self._compiling(*wanted))
            begin = None

    def _compiling(self, node: Node, then: int) -> _Compiling:
        """The first step of a path to `then`. It yields a request for that of each part."""
        if isinstance(node, One):
            step = self._add(then)
            bit = self._taking[step] = len(self._taking)
            self._takers.setdefault(node.chars, []).append(bit)
            return step
        if isinstance(node, Assertion):
            step = self._add(then)
            self._assertions[step] = node
            return step
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                then = yield part, then
            return then
        if isinstance(node, Alternatives):
            begins: list[int] = []
            for part in node.parts:
                begins.append((yield part, then))
            return self._add(*begins)
        return (yield from self._repeating(node, then))

    def _repeating(self, node: Repeat, then: int) -> _Compiling:
        if node.most is None:
            again = self._add()
            self._next[again] = ((yield node.part, again), then)
            then = again
        else:
            end = then
            for _ in range(node.most - node.least):
                begin = yield node.part, then
                if begin == then:
                    return then  # nothing, however often
                then = self._add(begin, end)
        for _ in range(node.least):
            begin = yield node.part, then
            if begin == then:
                break
            then = begin
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
