"""Parsing an expression of RE2's syntax (RE2/J: `Parser`, with the flags of PERL) into nodes, over a known
alphabet.

A set only keeps the characters that are in the alphabet, so the size of the result is bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from unicodedata import category, name

from protocol.waiting import turn

# --- the nodes of an expression -------------------------------------------------------------------------------

Chars = frozenset[str]

WORD: Chars = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")
TOPIC_NAMES: Chars = WORD | frozenset("-.")
"""The characters of topic names."""


class PatternSyntaxError(Exception):
    """The text is RE2/J's description of the mistake."""


TOO_LARGE = "expression too large"
MAX_STEPS = 12_000
"""The most steps of an expression: characters to take, and places where it branches."""
MAX_BITS = 8_000_000
"""The bound for the stored transitions: a bit for each pair of characters, unless just the next one follows."""
MAX_WORK = 20_000
"""The most things to parse in an expression, and the most work to compile it that creates no step."""


MOST_HELD = 2_000_000
"""The most characters in all classes of an expression, some 50 bytes each. Expressions for topics' names stay
below, but ids may have any characters, and each class of an expression nearly all of them."""
MOST_READ_PER_STEP = 500
"""Things and members of classes that are parsed in one step: some 5 ms."""


class Assertion(Enum):
    """A condition at a place between two characters, in RE2's notation."""

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
    """Parts one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The first part that matches, in order."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repeated part. `most` is None if there is no limit."""

    part: Node
    least: int
    most: int | None


Node = One | Sequence | Alternatives | Repeat | Assertion


# --- the alphabet: the characters that a text may have, and which of them a set contains ----------------------

Takes = Callable[[str], bool]

# Letters that equal others if case doesn't matter, and that neither upper() nor lower() of those finds.
_ALSO = {
    "s": "\u017f",
    "k": "\u212a",
    "\u00e5": "\u212b",
    "\u00df": "\u1e9e",
    "\u03c3": "\u03c2",
    "\u03c9": "\u2126",
}


class Alphabet:
    """The alphabet of the names to match. Sets are reduced to it, so an expression gets as small as possible.

    Each expression has its own, so that a class that it repeats is made once. Several may be parsed at the
    same time, in threads and in steps.
    """

    __slots__ = ("_cased", "_held", "_known", "_sorted", "chars")

    def __init__(self, chars: Chars) -> None:
        self.chars = chars
        self._sorted = sorted(chars)
        self._cased: list[tuple[str, str]] | None = None
        self._known: dict[Hashable, Chars] = {}
        self._held = 0

    def held(self, chars: Chars) -> Chars:
        """Add a class that the expression holds. Raises PatternSyntaxError if all of them hold too much."""
        self._held += len(chars)
        if self._held > MOST_HELD:
            raise PatternSyntaxError(TOO_LARGE)
        return chars

    def taken(self, key: Hashable, takes: Takes, *, folds: bool) -> Chars:
        """The characters for which `takes` is true. `folds`: also those with another case for which it is.
        `key` names the class."""
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
        """The characters from `first` to `last`, found without checking all others."""
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
    """A character, and all that are the same if case doesn't matter."""
    found = {char}
    for _ in range(2):
        for each in [*found]:
            found.update(other for other in (each.lower(), each.upper()) if len(other) == 1)
            if each in _ALSO:
                found.add(_ALSO[each])
    return frozenset(found)


def script_of(char: str) -> str:
    """The script of a letter by its name. Common if it has none, and Inherited if it belongs to the letter before."""
    kind = category(char)
    if kind.startswith("M"):
        return "Inherited"
    if not kind.startswith(("L", "Nl")):
        return "Common"
    if char in "\u212a\u212b":  # the signs of Kelvin and of Angstrom are letters
        return "Latin"
    return name(char, "COMMON").split()[0].capitalize()


# --- a position in an expression --------------------------------------------------------------------------------


