"""Expressions in RE2's syntax over topic names. Which are accepted is compared with Kafka in tests/compare."""

from __future__ import annotations

import random
import re
import time

import pytest

from coordinator.re2 import PatternSyntaxError, compile_pattern

MATCHING = [
    ("orders", "orders", True),
    ("orders", "orders-eu", False),
    ("orders.*", "orders-eu", True),
    ("a|b|cc", "cc", True),
    ("a||b", "", True),
    ("(?i)Or[D-F]eRS", "oRdErs", True),
    ("(?i:a)b", "AB", False),
    ("(?i)\u017f", "S", True),
    ("(?i)[\u212a]", "k", True),
    ("[^a-c]+", "xyz.", True),
    ("[]a]+", "aa", True),
    ("[a-]+", "a-a", True),
    ("[[:digit:]_]+", "1_2", True),
    ("[[:^alpha:]]", "a", False),
    ("\\d{2,3}", "12", True),
    ("\\d{2,3}", "1234", False),
    ("x{0}", "", True),
    ("(ab){2,}", "ababab", True),
    ("\\Qa.b\\E", "axb", False),
    ("\\Qa.b", "a.b", True),
    ("\\x41\\x{42}\\103", "ABC", True),
    ("\\p{Lu}\\pN\\P{L}", "A1.", True),
    ("\\p{Greek}*", "a", False),
    ("^a$", "a", True),
    ("a^b", "ab", False),
    ("\\Aa\\z", "a", True),
    ("a\\b.c", "a.c", True),
    ("a\\b.c", "abc", False),
    ("a\\B.c", "abc", True),
    ("(?P<name>a+)b*?", "aab", True),
    ("(?s).(?U).+(?-U)", "abc", True),
    ("a{,3}", "a", False),
    ("\u00e9?a", "a", True),
]


@pytest.mark.parametrize(("regex", "name", "expected"), MATCHING)
def test_a_name_is_matched_as_a_whole(regex: str, name: str, expected: bool) -> None:
    assert compile_pattern(regex).matches(name) is expected


@pytest.mark.parametrize(
    ("regex", "complaint"),
    [
        ("(", "missing closing )"),
        (")", "regexp/syntax: internal error"),
        ("[a", "missing closing ]"),
        ("*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?P<>a)", "invalid named capture"),
        ("(?P<n>a)(?P<n>b)", "duplicate capture group name"),
        ("\\1", "invalid escape sequence"),
        ("\\", "trailing backslash at end of expression"),
        ("[b-a]", "invalid character class range"),
        ("\\p{Nope}", "invalid character class range"),
        ("(" * 201 + ")" * 201, "expression nests too deeply"),
        ("((a{1000}){1000})", "expression too large"),
    ],
)
def test_an_expression_that_makes_no_sense_is_refused(regex: str, complaint: str) -> None:
    with pytest.raises(PatternSyntaxError, match=f"^{re.escape(complaint)}$"):
        compile_pattern(regex)


@pytest.mark.parametrize(
    "regex", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)(.*)(.*)(.*)(.*)b", "(a?){50}a{50}b"]
)
def test_no_expression_takes_long(regex: str) -> None:
    started_s = time.perf_counter()

    assert not compile_pattern(regex).matches("a" * 249)

    assert time.perf_counter() - started_s < 2.0


def test_plain_expressions_match_what_pythons_do() -> None:
    chance = random.Random(7)

    def expression(depth: int) -> str:
        kind = chance.randrange(6 if depth else 2)
        if kind < 2:
            return chance.choice(("a", "b", "[ab]", "[^a]", ".", "c", "\\."))
        if kind == 2:
            return f"({expression(depth - 1)}|{expression(depth - 1)})"
        if kind == 3:
            return f"({expression(depth - 1)}){chance.choice(('*', '+', '?', '{1,2}', '{2}'))}"
        return expression(depth - 1) + expression(depth - 1)

    for _ in range(400):
        regex = expression(4)
        for _ in range(10):
            name = "".join(chance.choice("abc.") for _ in range(chance.randrange(6)))
            assert compile_pattern(regex).matches(name) is bool(re.fullmatch(regex, name)), (regex, name)
