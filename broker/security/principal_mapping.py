"""`ssl.principal.mapping.rules`: which user the owner of a certificate is, by the certificate's distinguished
name.

Source: Kafka's `SslPrincipalMapper` (KIP-371), with the rules of Java's regular expressions where Python's
differ. A pattern that Python can't express is refused at the start, instead of being misread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

DEFAULT = "DEFAULT"
_TRIMMED = "".join(map(chr, range(0x21)))  # the characters that Java's String.trim removes

_ANY = r"[^\n\r\u0085\u2028\u2029]"  # a dot in Java
_END = r"(?=(?:\r\n|[\n\r\u0085\u2028\u2029])?\Z)"  # a dollar in Java
_RULE = rf"(DEFAULT)|RULE:((\\{_ANY}|[^\\/])*)/((\\{_ANY}|[^\\/])*)/([LU]?){_ANY}*?|({_ANY}*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|{_END})", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)
_BACK_REFERENCE = re.compile(r"\$(\d+)", re.ASCII)

_CLASSES = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
}
_SAME_ESCAPES = frozenset("dDwWsSbBtnrfA0123456789")


class RuleError(ValueError):
    """An invalid rule, or one that doesn't yield a name."""


class Rule(NamedTuple):
    """`RULE:pattern/replacement/` and the case of the result: "L", "U" or "". Without a pattern, the name
    stays as it is."""

    pattern: re.Pattern[str] | None
    replacement: str
    letters: str

    def apply(self, name: str) -> str | None:
        """Return the user, or None if the rule doesn't match the name. Raises RuleError."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        replacement = _without_false_references(self.replacement, self.pattern.groups)
        found = self.pattern.sub(lambda match: _replaced(match, replacement), name)
        if self.letters == "L":
            return found.lower()
        return found.upper() if self.letters == "U" else found


def parse_rules(text: str | None) -> tuple[Rule, ...]:
    """Parse the rules. Raises RuleError."""
    rules = []
    for match in _SPLITTER.finditer((DEFAULT if text is None else text).strip(_TRIMMED)):
        written = match[1]
        parsed = _PARSER.match(written)
        if parsed is None or parsed.end() != len(written):
            raise RuleError(f"Invalid rule: {written}")
        if parsed[1] is not None:
            rules.append(Rule(None, "", ""))
        elif parsed[2] is not None:
            rules.append(Rule(_compiled(parsed[2]), parsed[4], parsed[6]))
    return tuple(rules)


LONGEST_NAME = 1024
"""In characters. A rule that looks for several parts of a name backtracks; with 64 KB that takes seconds."""


def mapped_name(rules: Sequence[Rule], name: str) -> str:
    """Return the user for a certificate's name. Raises RuleError if no rule matches, or if the name is too
    long."""
    if len(name) > LONGEST_NAME:
        raise RuleError(f"its certificate's name has {len(name)} characters, more than {LONGEST_NAME}")
    for rule in rules:
        found = rule.apply(name)
        if found is not None:
            return found
    raise RuleError(f"no rule of ssl.principal.mapping.rules matches {name!r}")


# --- replacements, read as by Java's `Matcher.appendReplacement` --------------------------------------------


def _without_false_references(replacement: str, groups: int) -> str:
    """Escape references to groups that the pattern doesn't have, if it has any groups."""
    if not groups:
        return replacement
    value = replacement
    for match in _BACK_REFERENCE.finditer(replacement):
        if match[1].startswith("0"):
            continue
        number = int(match[1])
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            place = match.start()  # in the original text: Kafka doesn't count its own insertions
            value = f"{value[:place]}\\{value[place:]}"
    return value


def _replaced(match: re.Match[str], replacement: str) -> str:
    out = []
    at = 0
    while at < len(replacement):
        character = replacement[at]
        at += 1
        if character == "\\":
            if at == len(replacement):
                raise RuleError("a replacement ends with a backslash")
            out.append(replacement[at])
            at += 1
        elif character == "$":
            text, at = _group(match, replacement, at)
            out.append(text)
        else:
            out.append(character)
    return "".join(out)


