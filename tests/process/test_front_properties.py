"""A setting in a `server.properties` means the same for the front as for the broker."""

from __future__ import annotations

import random

import pytest

from barnabas.broker import value_in
from broker.config.given_settings import parse_properties


def broker_reads(text: str, name: str) -> str | None:
    return {each.name: each.value for each in parse_properties(text)}.get(name)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("listeners=A://:1\nother=2\nlisteners=B://:2\n", "B://:2"),
        ("listeners=A://:1,\\\r\n    B://:2\r\nother=1", "A://:1,B://:2"),
        ("listeners=A\\://127.0.0.1\\:0", "A://127.0.0.1:0"),
        ("other=1,\\\nlisteners=A://:1\n", None),
        ("# a comment \\\nlisteners=A://:1\n  ! listeners=B://:2", "A://:1"),
        ("listeners=\nother=2\n", ""),
        ("listeners", ""),
        ("\t listeners   A://:1", "A://:1"),
        ("listeners.more=1\nadvertised.listeners=2\nmy listeners=3", None),
    ],
)
def test_the_last_line_of_a_name_says_its_value_by_the_rules_of_java(text: str, value: str | None) -> None:
    assert value_in(text, "listeners") == value
    assert broker_reads(text, "listeners") == value


def test_whatever_a_file_looks_like_the_front_reads_it_as_the_broker_does() -> None:
    chance = random.Random(1)
    pieces = ("a", "b", "=", ":", " ", "\t", "\f", "\\", "\n", "\r", "#", "!", "a=", "\na", "\\\n")
    found = 0
    for _ in range(3000):
        text = "".join(chance.choices(pieces, k=chance.randrange(1, 14)))
        value = value_in(text, "a")
        assert value == broker_reads(text, "a"), text
        found += value is not None
    assert found > 500
