"""What masks do with values. `masks.py` says with which, and why."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .cluster_properties import BROKERS

NOW_MS = 5 * 60_000
"""How far from our clock a timestamp may be that must be the time of the request."""

MINUTE_MS = 60_000
DAY_MS = 1440 * MINUTE_MS


@dataclass(slots=True)
class Names:
    """What the normalisation of a transcript knows: its broker, its script's topics, the names given so far."""

    port: int
    topic_prefix: str
    start_ms: int
    other_topics: frozenset[str] = frozenset()
    sent_payloads: set[str] = field(default_factory=set)
    other_ports: dict[int, str] = field(default_factory=dict)
    """A cluster's other listeners, and their names."""
    given: dict[str, dict[Any, str]] = field(default_factory=dict)

    def name(self, kind: str, value: Any) -> str:
        names = self.given.setdefault(kind, {})
        return names.setdefault(value, f"<{kind} {len(names) + 1}>")

    def sort_key(self, entry: dict[str, Any]) -> str:
        """Return the key for sorting a list's entries: what they are about, before anything random."""
        topic_id = entry.get("topic_id")
        known_id = self.given.get("topic id", {}).get(topic_id, topic_id)
        producer_id = entry.get("producer_id")
        producer = self.given.get("producer id", {}).get(producer_id, producer_id)
        index = entry.get("index", entry.get("partition_index"))
        return json.dumps(
            [
                entry.get("name", entry.get("group_id")),
                index,
                known_id,
                str(producer),
                entry.get("error_code"),
                entry,
            ],
            default=str,
        )


Action = Callable[[Any, Names], Any]


def renamed(kind: str, *, but: tuple[Any, ...] = ()) -> Action:
    """Rename the n-th value of its kind to `<kind n>`. The values in `but` stay."""
    return lambda value, names: value if value in but else names.name(kind, value)


def known(kind: str) -> Action:
    """Replace a value that already has a name by that name."""
    return lambda value, names: names.given.get(kind, {}).get(value, value)


def recompressed(value: Any, names: Names) -> Any:
    """Hide compressed bytes that the script didn't send."""
    return value if value in names.sent_payloads else "<recompressed>"


def moment(value: Any, names: Names) -> Any:
    """Rename times. Whole minutes from the script's start came from the script; any other time near now came from the
    broker."""
    from_start_ms = value - names.start_ms
    if from_start_ms % MINUTE_MS == 0 and abs(from_start_ms) < 100 * DAY_MS:
        return f"<start {from_start_ms // MINUTE_MS:+} min>"
    return "<now>" if abs(value - time.time() * 1000) < NOW_MS else value


def any_text(value: Any, names: Names) -> Any:
    """Hide texts, except null and ""."""
    return "<text>" if value and not isinstance(value, SameText) else value


class SameText(str):
    """A text that both give in the same words."""


def refusal_as_it_is(value: Any, names: Names) -> Any:
    """Keep the words of refusals for lack of rights, without the request if Kafka dumps it."""
    if not value or not re.search(r"uthoriz|permission", value):
        return value
    return SameText(
        re.sub(r"^Request .* needs (\w+) permission\.$", r"The request needs \1 permission.", value)
    )


def any_number(value: Any, names: Names) -> Any:
    return "<number>" if isinstance(value, int) and value >= 0 else value


class Roughly(str):
    """Seconds that are equal to slightly more or fewer: they include how long requests took."""

    def __eq__(self, other: object) -> bool:
        there = _SECONDS.fullmatch(other) if isinstance(other, str) else None
        here = _SECONDS.fullmatch(self)
        assert here is not None
        return there is not None and abs(int(there[1]) - int(here[1])) <= _SECONDS_MORE_OR_LESS

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash("<about>")


_SECONDS = re.compile(r"<about (\d+) s>")
_SECONDS_MORE_OR_LESS = 3


def roughly(value: Any, names: Names) -> Any:
    """Return milliseconds as whole seconds."""
    return value if value < 1000 else Roughly(f"<about {round(value / 1000)} s>")


def own_port(value: Any, names: Names) -> Any:
    return "<port>" if value == names.port else names.other_ports.get(value, value)


def any_broker(value: Any, names: Names) -> Any:
    """Hide which broker it is: in a cluster brokers name any broker that is alive, because all forward requests for the
    controller."""
    return "<a broker>" if names.other_ports and value in BROKERS else value


def in_any_order(value: Any, names: Names) -> Any:
    return value if value is None else sorted(value, key=names.sort_key)


def healthy_first_in_any_order(value: Any, names: Names) -> Any:
    """Sort entries without an error before those with one; the order within each of the two is free."""
    out: list[Any] = []
    run: list[Any] = []
    for entry in value:
        if run and _healthy(run[-1]) != _healthy(entry):
            out += sorted(run, key=names.sort_key)
            run = []
        run.append(entry)
    return out + sorted(run, key=names.sort_key)


def own_topics(value: Any, names: Names) -> Any:
    """Keep the topics of this script: a broker's list has those of all scripts so far."""
    return [
        topic
        for topic in value
        if topic["name"] is None
        or topic["error_code"] != "0 NONE"
        or topic["name"].startswith(names.topic_prefix)
        or topic["name"] in names.other_topics
    ]


def own_elections(value: Any, names: Names) -> Any:
    """Keep the topics of this script, and those that belong to no script."""
    ours = [
        entry for entry in value if entry["topic"].startswith(names.topic_prefix) or entry["partition_result"]
    ]
    return sorted(ours, key=lambda entry: str(entry["topic"]))


def own_resources(value: Any, names: Names) -> Any:
    """Keep the broker, and the resources of this script."""
    return [
        resource
        for resource in value
        if resource["resource_name"].isdecimal() or resource["resource_name"].startswith(names.topic_prefix)
    ]


def own_transactions(value: Any, names: Names) -> Any:
    """Keep the transactions of this script."""
    return [entry for entry in value if entry["transactional_id"].startswith(names.topic_prefix)]


def in_order(value: Any, names: Names) -> Any:
    return sorted(value)


def control_record(value: Any, names: Names) -> Any:
    """Show a marker's record by its meaning, if its bytes are those that Kafka writes."""
    found = _MARKER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    kind = {"0000": "ABORT", "0001": "COMMIT"}[found["type"]]
    return {"marker": kind, "coordinator_epoch": int.from_bytes(bytes.fromhex(found["epoch"]), signed=True)}


def member_id(value: Any, names: Names) -> Any:
    """Rename what the broker made of a client's name and a random uuid. The script's own ids stay."""
    return value and _RANDOM_END.sub(lambda found: names.name("uuid", found.group()), value)


def members_in_any_order(value: Any, names: Names) -> Any:
    return sorted(value, key=lambda entry: json.dumps(entry | {"member_id": ""}, default=str))


def own_groups(value: Any, names: Names) -> Any:
    """Keep the groups of this script."""
    return [group for group in value if group["group_id"].startswith(names.topic_prefix)]


def then(*actions: Action) -> Action:
    def run(value: Any, names: Names) -> Any:
        for action in actions:
            value = action(value, names)
        return value

    return run


def _healthy(entry: Any) -> bool:
    return bool(entry["error_code"] == "0 NONE")


# length, attributes, deltas, key {version 0, type}, value {version 0, coordinator epoch}, no headers
_MARKER = re.compile("20000000080000(?P<type>000[01])0c0000(?P<epoch>[0-9a-f]{8})00")
_RANDOM_END = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[A-Za-z0-9_-]{22}$")
