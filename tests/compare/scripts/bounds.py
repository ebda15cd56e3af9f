"""Requests that make more records than Kafka's controller writes at once. The broker rejects them, whole or in part."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..config_requests import BROKER, GROUP, SET, TOPIC, change, changed
from ..config_requests import NEEDS as CONFIG_NEEDS
from ..play import Play, script
from ..requests import create_topics, metadata
from .quotas import NEEDS as QUOTA_NEEDS
from .quotas import alter, entry
from .topics import more

MOST = 10_000


def outcomes(results: Any) -> list[list[Any]]:
    """Return each error code, whether it comes with a text, and how often it occurs."""
    counted = Counter((result.error_code, result.error_message is not None) for result in results)
    return sorted([int(code), text, times] for (code, text), times in counted.items())


@script
def new_topics(play: Play) -> None:
    """The topic's own record counts too, beside those of its partitions and settings."""
    n = iter(range(1000))

    def topic(partitions: int, **configs: str) -> dict[str, Any]:
        given = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        return {"name": play.name(f"t{next(n)}"), "num_partitions": partitions, "configs": given}

    bad = {"name": "a/b"}
    twice = topic(1)
    for case, topics in {
        "as many as fit": [topic(MOST - 1)],
        "one too many": [topic(MOST)],
        "as many as fit with a setting": [topic(MOST - 2, retention_ms="1000")],
        "one too many with a setting": [topic(MOST - 1, retention_ms="1000")],
        "as many as fit with a number in sync": [topic(MOST - 3, min_insync_replicas="1")],
        "one too many with a number in sync": [topic(MOST - 2, min_insync_replicas="1")],
        "two that fit": [topic(MOST - 3), topic(1)],
        "two that don't": [topic(MOST - 2), topic(1)],
        "one too many in a topic that can't be": [topic(MOST) | {"name": "a/b"}],
        "one too many, and a bad name": [topic(MOST), bad],
        "one too many, and a name twice": [topic(MOST), twice, twice],
        "one too many, and the metadata's": [topic(MOST), {"name": "__cluster_metadata"}],
        "many that can't be": [topic(-7), topic(-7), topic(MOST - 1)],
    }.items():
        play.ask(case, "CreateTopics", 7, create_topics(*topics, validate_only=True))
    refused = topic(MOST)
    play.ask("for good", "CreateTopics", 7, create_topics(refused))
    play.ask("nothing is there", "Metadata", 12, metadata(refused["name"]))


@script
def more_partitions(play: Play) -> None:
    """A topic past the bound is refused, and so are the topics after it."""
    a, b, c = (play.topic(name, 1).name for name in "abc")
    one = [{"broker_ids": [1]}]
    for case, topics in {
        "as many as fit": [(a, MOST + 1)],
        "one too many": [(a, MOST + 2)],
        "very many": [(a, 200_000)],
        "one behind": [(a, MOST + 2), (b, 2)],
        "one behind, assigned": [(a, MOST + 2), (b, 2, one)],
        "one behind that can't be": [(a, MOST + 2), (b, 2, [{"broker_ids": [7]}])],
        "one behind that is as it was": [(a, MOST + 2), (b, 1)],
        "one behind that is nowhere": [(a, MOST + 2), ("nowhere", 1)],
        "one before": [(b, 3), (a, MOST + 1)],
        "three": [(c, MOST), (b, 3), (a, MOST + 1)],
    }.items():
        play.ask(case, "CreatePartitions", 3, more(*topics, only=True))
    nowhere = [(f"nowhere-{number}", 1) for number in range(MOST + 1)]
    for case, asked in {"as many topics as fit": nowhere[:MOST], "a topic too many": nowhere}.items():
        play.note(case, outcomes(play.quietly("CreatePartitions", 3, more(*asked, only=True)).results))
    twice = [*nowhere, nowhere[0], ("other", 1)]
    play.note("one twice", outcomes(play.quietly("CreatePartitions", 3, more(*twice, only=True)).results))


