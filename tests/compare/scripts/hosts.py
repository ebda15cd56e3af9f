"""Limits by host: which texts are a host, and what happens to hosts that can't be resolved."""

from __future__ import annotations

from typing import Any

from ..config_requests import BROKER, NEEDS, SET, change, changed
from ..play import Play, script
from .quotas import NEEDS as QUOTA_NEEDS
from .quotas import alter, entry

OVERRIDES = "max.connections.per.ip.overrides"
NAN = float("nan")


@script(needs=NEEDS)
def connections_per_host(play: Play) -> None:
    for text in (
        "",
        ",",
        ",,",
        ",127.0.0.3:1",
        "127.0.0.3:1,",
        "127.0.0.3:1,,127.0.0.4:1",
        " 127.0.0.3:1 , 127.0.0.4:2 ",
        "127.0.0.3 : 1",
        "127.0.0.3:-3",
        "127.0.0.3:+5",
        "127.0.0.3:05",
        "127.0.0.3:\u0663",
        "127.0.0.3:2147483647",
        "127.0.0.3:2147483648",
        "127.0.0.3:1_000",
        "127.0.0.3:",
        "127.0.0.3",
        ":",
        ":3",
        "::1:3",
        "[::1]:3",
        "a..b:3",
        "x" * 64 + ":3",
        "a b:3",
        "a_b:3",
        "m\u00fcnchen:3",
        "127.0.0.3:1,127.0.0.3:x",
    ):
        asked = changed(change(BROKER, "", (OVERRIDES, SET, text)), only=True)
        play.ask(f"'{text}'", "IncrementalAlterConfigs", 1, asked)
    for text in ("", ",", "127.0.0.3:1"):
        asked = changed(
            change(BROKER, "", (OVERRIDES, SET, text), ("max.connections.per.ip", SET, "0")), only=True
        )
        play.ask(f"nobody but '{text}'", "IncrementalAlterConfigs", 1, asked)


@script(needs=QUOTA_NEEDS)
def quotas_of_hosts(play: Play) -> None:
    rate = ("connection_creation_rate", 5.0)
    for host in (
        "127.0.0.7",
        "::1",
        "[::1]",
        "[::1",
        "a..b",
        "x" * 64,
        "127.0.0.256",
        "a\0b",
        "-",
        "[127.0.0.1]",
    ):
        asked = alter(entry({"ip": host}, rate), validate_only=True)
        play.ask(f"'{host}'", "AlterClientQuotas", 1, asked)
    asked = alter(entry({"ip": "a..b"}, ("connection_creation_rate", None)), validate_only=True)
    play.ask("removed from what can't be resolved", "AlterClientQuotas", 1, asked)


@script(needs=QUOTA_NEEDS)
def no_numbers(play: Play) -> None:
    """A quota of NaN is refused, and changes nothing."""
    client = play.name("client")
    cases: dict[str, tuple[dict[str, str | None], str]] = {
        "bytes": ({"client-id": client}, "producer_byte_rate"),
        "time": ({"client-id": client}, "request_percentage"),
        "changes": ({"client-id": client}, "controller_mutation_rate"),
        "connections": ({"ip": "127.0.0.8"}, "connection_creation_rate"),
    }
    for case, (entity, key) in cases.items():
        play.ask(case, "AlterClientQuotas", 1, alter(entry(entity, (key, NAN))))
        play.ask(f"{case} again", "AlterClientQuotas", 1, alter(entry(entity, (key, NAN))))
        play.ask(f"{case} no more", "AlterClientQuotas", 1, alter(entry(entity, (key, None))))


def named_twice(*names: str | None, kind: str = "user") -> dict[str, Any]:
    parts = [{"entity_type": kind, "entity_name": name} for name in names]
    return {"entity": parts, "ops": [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]}


@script(needs=QUOTA_NEEDS)
def a_type_twice(play: Play) -> None:
    """If a type is given twice, the last one counts."""
    a, b = play.name("a"), play.name("b")
    for case, entries in {
        "two users": [named_twice(a, b)],
        "a user and the default": [named_twice(a, None)],
        "a user that is none, then one": [named_twice("", b)],
        "a user, then one that is none": [named_twice(a, "")],
        "the same as another": [named_twice(a, b), named_twice(b)],
        "an unknown type": [named_twice(a, b, kind="group")],
    }.items():
        play.ask(case, "AlterClientQuotas", 1, alter(*entries, validate_only=True))
