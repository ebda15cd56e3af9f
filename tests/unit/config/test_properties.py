"""The .properties format, as java.util.Properties reads it. Each expectation is what it printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.definitions import UsageError
from broker.config.given_settings import parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("a=1", "a", "1"),
        ("  b : 2  ", "b", "2  "),
        ("c 3 = 4", "c", "3 = 4"),
        ("\tii\t=\tjj\f", "ii", "jj\f"),
        (r"d\ e\=f\:g=h\ti", "d e=f:g", "h\ti"),
        (r"k=\u0041\u00e9\uD83D\uDE00", "k", "Aé😀"),
        ("o", "o", ""),
        ("p=", "p", ""),
        (r"q=\\", "q", "\\"),
        ("t==u", "t", "=u"),
        ("v = = w", "v", "= w"),
        (r"\#x=1", "#x", "1"),
        (r"y\ =2", "y ", "2"),
        ("=z", "", "z"),
        (r"dd=\z\q", "dd", "zq"),
        ("ll=b\\", "ll", "b"),
        ("zookeeper.connect=a:1,b:2", "zookeeper.connect", "a:1,b:2"),
    ],
)
def test_key_and_value_part_where_java_parts_them(text: str, name: str, value: str) -> None:
    assert [(found.name, found.value) for found in parse_properties(text)] == [(name, value)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("j = one, \\\n    two, \\\n\nk=3", "one, two, "),
        ("j=a\\\\\\\ns", "a\\s"),
        ("j=bb\\\n#cc", "bb#cc"),
        ("j=\\\r\n  3", "3"),
    ],
)
def test_a_backslash_at_its_end_continues_a_line(text: str, value: str) -> None:
    assert parse_properties(text)[0].value == value


def test_a_key_may_be_continued_too() -> None:
    assert parse_properties("l\\\n   m=n")[0][:2] == ("lm", "n")


def test_an_escaped_backslash_does_not_continue_a_line() -> None:
    assert [found.name for found in parse_properties("a=1\\\\\nb=2")] == ["a", "b"]


def test_comments_and_blank_lines_are_skipped() -> None:
    text = "# a=1\n  ! b=2\n\n   \n# ends with a backslash \\\nc=3"
    assert [found.name for found in parse_properties(text)] == ["c"]


def test_lines_end_as_on_any_system_and_are_counted() -> None:
    found = parse_properties("a=1\rb=2\r\nc=3\\\n  4\nd=5")
    assert [(one.name, one.value, one.line) for one in found] == [
        ("a", "1", 1),
        ("b", "2", 2),
        ("c", "34", 3),
        ("d", "5", 5),
    ]


def test_a_repeated_name_comes_twice() -> None:
    assert [found.value for found in parse_properties("a=1\na=2")] == ["1", "2"]


@pytest.mark.parametrize("text", [r"a=\u00g1", r"a=\u12", "a=\\u", r"a=\u+123"])
def test_a_broken_unicode_escape_is_reported_with_its_line(text: str) -> None:
    with pytest.raises(UsageError, match=r"^x\.properties:2: Malformed \\uxxxx encoding\.$"):
        parse_properties("\n" + text, "x.properties")


def test_half_a_surrogate_pair_does_not_break_the_reader() -> None:
    assert parse_properties(r"a=\ud83d")[0].value == "\ufffd"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_may_be_utf_8_or_in_javas_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("log.dirs=/home/jürgen".encode(encoding))
    assert read_properties(str(path))[0].value == "/home/jürgen"


def test_an_unreadable_file_is_reported_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"missing: No such file or directory$"):
        read_properties(str(tmp_path / "missing"))