class Cursor:
    """A position in the text. `pos` may be moved."""

    __slots__ = ("pos", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    @property
    def more(self) -> bool:
        return self.pos < len(self.text)

    def at(self, *wanted: str) -> bool:
        """True if one of these comes next."""
        return any(self.text.startswith(each, self.pos) for each in wanted)

    def take(self, wanted: str) -> bool:
        """Skip it, if it comes next. Returns True if it did."""
        if not self.text.startswith(wanted, self.pos):
            return False
        self.pos += len(wanted)
        return True

    def next(self) -> str:
        char = self.text[self.pos]
        self.pos += 1
        return char


# --- sets of characters: literals, escapes, `[...]`, and the named ones of Perl, POSIX and Unicode ------------

INVALID_ESCAPE = "invalid escape sequence"
TRAILING_BACKSLASH = "trailing backslash at end of expression"
MISSING_BRACKET = "missing closing ]"
CHAR_RANGE = "invalid character class range"

_DIGITS: Chars = frozenset("0123456789")
_UPPER: Chars = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER: Chars = frozenset("abcdefghijklmnopqrstuvwxyz")
_LETTERS = _UPPER | _LOWER
_PUNCTUATION: Chars = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")

_PERL: dict[str, Chars] = {"d": _DIGITS, "s": frozenset("\t\n\f\r "), "w": WORD}

_POSIX: dict[str, Chars] = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset(map(chr, [*range(32), 127])),
    "digit": _DIGITS,
    "graph": _LETTERS | _DIGITS | _PUNCTUATION,
    "lower": _LOWER,
    "print": _LETTERS | _DIGITS | _PUNCTUATION | {" "},
    "punct": _PUNCTUATION,
    "space": frozenset("\t\n\v\f\r "),
    "upper": _UPPER,
    "word": WORD,
    "xdigit": frozenset("0123456789abcdefABCDEF"),
}

_CATEGORIES = frozenset(
    "L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs".split()  # noqa: SIM905
    + "C Cc Cf Co Cs".split()  # noqa: SIM905
)
_SCRIPTS = frozenset(
    """
    Arabic Armenian Avestan Common Latin
    Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Cham
    Cherokee Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Egyptian_Hieroglyphs Ethiopic Georgian
    Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic
    Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li
    Kharoshthi Khmer Lao Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek
    Mongolian Myanmar New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic
    Oriya Osmanya Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese
    Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan
    Tifinagh Ugaritic Unknown Vai Yi
    """.split()  # noqa: SIM905
)

_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = "01234567"
_MAX_RUNE = 0x10FFFF


def _unicode(name: str) -> Takes | None:
    """A category or a script; None if none has that name."""
    if name == "Any":
        return lambda char: True
    if name in _CATEGORIES:
        return lambda char: category(char).startswith(name)
    if name in _SCRIPTS:
        return lambda char: script_of(char) == name.split("_")[0].capitalize()
    return None


def escaped_class(alphabet: Alphabet, cursor: Cursor, *, folds: bool) -> Chars | None:
    """Parse `\\d` and the like, `\\pN`, `\\p{Greek}`; None if it is no class. Raises PatternSyntaxError."""
    name = cursor.text[cursor.pos + 1 : cursor.pos + 2]
    if name.lower() in _PERL and name:
        cursor.pos += 2
        found = alphabet.taken(f"\\{name.lower()}", _PERL[name.lower()].__contains__, folds=False)
        return alphabet - found if name.isupper() else found
    if name not in ("p", "P"):
        return None
    cursor.pos += 2
    negated = name == "P"
    if not cursor.more:
        raise PatternSyntaxError(CHAR_RANGE)
    if cursor.take("{"):
        end = cursor.text.find("}", cursor.pos)
        if end < 0:
            raise PatternSyntaxError(CHAR_RANGE)
        group = cursor.text[cursor.pos : end]
        cursor.pos = end + 1
    else:
        group = cursor.next()
    if group.startswith("^"):
        negated, group = not negated, group[1:]
    takes = _unicode(group)
    if takes is None:
        raise PatternSyntaxError(CHAR_RANGE)
    chars = alphabet.taken(f"\\p{{{group}}}", takes, folds=folds)
    return alphabet - chars if negated else chars


def escaped_char(cursor: Cursor) -> str:
    """Parse a single character after a backslash. Raises PatternSyntaxError."""
    cursor.next()
    if not cursor.more:
        raise PatternSyntaxError(TRAILING_BACKSLASH)
    char = cursor.next()
    if char in _OCTAL:
        if char != "0" and not cursor.at(*_OCTAL):
            raise PatternSyntaxError(INVALID_ESCAPE)  # a back reference
        digits = char
        while len(digits) < 3 and cursor.at(*_OCTAL):
            digits += cursor.next()
        return chr(int(digits, 8))
    if char == "x":
        return _hexadecimal(cursor)
    if char in _CONTROLS:
        return _CONTROLS[char]
    if char.isascii() and char.isalnum():
        raise PatternSyntaxError(INVALID_ESCAPE)
    return char


