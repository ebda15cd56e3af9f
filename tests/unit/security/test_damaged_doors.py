"""Damaged input to code that reads keys, or bytes of unknown clients, causes no crash, no hang and no memory leak.
`make fuzz` tries two million inputs."""

from __future__ import annotations

import time

import pytest

from broker.network import tls
from broker.security.principal_mapping import LONGEST_NAME, RuleError, mapped_name, parse_rules
from tests.fuzz.doors import Door, doors
from tests.fuzz.trial import tried

INPUTS = 2_000
MOST_BLOCKS = 500
"""Caches fill slowly with few inputs. A leak of every input would exceed this."""


@pytest.mark.parametrize("door", [pytest.param(each, id=each.name.replace(" ", "_")) for each in doors()])
def test_damaged_bytes_do_nothing(door: Door) -> None:
    trial = tried(door, max(50, round(INPUTS * door.share)), seed=7)
    assert trial.longest_s < 1
    assert trial.blocks_kept < MOST_BLOCKS


LONG = 32_000  # in characters; a setting may be this long


@pytest.mark.parametrize(
    "text",
    [
        "-" * LONG,
        "-----BEGIN " + " " * LONG,
        "-----BEGIN " + "A " * (LONG // 2),
        "-----BEGIN CERTIFICATE-----\n" * (LONG // 28),
        "-----BEGIN CERTIFICATE-----\na:b" + "\n" * LONG,
        "-----BEGIN CERTIFICATE-----\n" + "a:b\n\n" * (LONG // 5),
        "-BEGIN A- " * (LONG // 10),
        "-BEGIN A- a:" * (LONG // 12),
    ],
)
def test_a_text_that_is_almost_pem_takes_no_time(text: str) -> None:
    """A regular expression that backtracked took minutes for some texts."""
    began_s = time.thread_time()
    assert tls._blocks(text, "CERTIFICATE") == []
    assert time.thread_time() - began_s < 5


def test_pem_is_found_in_one_line_and_with_anything_around() -> None:
    """Kafka's `PemParser` finds it, too, since some settings have no line ends."""
    body = "QUJD" * 20
    text = f"bag: attributes\n-----BEGIN CERTIFICATE----- {body} -----END CERTIFICATE-----junk"
    text += "--BEGIN  X  KEY--\nA: b-c\n\nQUJD\n--END X KEY--"
    wrapped = f"{body[:64]}\n{body[64:]}"
    assert tls._blocks(text, "CERTIFICATE") == [
        f"-----BEGIN CERTIFICATE-----\n{wrapped}\n-----END CERTIFICATE-----"
    ]
    assert tls._blocks(text, "KEY") == ["-----BEGIN X KEY-----\nQUJD\n-----END X KEY-----"]


def test_characters_that_python_may_read_differently_one_day_stand_for_themselves_in_a_class() -> None:
    (rule,) = parse_rules(r"RULE:^CN=([a||~~&]+)$/$1/")
    assert mapped_name((rule,), "CN=a|~&") == "a|~&"
    with pytest.raises(RuleError):
        parse_rules("RULE:[a--b]/x/")


@pytest.mark.limit("broker.security.principal_mapping.LONGEST_NAME")
def test_a_name_of_a_certificate_is_as_long_as_rules_can_look_through() -> None:
    rules = parse_rules(r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/,DEFAULT")
    name = "CN=," * (LONGEST_NAME // 4)
    began_s = time.thread_time()
    assert mapped_name(rules, name) == name
    assert time.thread_time() - began_s < 2
    with pytest.raises(RuleError, match="1025 characters"):
        mapped_name(rules, f"{name}x")
