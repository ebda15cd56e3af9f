"""The form of a line of the log, whatever it names."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from broker.process.log_stream import JsonFormatter, LineFormatter
from broker.process.printable import printable


def formatted(message: str, *arguments: object, failure: BaseException | None = None) -> str:
    raised = None
    if failure is not None:
        try:
            raise failure
        except BaseException:
            raised = sys.exc_info()
    record = logging.LogRecord("barnabas.group", logging.INFO, "", 0, message, arguments, raised)
    return LineFormatter().format(record)


def test_a_line_has_time_level_and_logger() -> None:
    time, rest = formatted("group %s is empty", "g")[:23], formatted("group %s is empty", "g")[23:]
    assert len(time) == len("2026-01-01 00:00:00,000")
    assert rest == " INFO barnabas.group: group g is empty"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("g\n2026-01-01 00:00:00,000 ERROR barnabas: all is lost", r"g\n2026-01-01"),
        ("g\r", r"g\r"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\u2028b\u2029c\x85", r"a\u2028b\u2029c\x85"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff", r"\udcff"),
        ("Zürich 東京", "Zürich 東京"),
    ],
)
def test_outside_text_forges_no_log_line_and_moves_no_cursor(name: str, shown: str) -> None:
    line = formatted("group %s is empty", name)
    assert shown in line
    assert line.isprintable()
    assert shown in printable(name)


def test_a_stack_is_indented_and_its_text_escaped() -> None:
    text = formatted("it failed", failure=ValueError("a\n2026-01-01 INFO barnabas: forged\x1b[1m"))
    first, *stack = text.split("\n")
    assert first.endswith(": it failed")
    assert stack
    assert all(line.startswith("  ") for line in stack)
    assert all(line.isprintable() for line in stack)


def test_an_error_without_text_is_named() -> None:
    assert formatted("a request of %s failed: %s", "c", MemoryError()).endswith("c failed: MemoryError")


def test_a_line_of_json_says_the_same_and_nothing_from_outside_ends_it() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        raised = sys.exc_info()
    record = logging.LogRecord(
        "barnabas.group", logging.ERROR, "", 0, "group %s failed: %s", ("g\n\x1b[2J", MemoryError()), raised
    )
    record.created, record.msecs = 1_700_000_000.25, 250.0
    line = JsonFormatter().format(record)
    assert line.isprintable()
    said = json.loads(line)
    stack = said.pop("stack")
    assert stack.endswith("ValueError: a\nb")
    assert said == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "ERROR",
        "logger": "barnabas.group",
        "message": "group g\n\x1b[2J failed: MemoryError",
    }
