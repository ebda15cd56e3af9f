"""Where the answers of two healthy brokers may differ, and why. Everything else has to be equal.

A mask names fields by their path, `Api.field.field` (indexes left out, `*` for anything), and says what becomes of
their values. Most masks rename rather than hide: the first topic id of a script becomes `<topic id 1>` wherever it
turns up again, so a broker that mixes ids up is still caught.

`DIFFERENCES` at the end are cases where barnabas answers otherwise on purpose. They're held to as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

COMPARED_API_KEYS = frozenset({0, 1, 2, 3, 18, 19, 20, 22, 23, 37, 60, 75})
"""The APIs that barnabas has to list. Add a key here along with its scripts."""

NOW_MS = 5 * 60_000
"""How far from our clock a timestamp may be that has to be the time of the request."""

MINUTE_MS = 60_000
DAY_MS = 1440 * MINUTE_MS


@dataclass(slots=True)
class Names:
    """What a transcript's normalisation knows: its broker, its script's topics, and the names given so far."""

    port: int
    topic_prefix: str
    start_ms: int
    other_topics: frozenset[str] = frozenset()
    sent_payloads: set[str] = field(default_factory=set)
    given: dict[str, dict[Any, str]] = field(default_factory=dict)

    def name(self, kind: str, value: Any) -> str:
        names = self.given.setdefault(kind, {})
        return names.setdefault(value, f"<{kind} {len(names) + 1}>")

    def sort_key(self, entry: dict[str, Any]) -> str:
        """What the entries of a list are put in order by: who they are about, before anything random."""
        topic_id = entry.get("topic_id")
        known_id = self.given.get("topic id", {}).get(topic_id, topic_id)
        return json.dumps([entry.get("name"), entry.get("index"), known_id, entry.get("error_code"), entry], default=str)


Action = Callable[[Any, Names], Any]


@dataclass(frozen=True, slots=True)
class Mask:
    where: str
    action: Action
    reason: str
    scripts: str = "*"


def renamed(kind: str, *, but: tuple[Any, ...] = ()) -> Action:
    """The n-th value of its kind becomes `<kind n>`; the values in `but` stay as they are."""
    return lambda value, names: value if value in but else names.name(kind, value)


def known(kind: str) -> Action:
    """A value that has a name already becomes that name."""
    return lambda value, names: names.given.get(kind, {}).get(value, value)


def recompressed(value: Any, names: Names) -> Any:
    """Compressed bytes that the script didn't send."""
    return value if value in names.sent_payloads else "<recompressed>"


def moment(value: Any, names: Names) -> Any:
    """Whole minutes from the script's start were the script's doing; any other time near now was the broker's."""
    from_start_ms = value - names.start_ms
    if from_start_ms % MINUTE_MS == 0 and abs(from_start_ms) < 100 * DAY_MS:
        return f"<start {from_start_ms // MINUTE_MS:+} min>"
    return "<now>" if abs(value - time.time() * 1000) < NOW_MS else value


def any_text(value: Any, names: Names) -> Any:
    """Null and "" stay."""
    return "<text>" if value else value


def any_number(value: Any, names: Names) -> Any:
    return "<number>" if value >= 0 else value


def own_port(value: Any, names: Names) -> Any:
    return "<port>" if value == names.port else value


def in_any_order(value: Any, names: Names) -> Any:
    return value if value is None else sorted(value, key=names.sort_key)


def healthy_first_in_any_order(value: Any, names: Names) -> Any:
    """Entries without an error, then those with one; the order within each of the two is free."""
    out: list[Any] = []
    run: list[Any] = []
    for entry in value:
        if run and _healthy(run[-1]) != _healthy(entry):
            out += sorted(run, key=names.sort_key)
            run = []
        run.append(entry)
    return out + sorted(run, key=names.sort_key)


def own_topics(value: Any, names: Names) -> Any:
    """The topics of this script; a broker's list holds those of all scripts so far."""
    return [
        topic
        for topic in value
        if topic["name"] is None
        or topic["error_code"] != "0 NONE"
        or topic["name"].startswith(names.topic_prefix)
        or topic["name"] in names.other_topics
    ]


def compared_apis(value: Any, names: Names) -> Any:
    return [entry for entry in value if entry["api_key"] in COMPARED_API_KEYS]


def then(*actions: Action) -> Action:
    def run(value: Any, names: Names) -> Any:
        for action in actions:
            value = action(value, names)
        return value

    return run


def _healthy(entry: Any) -> bool:
    return bool(entry["error_code"] == "0 NONE")


_ZERO_UUID = bytes(16).hex()

MASKS = (
    Mask("*.topic_id", renamed("topic id", but=(_ZERO_UUID,)), "topic ids are random"),
    Mask("*.cluster_id", renamed("cluster id", but=(None, "")), "a cluster's id is random"),
    Mask("*.session_id", renamed("session", but=(0,)), "fetch session ids are random"),
    Mask("InitProducerId.producer_id", renamed("producer id", but=(-1,)), "producer ids are handed out in blocks"),
    Mask("*.records.producer_id", known("producer id"), "as for InitProducerId"),
    Mask("*.records.compressed", recompressed, "two compressors make different bytes; what is in them is compared"),
    Mask("*.port", own_port, "the two brokers listen on ports of their own"),
    Mask("*.error_message", any_text, "we say it in our own words; whether a text comes is compared"),
    Mask("*.batch_index_error_message", any_text, "as for error_message"),
    Mask("*.log_append_time_ms", moment, "the time of the request, where it is that"),
    Mask("*.timestamp", moment, "as for log_append_time_ms"),
    Mask("*.base_timestamp", moment, "as for log_append_time_ms"),
    Mask("*.max_timestamp", moment, "as for log_append_time_ms"),
    Mask("ApiVersions.finalized_features_epoch", any_number, "the offset that the metadata log has reached"),
    Mask("ApiVersions.api_keys", compared_apis, "an API is listed only once it works; these have to"),
    Mask("ApiVersions.finalized_features", in_any_order, "Kafka's order is that of a hash map"),
    Mask("ApiVersions.supported_features", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "Metadata.topics",
        then(own_topics, healthy_first_in_any_order),
        "scripts share a broker; Kafka's order among known topics, and among unknown ones, is that of a hash set",
    ),
    Mask("DescribeTopicPartitions.topics", own_topics, "scripts share a broker"),
    Mask("DeleteTopics.responses", in_any_order, "Kafka shuffles them"),
    Mask("Produce.responses", in_any_order, "Kafka's order is that of a hash map over random topic ids"),
    Mask("Produce.responses.partition_responses", in_any_order, "as for Produce.responses"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A case that barnabas answers otherwise than Kafka, on purpose. `ours` is what it answers, after the masks."""

    script: str
    case: str
    ours: dict[str, Any]
    reason: str


DIFFERENCES: tuple[Difference, ...] = ()


def masked(api: str, value: Any, names: Names, script: str) -> Any:
    """An answer of `api`, as plain values, after all masks."""
    masks = [mask for mask in MASKS if fnmatchcase(script, mask.scripts)]
    return _masked(value, api, masks, names)


def _masked(value: Any, path: str, masks: list[Mask], names: Names) -> Any:
    for mask in masks:
        if fnmatchcase(path, mask.where):
            value = mask.action(value, names)
    # Lists are put in order before what is in them gets its names.
    if isinstance(value, list):
        return [_inside(element, path, masks, names) for element in value]
    return _inside(value, path, masks, names)


def _inside(value: Any, path: str, masks: list[Mask], names: Names) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _masked(inner, f"{path}.{name}", masks, names) for name, inner in value.items()}