def _group(match: re.Match[str], replacement: str, at: int) -> tuple[str, int]:
    """Return the text for the reference at `at`, and where it ends."""
    if replacement.startswith("{", at):
        end = replacement.find("}", at)
        name = replacement[at + 1 : max(end, 0)]
        if end < 0 or name not in match.re.groupindex:
            raise RuleError(f"a replacement names a group that doesn't exist: {replacement}")
        return match[name] or "", end + 1
    digits = re.match(r"[0-9]+", replacement[at:])
    if digits is None:
        raise RuleError(f"a replacement has a $ that names no group: {replacement}")
    number, groups = int(digits[0][0]), match.re.groups
    if number > groups:
        raise RuleError(f"a replacement names a group that doesn't exist: {replacement}")
    used = 1
    for digit in digits[0][1:]:
        if number * 10 + int(digit) > groups:
            break
        number = number * 10 + int(digit)
        used += 1
    return match[number] or "", at + used


# --- Java's patterns ----------------------------------------------------------------------------------------


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(_Translation(pattern).text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise RuleError(f"the pattern {pattern} is invalid: {error}") from None


class _Translation:
    """Translates a Java pattern to a Python one, in `text`. Raises RuleError if Python can't express it."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        out = []
        while self._at < len(pattern):
            out.append(self._next())
        self.text = "".join(out)

    def _next(self) -> str:
        character = self._pattern[self._at]
        self._at += 1
        if character == "\\":
            return self._escape()
        if character == "[":
            return self._class()
        if character == ".":
            return _ANY
        if character == "$":
            return _END
        if character == "(" and self._takes("?"):
            return self._special()
        return character

    def _takes(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _special(self) -> str:
        for same in (":", "=", "!", ">", "<=", "<!", "i)", "i:"):
            if self._takes(same):
                if same == "i)" and self._at != 4:  # elsewhere, Python allows it only for a group
                    raise self._unknown("(?i) that isn't in front")
                return f"(?{same}"
        if self._takes("<"):
            return "(?P<"
        raise self._unknown(f"(?{self._pattern[self._at : self._at + 1]}")

    def _escape(self, *, in_class: bool = False) -> str:
        character = self._pattern[self._at : self._at + 1]
        self._at += 1
        if character == "Q" and not in_class:
            end = self._pattern.find("\\E", self._at)
            quoted = self._pattern[self._at :] if end < 0 else self._pattern[self._at : end]
            self._at = len(self._pattern) if end < 0 else end + 2
            return re.escape(quoted)
        if character == "p" and self._takes("{"):
            end = self._pattern.find("}", self._at)
            inside = _CLASSES.get(self._pattern[self._at : max(end, 0)])
            if inside is not None:
                self._at = end + 1
                return inside if in_class else f"[{inside}]"
        elif character == "z" and not in_class:
            return r"\Z"
        elif character == "Z" and not in_class:
            return _END
        elif character in _SAME_ESCAPES or character in "xu":
            return f"\\{character}"
        elif character and not character.isalnum():
            return re.escape(character)
        raise self._unknown(f"\\{character}")

    def _class(self) -> str:
        out = ["["]
        if self._takes("^"):
            out.append("^")
        if self._takes("]"):
            raise self._unknown("[]")
        while not self._takes("]"):
            if self._at == len(self._pattern) or self._pattern.startswith("&&", self._at):
                raise self._unknown("a class that doesn't end, or &&")
            character = self._pattern[self._at]
            self._at += 1
            if character == "[":
                raise self._unknown("a class within a class")
            if character == "-" and self._pattern.startswith("-", self._at):
                raise self._unknown("-- within a class")
            if character in "|~&":  # Python reserves these, doubled, for later use
                character = f"\\{character}"
            elif character == "\\":
                character = self._escape(in_class=True)
            out.append(character)
        out.append("]")
        return "".join(out)

    def _unknown(self, what: str) -> RuleError:
        return RuleError(f"the pattern {self._pattern} has {what}, which isn't supported")
