"""Quotas of clients: set, removed, described by filters, refused. `tests/clients` tests that they are enforced."""

from __future__ import annotations

from typing import Any

from ..batches import batch, record
from ..play import Play, script, versions
from ..requests import fetch, produce

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
NEEDS = ("DescribeClientQuotas", "AlterClientQuotas")

Entity = dict[str, str | None]


def entry(entity: Entity, *ops: tuple[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def alter(*entries: dict[str, Any], validate_only: bool = False) -> dict[str, Any]:
    return {"entries": list(entries), "validate_only": validate_only}


def described(*components: tuple[str, int, str | None], strict: bool = False) -> dict[str, Any]:
    return {
        "components": [
            {"entity_type": kind, "match_type": match_type, "match": match}
            for kind, match_type, match in components
        ],
        "strict": strict,
    }


def until_seen(play: Play, number: int) -> None:
    """Wait for a mark. Kafka describes the state of its metadata cache, which lags a moment behind the answer."""
    client = play.name("mark")
    play.quietly(
        "AlterClientQuotas", 1, alter(entry({"client-id": client}, ("producer_byte_rate", 1.0 + number)))
    )

    def seen() -> bool:
        answer = play.quietly("DescribeClientQuotas", 1, described(("client-id", EXACT, client)))
        return bool(answer.entries) and answer.entries[0].values[0].value == 1.0 + number

    play.until("the quotas are seen", seen)


@script(needs=NEEDS)
def quotas(play: Play) -> None:
    user, client = play.name("user"), play.name("client")
    marks = 0
    filters = {
        "of the user": described(("user", EXACT, user)),
        "of the user alone": described(("user", EXACT, user), strict=True),
        "of the user with the client": described(("user", EXACT, user), ("client-id", EXACT, client)),
        "of the client": described(("client-id", EXACT, client)),
        "of the client with any user": described(("client-id", EXACT, client), ("user", SPECIFIED, None)),
        "of nobody": described(("user", EXACT, "nobody")),
    }
    for version in versions("AlterClientQuotas"):
        for case, asked in {
            "a user": alter(entry({"user": user}, ("producer_byte_rate", 1000.0))),
            "the same again": alter(entry({"user": user}, ("producer_byte_rate", 1000.0))),
            "another key beside it": alter(entry({"user": user}, ("request_percentage", 12.5))),
            "a client": alter(entry({"client-id": client}, ("consumer_byte_rate", 2.0))),
            "both": alter(entry({"user": user, "client-id": client}, ("controller_mutation_rate", 0.5))),
            "only tried": alter(entry({"user": user}, ("consumer_byte_rate", 9.0)), validate_only=True),
            "one bad of two": alter(
                entry({"user": user}, ("producer_byte_rate", 5.0), ("nonsense", 1.0)),
                entry({"client-id": client}, ("consumer_byte_rate", 4.0)),
            ),
            "removed and set": alter(
                entry({"user": user}, ("producer_byte_rate", None), ("consumer_byte_rate", 7.0))
            ),
            "what is not there removed": alter(entry({"user": user}, ("producer_byte_rate", None))),
            "an unknown key removed": alter(entry({"user": user}, ("nonsense", None))),
            "nothing": alter(entry({"user": user})),
            "an address": alter(entry({"ip": "127.0.0.9"}, ("connection_creation_rate", 100.0))),
        }.items():
            play.ask(f"{case} (v{version})", "AlterClientQuotas", version, asked)
            marks += 1
            until_seen(play, marks)
            for name, filtered in filters.items():
                play.ask(f"{case}: {name} (v{version})", "DescribeClientQuotas", version, filtered)
        play.ask(
            f"of the address (v{version})",
            "DescribeClientQuotas",
            version,
            described(("ip", EXACT, "127.0.0.9")),
        )
        everything = alter(
            entry({"user": user}, ("request_percentage", None), ("consumer_byte_rate", None)),
            entry({"client-id": client}, ("consumer_byte_rate", None)),
            entry({"user": user, "client-id": client}, ("controller_mutation_rate", None)),
            entry({"ip": "127.0.0.9"}, ("connection_creation_rate", None)),
        )
        play.ask(f"all removed (v{version})", "AlterClientQuotas", version, everything)
        marks += 1
        until_seen(play, marks)
        for name, filtered in filters.items():
            play.ask(f"all removed: {name} (v{version})", "DescribeClientQuotas", version, filtered)


@script(needs=NEEDS)
def refused(play: Play) -> None:
    user = play.name("user")
    rate = ("producer_byte_rate", 1.0)
    bad: dict[str, dict[str, Any]] = {
        "no entries": alter(),
        "no entity": alter(entry({}, rate)),
        "an unknown type": alter(entry({"group": "a"}, rate)),
        "an empty user": alter(entry({"user": ""}, rate)),
        "an empty client": alter(entry({"client-id": ""}, rate)),
        "a user and an address": alter(entry({"user": user, "ip": "127.0.0.1"}, rate)),
        "no address": alter(entry({"ip": "not an address"}, ("connection_creation_rate", 1.0))),
        "an address's key for a user": alter(entry({"user": user}, ("connection_creation_rate", 1.0))),
        "a user's key for an address": alter(entry({"ip": "127.0.0.1"}, rate)),
        "zero": alter(entry({"user": user}, ("producer_byte_rate", 0.0))),
        "less than zero": alter(entry({"user": user}, ("request_percentage", -1.0))),
        "half a byte": alter(entry({"user": user}, ("producer_byte_rate", 0.5))),
        "more than a long": alter(entry({"user": user}, ("producer_byte_rate", 1e19))),
        "more than an int": alter(entry({"ip": "127.0.0.1"}, ("connection_creation_rate", 3e9))),
        "a key twice": alter(entry({"user": user}, rate, rate)),
        "an entity twice": alter(entry({"user": user}, rate), entry({"user": user}, rate)),
        "endless": alter(entry({"user": user}, ("request_percentage", float("inf")))),
    }
    for mark, (case, asked) in enumerate(bad.items(), 1):
        play.ask(case, "AlterClientQuotas", 1, asked)
        until_seen(play, mark)
        play.ask(f"after {case}", "DescribeClientQuotas", 1, described(("user", EXACT, user)))
        play.quietly(
            "AlterClientQuotas",
            1,
            alter(entry({"user": user}, ("producer_byte_rate", None), ("request_percentage", None))),
        )
    for case, asked in {
        "an empty type": described(("", EXACT, "a")),
        "a type twice": described(("user", EXACT, "a"), ("user", SPECIFIED, None)),
        "an unknown type described": described(("group", EXACT, "a")),
        "exactly null": described(("user", EXACT, None)),
        "the default by name": described(("user", DEFAULT, "a")),
        "any by name": described(("user", SPECIFIED, "a")),
        "an unknown match": described(("user", 3, None)),
        "an address and a user": described(("ip", EXACT, "127.0.0.1"), ("user", SPECIFIED, None)),
        "addresses and any client": described(("ip", SPECIFIED, None), ("client-id", DEFAULT, None)),
    }.items():
        play.ask(case, "DescribeClientQuotas", 1, asked)


@script(needs=NEEDS)
def enforced(play: Play) -> None:
    """The first request above a quota is answered with the time that its client has to wait. The script doesn't wait:
    each case has its own client and connection."""
    topic = play.topic("t")
    bytes_a_second = 20.0
    clients = {case: play.name(case) for case in ("produce", "fetch", "small", "changes", "old")}
    limits = [
        entry({"client-id": clients["produce"]}, ("producer_byte_rate", bytes_a_second)),
        entry({"client-id": clients["fetch"]}, ("consumer_byte_rate", bytes_a_second)),
        entry({"client-id": clients["small"]}, ("producer_byte_rate", 1_000_000.0)),
        entry({"client-id": clients["changes"]}, ("controller_mutation_rate", 1.0)),
        entry({"client-id": clients["old"]}, ("controller_mutation_rate", 1.0)),
    ]
    play.quietly("AlterClientQuotas", 1, alter(*limits))
    until_seen(play, 1)
    big = batch([record(b"x" * 1000)])
    for case in ("produce", "small"):
        play.ask(
            f"{case} above a quota or below",
            "Produce",
            9,
            produce((topic, 0, big)),
            on=case,
            client_id=clients[case],
        )
    play.ask(
        "a fetch above its quota brings nothing",
        "Fetch",
        12,
        fetch((topic, 0, 0)),
        on="fetch",
        client_id=clients["fetch"],
    )
    for version, case in ((7, "changes"), (5, "old")):
        many = {
            "topics": [{"name": play.name(f"{case}-many"), "num_partitions": 40, "replication_factor": 1}],
            "timeout_ms": 30_000,
        }
        more = {
            "topics": [{"name": play.name(f"{case}-more"), "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 30_000,
        }
        play.ask(
            f"many partitions at once (v{version})",
            "CreateTopics",
            version,
            many,
            on=case,
            client_id=clients[case],
        )
        play.ask(
            f"more once the quota is used up (v{version})",
            "CreateTopics",
            version,
            more,
            on=f"{case} again",
            client_id=clients[case],
        )
    play.quietly(
        "AlterClientQuotas",
        1,
        alter(
            *(
                entry({"client-id": client}, (key, None))
                for client in clients.values()
                for key in ("producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate")
            )
        ),
    )