@script(needs=CONFIG_NEEDS)
def settings(play: Play) -> None:
    def groups(number: int) -> list[dict[str, Any]]:
        key = "consumer.session.timeout.ms"
        return [change(GROUP, f"{play.name('g')}-{n}", (key, SET, "50000")) for n in range(number)]

    topic = play.topic("a").name
    for case, resources in {
        "as many as fit": groups(MOST),
        "one too many": groups(MOST + 1),
        "one too many, and a topic that isn't there": [
            *groups(MOST + 1),
            change(TOPIC, "nowhere", ("flush.ms", SET, "1")),
        ],
        "one too many, and a topic's bad setting": [
            *groups(MOST + 1),
            change(TOPIC, topic, ("flush.ms", SET, "x")),
        ],
        "one too many, and a broker's bad setting": [
            *groups(MOST + 1),
            change(BROKER, "", ("log.roll.ms", SET, "x")),
        ],
        "one too many, and a setting twice": [
            *groups(MOST + 1),
            change(TOPIC, topic, ("flush.ms", SET, "1"), ("flush.ms", SET, "2")),
        ],
        "one too many, and a resource type that isn't one": [
            *groups(MOST + 1),
            change(77, topic, ("flush.ms", SET, "1")),
        ],
        "as many as fit, with who is eligible": [
            *groups(MOST - 2),
            change(TOPIC, topic, ("min.insync.replicas", SET, "2")),
        ],
        "one too many, with who is eligible": [
            *groups(MOST - 1),
            change(TOPIC, topic, ("min.insync.replicas", SET, "2")),
        ],
        "a broker's own": [
            change(BROKER, "", *((f"own.setting.{n}", SET, "1") for n in range(MOST + 1))),
        ],
    }.items():
        answer = play.quietly("IncrementalAlterConfigs", 1, changed(*resources, only=True))
        play.note(case, outcomes(answer.responses))
    large = "x" * 30_000
    asked = [change(GROUP, play.name("g"), ("consumer.session.timeout.ms", SET, large))]
    play.ask("a large one that isn't legal", "IncrementalAlterConfigs", 1, changed(*asked, only=True))


@script(needs=QUOTA_NEEDS)
def quotas(play: Play) -> None:
    def clients(number: int) -> list[dict[str, Any]]:
        rate = ("producer_byte_rate", 1.0)
        return [entry({"client-id": f"{play.name('c')}-{n}"}, rate) for n in range(number)]

    for case, entries in {
        "as many as fit": clients(MOST),
        "one too many": clients(MOST + 1),
        "one too many, and one that can't be": [*clients(MOST + 1), entry({"client-id": ""}, ("x", 1.0))],
        "one too many, and one twice": [*clients(MOST + 1), *clients(1)],
    }.items():
        answer = play.quietly("AlterClientQuotas", 1, alter(*entries, validate_only=True))
        play.note(case, outcomes(answer.entries))


@script(needs=QUOTA_NEEDS)
def bytes_of_quotas(play: Play) -> None:
    """Each record of an entity repeats its names, so the records have more bytes than the request."""
    keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")

    def long_names(number: int, value: float | None) -> list[dict[str, Any]]:
        names = [{"user": f"{n}u" + "x" * 30_000, "client-id": f"{n}c" + "x" * 30_000} for n in range(number)]
        return [entry(dict(each), *((key, value) for key in keys)) for each in names]

    for case, entries in {
        "as many as fit": long_names(34, 1.0),
        "too many": long_names(36, 2.0),
        "too many, and one that can't be": [*long_names(36, 2.0), entry({"client-id": ""}, ("x", 1.0))],
        "removed": long_names(34, None),
    }.items():
        play.note(case, outcomes(play.quietly("AlterClientQuotas", 1, alter(*entries)).entries))