def _hexadecimal(cursor: Cursor) -> str:
    digits = cursor.text[cursor.pos : cursor.pos + 2]
    end = cursor.pos + 2
    if cursor.take("{"):
        closing = cursor.text.find("}", cursor.pos)
        digits, end = cursor.text[cursor.pos : closing], closing + 1
        if closing < 0 or not digits:
            raise PatternSyntaxError(INVALID_ESCAPE)
    elif len(digits) < 2:
        raise PatternSyntaxError(INVALID_ESCAPE)
    try:
        value = int(digits, 16) if digits.isalnum() and len(digits) <= 16 else _MAX_RUNE + 1
    except ValueError:
        value = _MAX_RUNE + 1
    if value > _MAX_RUNE:
        raise PatternSyntaxError(INVALID_ESCAPE)
    cursor.pos = end
    return chr(value)


async def bracketed(alphabet: Alphabet, cursor: Cursor, *, folds: bool) -> Chars:
    """Parse `[...]`. Raises PatternSyntaxError."""
    cursor.next()
    negated = cursor.take("^")
    chars: set[str] = set()
    count = 0
    while not count or not cursor.at("]"):
        if not cursor.more:
            raise PatternSyntaxError(MISSING_BRACKET)
        count += 1
        if count % MOST_READ_PER_STEP == 0:
            await turn()
        if cursor.at("[:"):
            found = _posix(alphabet, cursor, folds=folds)
            if found is not None:
                chars |= found
                continue
        if cursor.at("\\"):
            found = escaped_class(alphabet, cursor, folds=folds)
            if found is not None:
                chars |= found
                continue
        low = high = _class_char(cursor)
        if cursor.at("-") and not cursor.at("-]") and cursor.pos + 1 < len(cursor.text):
            cursor.next()
            high = _class_char(cursor)
            if high < low:
                raise PatternSyntaxError(CHAR_RANGE)
        chars |= alphabet.span(low, high, folds=folds)
    cursor.next()
    taken = alphabet.held(frozenset(chars))
    return alphabet - taken if negated else taken


def _class_char(cursor: Cursor) -> str:
    if not cursor.more:
        raise PatternSyntaxError(MISSING_BRACKET)
    return escaped_char(cursor) if cursor.at("\\") else cursor.next()


def _posix(alphabet: Alphabet, cursor: Cursor, *, folds: bool) -> Chars | None:
    """Parse `[:alpha:]`; None if it isn't closed, and so is no name."""
    end = cursor.text.find(":]", cursor.pos + 2)
    if end < 0:
        return None
    name = cursor.text[cursor.pos + 2 : end]
    negated = name.startswith("^")
    known = _POSIX.get(name.removeprefix("^"))
    if known is None:
        raise PatternSyntaxError(CHAR_RANGE)
    cursor.pos = end + 2
    chars = alphabet.taken(f"[:{name.removeprefix('^')}:]", known.__contains__, folds=folds)
    return alphabet - chars if negated else chars


# --- parsing --------------------------------------------------------------------------------------------------

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
    """The flags that `(?i)` and the like switch on."""

    folds: bool = False  # upper and lower case are the same
    lines: bool = False  # ^ and $ match at the start and end of each line
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
        """Parse up to the end, or to the closing parenthesis."""
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
        """Count one thing. Returns True if a step has to end."""
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
        """Parse after `(?`: None for a named group; else whether it is closed already, and the new flags."""
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
        """Parse `{2}`, `{2,}`, `{2,3}` and return where it ends; None if it is just a brace."""
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
            return [One(await bracketed(alphabet, cursor, folds=flags.folds))]
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
        found = escaped_class(alphabet, cursor, folds=flags.folds)
        if found is None:
            found = alphabet.literal(escaped_char(cursor), folds=flags.folds)
        return [One(found)]


def _sequence(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def _count(digits: str) -> int:
    return int(digits) if len(digits) <= 8 else -1
