"""Sets of characters: literals, escapes, `[...]`, and the named ones of Perl, POSIX and Unicode.

Only what a set has of the alphabet is kept.
"""

from __future__ import annotations

from unicodedata import category

from coordinator.java.re2.alphabet import Alphabet, Takes, script_of
from coordinator.java.re2.cursor import Cursor
from coordinator.java.re2.nodes import MOST_READ_PER_STEP, WORD, Chars, PatternSyntaxError
from protocol.waiting import turn

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
    """A category or a script; None where there is none of that name."""
    if name == "Any":
        return lambda char: True
    if name in _CATEGORIES:
        return lambda char: category(char).startswith(name)
    if name in _SCRIPTS:
        return lambda char: script_of(char) == name.split("_")[0].capitalize()
    return None


def escaped_class(alphabet: Alphabet, cursor: Cursor, *, folds: bool) -> Chars | None:
    """`\\d` and the like, `\\pN`, `\\p{Greek}`; None where it is no class. Raises PatternSyntaxError."""
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
    """A single character behind a backslash. Raises PatternSyntaxError."""
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
    """`[...]`. Raises PatternSyntaxError."""
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
    """`[:alpha:]`; None where it isn't closed, and so is no name."""
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
