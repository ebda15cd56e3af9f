"""Expressions in RE2's syntax over topic names. tests/compare checks with Kafka which ones are accepted."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest

from coordinator.java import re2 as automaton
from coordinator.java import re2_syntax as alphabet
from coordinator.java.re2 import PatternSyntaxError, compile_pattern, compiling
from coordinator.java.re2_syntax import MAX_DEPTH, MAX_WORK, MOST_HELD, MOST_READ_PER_STEP, TOPIC_NAMES
from protocol.waiting import at_once
from tests.support.wishes import pauses, wishes

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


@pytest.mark.limit("coordinator.java.re2_syntax.MAX_REPEAT")
@pytest.mark.limit("coordinator.java.re2_syntax.MAX_DEPTH")
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
def test_a_nonsense_expression_is_refused(regex: str, complaint: str) -> None:
    with pytest.raises(PatternSyntaxError, match=f"^{re.escape(complaint)}$"):
        compile_pattern(regex)


NAMES = ("a" * 249, "ab" * 124, ("ab-." * 63)[:249])


@pytest.mark.parametrize(
    "regex",
    [
        "(a*)*b",
        "(a|a)*b",
        "(a|aa)+b",
        "(.*)(.*)(.*)(.*)(.*)b",
        "(a?){50}a{50}b",
        "a{1000}",
        "a{0,1000}b",
        "(ab){1000}",
        "(.?){1000}b?",
        "(a{100}){100}",
        "(x{0,1000}){2}",
        ".*.{0,600}.{0,600}",
        "((.?){30}){30}",
        "((\\b|.)*){300}",
        "((((){1000}){1000}){1000}){1000}",
        "(((a{0}){1000}){1000}){1000}",
        "(" * 190 + "a" + "|b)*" * 190,
        "(" * 190 + "a*" + ")*" * 190,
    ],
)
def test_no_expression_takes_long(regex: str) -> None:
    pattern = compile_pattern(regex)
    assert pattern.work <= MAX_WORK

    for name in NAMES:
        before = pattern.work
        pattern.matches(name)
        assert pattern.work - before <= 5_000 * len(name)


@pytest.mark.limit("coordinator.java.re2_syntax.MAX_WORK")
@pytest.mark.parametrize(
    "regex",
    [
        "((.?){100}){100}",
        "((.?){1000}){9}",
        "(.{0,1000}|b{0,900}c?.{0,1000})" * 8,
        "((a|b{0}){1000}){1000}",
        pytest.param("((" + "a{0}" * 1000 + "b){2}){20}", id="of nothing"),
        pytest.param("a" * 30_000, id="long"),
        pytest.param("\\Q" + "a" * 30_000, id="long and quoted"),
    ],
)
def test_an_expression_that_becomes_too_large_is_refused_before_it_does(regex: str) -> None:
    with pytest.raises(PatternSyntaxError, match=r"^expression too large$"):
        compile_pattern(regex)


@pytest.mark.limit("coordinator.java.re2_syntax.MAX_STEPS")
@pytest.mark.limit("coordinator.java.re2_syntax.MAX_BITS")
@pytest.mark.parametrize(
    ("limit", "most", "fits", "too_large"),
    [("MAX_STEPS", 50, "a{40}", "a{60}"), ("MAX_BITS", 100, "a?b?", "(.?){50}")],
)
def test_steps_and_bits_are_bounded_separately(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, fits: str, too_large: str
) -> None:
    compile_pattern(too_large)
    monkeypatch.setattr(automaton, limit, most)
    compile_pattern(fits)
    with pytest.raises(PatternSyntaxError, match=r"^expression too large$"):
        compile_pattern(too_large)


def test_groups_may_nest_as_deep_as_is_promised() -> None:
    pattern = compile_pattern("(" * MAX_DEPTH + "a" + "|b)*" * MAX_DEPTH)

    assert pattern.matches("abba")
    assert not pattern.matches("abc")


def test_loops_within_loops_are_followed_in_a_few_turns() -> None:
    pattern = compile_pattern("(" * 190 + "a" + "|b)*" * 190)
    before = pattern.work

    assert pattern.matches("a")

    assert pattern.work - before < 20 * 190


@pytest.mark.limit("coordinator.java.re2.MAX_REMEMBERED")
def test_remembered_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "MAX_REMEMBERED", 10)
    pattern = compile_pattern(".*a.{0,20}")

    assert pattern.matches("abcdefghij" * 2)

    assert len(pattern._remembered) <= 10


@pytest.mark.limit("coordinator.java.re2.MOST_WORK_PER_STEP")
def test_a_long_name_is_matched_in_steps() -> None:
    luck = random.Random(1)
    name = "".join(luck.choice("ab") for _ in range(5_000))
    pattern = compile_pattern("(.*a.{300}){5}")
    done = [pattern.work]
    for _ in wishes(pattern.matching(name)):
        done.append(pattern.work)
    steps = [after - before for before, after in pairwise(done)]
    assert len(steps) > 20
    assert max(steps) < 2 * automaton.MOST_WORK_PER_STEP
    assert pattern.matches(name) is compile_pattern("(.*a.{300}){5}").matches(name) is True


@pytest.mark.limit("coordinator.java.re2_syntax.MOST_READ_PER_STEP")
@pytest.mark.parametrize(
    "regex",
    [
        pytest.param("a" * 5_000, id="plain"),
        pytest.param("[" + "a" * 5_000 + "]", id="class"),
        pytest.param("((\\Q" + "a" * 5_000 + "\\E))", id="quoted"),
    ],
)
def test_a_long_expression_is_compiled_in_steps(regex: str) -> None:
    assert pauses(compiling(regex)) == 5_000 // MOST_READ_PER_STEP + 1
    assert pauses(compiling("a{1000}")) == 0


@pytest.mark.limit("coordinator.java.re2_syntax.MOST_HELD")
@pytest.mark.parametrize("regex", ["[^{}]", "[{}\\pL]"])
def test_classes_of_a_large_alphabet_are_bounded_and_those_of_names_never_reach_it(regex: str) -> None:
    chars = frozenset(map(chr, range(0x4E00, 0x4E00 + 20_000)))
    many = [regex.format(chr(0x4E00 + number)) for number in range(120)]
    compile_pattern("".join(many[:50]), chars)
    with pytest.raises(PatternSyntaxError, match="expression too large"):
        compile_pattern("".join(many), chars)
    compile_pattern("".join(many))
    assert len(TOPIC_NAMES) * MAX_WORK < MOST_HELD


def test_expressions_that_are_read_at_the_same_time_share_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be read in threads, or in steps."""
    monkeypatch.setattr(alphabet, "MOST_HELD", 2 * len(TOPIC_NAMES))
    regex = "[^a]" + "x" * MOST_READ_PER_STEP + "[^b]"
    first, second = compiling(regex), compiling(regex)
    first.send(None)
    second.send(None)
    for reading in (first, second):
        assert at_once(reading).matches("a") is False


def test_a_literal_is_found_without_asking_the_whole_alphabet(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    cases = alphabet.cases

    def counted(char: str) -> frozenset[str]:
        asked.append(char)
        return cases(char)

    monkeypatch.setattr(alphabet, "cases", counted)
    chars = frozenset(map(chr, range(0x4E00, 0x4E00 + 5_000)))

    pattern = compile_pattern("(?i)" + "\u4e00a" * 100, chars)

    assert pattern.matches("\u4e00A" * 100)
    assert len(asked) == len({*asked})


def test_a_class_that_is_repeated_is_made_once() -> None:
    chars = frozenset(map(chr, range(0x4E00, 0x4E00 + 5_000)))

    pattern = compile_pattern("[^a]\\PL.[^a]\\PL." * 100, chars)

    assert len({id(each) for each in pattern._takers}) <= 3


def test_plain_expressions_match_as_pythons_do() -> None:
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
        pattern = compile_pattern(regex)
        for _ in range(10):
            name = "".join(chance.choice("abc.") for _ in range(chance.randrange(6)))
            assert pattern.matches(name) is bool(re.fullmatch(regex, name)), (regex, name)
