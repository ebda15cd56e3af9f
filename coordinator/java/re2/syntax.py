"""Reading an expression (RE2/J: `Parser`, with the flags of PERL)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from coordinator.java.re2 import classes
from coordinator.java.re2.alphabet import Alphabet
from coordinator.java.re2.cursor import Cursor
from coordinator.java.re2.nodes import (
    MAX_WORK,
    MOST_READ_PER_STEP,
    TOO_LARGE,
    Alternatives,
    Assertion,
    Node,
    One,
    PatternSyntaxError,
    Repeat,
    Sequence,
)
from protocol.waiting import turn

INTERNAL_ERROR = "regexp/syntax: internal error"
MISSING_PAREN = "missing closing )"
MISSING_ARGUMENT = "missing argument to repetition operator"
NESTED_REPEAT = "invalid nested repetition operator"
REPEAT_SIZE = "invalid repeat count"
PERL_OPERATOR = "invalid or unsupported Perl syntax"
NAMED_CAPTURE = "invalid named capture"
DUPLICATE_NAME = "duplicate capture group name"

MAX_REPEAT = 1000
MAX_DEPTH = 200

_COUNTS = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")

_ASSERTIONS = {
    "A": Assertion.BEGIN,
    "z": Assertion.END,
    "b": Assertion.BOUNDARY,
    "B": Assertion.NO_BOUNDARY,
}


@dataclass(frozen=True, slots=True)
class Flags:
    """What `(?i)` and the like switch on."""

    folds: bool = False  # upper and lower case are the same
    lines: bool = False  # ^ and $ stand at each line's begin and end
    all: bool = False  # . is a newline too


_FLAGS = {"i": "folds", "m": "lines", "s": "all"}


async def parsing(text: str, alphabet: Alphabet) -> Node:
    """Raises PatternSyntaxError."""
    parser = _Parser(text, alphabet)
    node = await parser.alternatives(0, Flags())
    if parser.cursor.more:  # at a parenthesis that closes nothing
        raise PatternSyntaxError(INTERNAL_ERROR)
    return node


class _Parser:
    def __init__(self, text: str, alphabet: Alphabet) -> None:
        self.alphabet = alphabet
        self.cursor = Cursor(text)
        self.names: set[str] = set()
        self.things = 0

    async def alternatives(self, depth: int, flags: Flags) -> Node:
        """Up to the end, or to the parenthesis that closes."""
        if depth > MAX_DEPTH:
            raise PatternSyntaxError("expression nests too deeply")
        cursor = self.cursor
        branches: list[Node] = []
        parts: list[Node] = []
        just_repeated = False
        while cursor.more and not cursor.at(")"):
            if self._count_one():
                await turn()
            was_repeated, just_repeated = just_repeated, False
            if cursor.take("|"):
                branches.append(_sequence(parts))
                parts = []
            elif cursor.take("("):
                if cursor.take("?"):
                    found = self._perl_group(flags)
                    if found is not None:
                        closed, inside = found
                        if closed:
                            flags = inside
                            continue
                        parts.append(await self._group(depth, inside))
                        continue
                parts.append(await self._group(depth, flags))
            elif cursor.at("*", "+", "?") or self._counts() is not None:
                if not parts:
                    raise PatternSyntaxError(MISSING_ARGUMENT)
                least, most = self._repetition()
                cursor.take("?")
                if was_repeated:
                    raise PatternSyntaxError(NESTED_REPEAT)
                parts[-1] = Repeat(parts[-1], least, most)
                just_repeated = True
            else:
                parts += await self._atom(flags)
        branches.append(_sequence(parts))
        return branches[0] if len(branches) == 1 else Alternatives(tuple(branches))

    def _count_one(self) -> bool:
        """Whether a step is to end."""
        self.things += 1
        if self.things > MAX_WORK:
            raise PatternSyntaxError(TOO_LARGE)
        return self.things % MOST_READ_PER_STEP == 0

    async def _group(self, depth: int, flags: Flags) -> Node:
        node = await self.alternatives(depth + 1, flags)
        if not self.cursor.take(")"):
            raise PatternSyntaxError(MISSING_PAREN)
        return node

    def _perl_group(self, flags: Flags) -> tuple[bool, Flags] | None:
        """Behind `(?`: None for a named group; else whether it is closed already, and the flags from here on."""
        cursor = self.cursor
        if cursor.take("P<") or cursor.take("<"):
            end = cursor.text.find(">", cursor.pos)
            if end < 0:
                raise PatternSyntaxError(NAMED_CAPTURE)
            name = cursor.text[cursor.pos : end]
            cursor.pos = end + 1
            if not name or not all(char.isascii() and (char.isalnum() or char == "_") for char in name):
                raise PatternSyntaxError(NAMED_CAPTURE)
            if name in self.names:
                raise PatternSyntaxError(DUPLICATE_NAME)
            self.names.add(name)
            return None
        on = True
        any_flag = False
        while cursor.more:
            char = cursor.next()
            if char in "imsU":
                any_flag = True
                if char in _FLAGS:
                    flags = replace(flags, **{_FLAGS[char]: on})
            elif char == "-":
                if not on:
                    break
                on = False
                any_flag = False  # a flag has to come
            elif char in ":)":
                if not on and not any_flag:
                    break
                return char == ")", flags
            else:
                break
        raise PatternSyntaxError(PERL_OPERATOR)

    # --- repetition -----------------------------------------------------------------------------------------

    def _repetition(self) -> tuple[int, int | None]:
        for operator, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.cursor.take(operator):
                return counts
        found = self._counts()
        assert found is not None
        least, most, end = found
        self.cursor.pos = end
        if not 0 <= least <= MAX_REPEAT or (most is not None and not least <= most <= MAX_REPEAT):
            raise PatternSyntaxError(REPEAT_SIZE)
        return least, most

    def _counts(self) -> tuple[int, int | None, int] | None:
        """`{2}`, `{2,}`, `{2,3}` and where it ends; None where it is nothing of that, but a brace."""
        found = _COUNTS.match(self.cursor.text, self.cursor.pos)
        if found is None or any(
            len(number or "") > 1 and number[0] == "0" for number in (found[1], found[3])
        ):
            return None
        least = _count(found[1])
        if found[2] is None:
            return least, least, found.end()
        return least, _count(found[3]) if found[3] else None, found.end()

    # --- one thing ------------------------------------------------------------------------------------------

    async def _atom(self, flags: Flags) -> list[Node]:
        cursor, alphabet = self.cursor, self.alphabet
        if cursor.at("["):
            return [One(await classes.bracketed(alphabet, cursor, folds=flags.folds))]
        if cursor.at("\\"):
            return await self._escaped(flags)
        char = cursor.next()
        if char == ".":
            return [One(alphabet.chars if flags.all else alphabet - frozenset("\n"))]
        if char == "^":
            return [Assertion.BEGIN_OF_LINE if flags.lines else Assertion.BEGIN]
        if char == "$":
            return [Assertion.END_OF_LINE if flags.lines else Assertion.END]
        return [One(alphabet.literal(char, folds=flags.folds))]

    async def _escaped(self, flags: Flags) -> list[Node]:
        cursor, alphabet = self.cursor, self.alphabet
        following = cursor.text[cursor.pos + 1 : cursor.pos + 2]
        if following in _ASSERTIONS:
            cursor.pos += 2
            return [_ASSERTIONS[following]]
        if following == "Q":
            end = cursor.text.find("\\E", cursor.pos + 2)
            quoted = cursor.text[cursor.pos + 2 : end if end >= 0 else len(cursor.text)]
            cursor.pos = end + 2 if end >= 0 else len(cursor.text)
            found_chars: list[Node] = []
            for char in quoted:
                if self._count_one():
                    await turn()
                found_chars.append(One(alphabet.literal(char, folds=flags.folds)))
            return found_chars
        found = classes.escaped_class(alphabet, cursor, folds=flags.folds)
        if found is None:
            found = alphabet.literal(classes.escaped_char(cursor), folds=flags.folds)
        return [One(found)]


def _sequence(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _count(digits: str) -> int:
    return int(digits) if len(digits) <= 8 else -1
