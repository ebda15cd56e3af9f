"""Where the answers of two healthy brokers may differ, and why. Everything else has to be equal.

A mask names fields by their path, `Api.field.field` (indexes left out, `*` for anything), and says what becomes of
their values. Most masks rename rather than hide: the first topic id of a script becomes `<topic id 1>` wherever it
turns up again, so a broker that mixes ids up is still caught.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

COMPARED_API_KEYS = frozenset({*range(4), *range(8, 52), 55, 57, 60, 61, *range(64, 67), 68, 69, 74, 75})
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
    other_ports: dict[int, str] = field(default_factory=dict)
    """Of a cluster's other listeners, and what they are called."""
    given: dict[str, dict[Any, str]] = field(default_factory=dict)

    def name(self, kind: str, value: Any) -> str:
        names = self.given.setdefault(kind, {})
        return names.setdefault(value, f"<{kind} {len(names) + 1}>")

    def sort_key(self, entry: dict[str, Any]) -> str:
        """What the entries of a list are put in order by: who they are about, before anything random."""
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


def roughly(value: Any, names: Names) -> Any:
    """Milliseconds as whole seconds: how long a request took to come is in them."""
    return value if value < 1000 else f"<about {round(value / 1000)} s>"


def own_port(value: Any, names: Names) -> Any:
    return "<port>" if value == names.port else names.other_ports.get(value, value)


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


def own_elections(value: Any, names: Names) -> Any:
    """The topics of this script, and those that are nobody's."""
    ours = [
        entry for entry in value if entry["topic"].startswith(names.topic_prefix) or entry["partition_result"]
    ]
    return sorted(ours, key=lambda entry: str(entry["topic"]))


def own_resources(value: Any, names: Names) -> Any:
    """The broker, and the resources of this script."""
    return [
        resource
        for resource in value
        if resource["resource_name"].isdecimal() or resource["resource_name"].startswith(names.topic_prefix)
    ]


def own_transactions(value: Any, names: Names) -> Any:
    """The transactions of this script."""
    return [entry for entry in value if entry["transactional_id"].startswith(names.topic_prefix)]


def in_order(value: Any, names: Names) -> Any:
    return sorted(value)


def control_record(value: Any, names: Names) -> Any:
    """The one record of a marker as what it says, if its bytes are those that Kafka writes."""
    found = _MARKER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    kind = {"0000": "ABORT", "0001": "COMMIT"}[found["type"]]
    return {"marker": kind, "coordinator_epoch": int.from_bytes(bytes.fromhex(found["epoch"]), signed=True)}


def member_id(value: Any, names: Names) -> Any:
    """What the broker made of a client's name and a random uuid; ids of the script's own stay."""
    return value and _RANDOM_END.sub(lambda found: names.name("uuid", found.group()), value)


def members_in_any_order(value: Any, names: Names) -> Any:
    return sorted(value, key=lambda entry: json.dumps(entry | {"member_id": ""}, default=str))


def own_groups(value: Any, names: Names) -> Any:
    """The groups of this script."""
    return [group for group in value if group["group_id"].startswith(names.topic_prefix)]


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
# length, attributes, deltas, key {version 0, type}, value {version 0, coordinator epoch}, no headers
_MARKER = re.compile("20000000080000(?P<type>000[01])0c0000(?P<epoch>[0-9a-f]{8})00")
_RANDOM_END = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|^[A-Za-z0-9_-]{22}$")

MASKS = (
    Mask("*.topic_id", renamed("topic id", but=(_ZERO_UUID,)), "topic ids are random"),
    Mask("*.cluster_id", renamed("cluster id", but=(None, "")), "a cluster's id is random"),
    Mask("*.session_id", renamed("session", but=(0,)), "fetch session ids are random"),
    Mask(
        "InitProducerId.producer_id",
        renamed("producer id", but=(-1,)),
        "producer ids are handed out in blocks",
    ),
    Mask("EndTxn.producer_id", renamed("producer id", but=(-1,)), "as for InitProducerId"),
    Mask(
        "DescribeTransactions.transaction_states.producer_id",
        renamed("producer id", but=(-1, 0)),
        "as for InitProducerId; 0 is that of an unknown one",
    ),
    Mask("*.producer_id", known("producer id"), "as for InitProducerId"),
    Mask("*.records.records", control_record, "a marker is shown as what it says"),
    *(
        Mask("*.coordinator_epoch", any_number, "how often the broker was started", f"{family}/*")
        for family in (
            "compaction",
            "transactions_histories",
            "transactions_levels",
            "transactions_loaded",
            "transactions_restarts",
            "transactions_stored",
            "transactions_timeouts",
        )
    ),
    Mask(
        "ListTransactions.transaction_states", then(own_transactions, in_any_order), "scripts share a broker"
    ),
    Mask(
        "DescribeTransactions.transaction_states.topics", in_any_order, "Kafka's order is that of a hash set"
    ),
    Mask("DescribeTransactions.*.partitions", in_order, "Kafka's order is that of a hash set"),
    Mask("*.transaction_start_time_ms", moment, "the time of the request"),
    Mask("*.last_timestamp", moment, "the time of the request, or of its records"),
    Mask("AddPartitionsToTxn.*topic_results", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "AddPartitionsToTxn.results_by_topic_v3_and_below",
        in_any_order,
        "Kafka's order is that of a hash map",
    ),
    Mask("AddPartitionsToTxn.*results_by_partition", in_any_order, "Kafka's order is that of a hash map"),
    Mask("WriteTxnMarkers.markers", in_any_order, "Kafka's order is that of a hash map"),
    Mask("WriteTxnMarkers.markers.topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("WriteTxnMarkers.markers.topics.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "*.records.compressed",
        recompressed,
        "two compressors make different bytes; what is in them is compared",
    ),
    Mask("*.port", own_port, "the two brokers listen on ports of their own"),
    Mask("*.throttle_time_ms", roughly, "a moment more or less passes between the requests"),
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
    Mask("*.log_dir", renamed("log dir"), "the two brokers have folders of their own"),
    Mask("DescribeLogDirs.results.topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeLogDirs.results.topics.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeLogDirs.results.total_bytes", any_number, "what the machine has"),
    Mask("DescribeLogDirs.results.usable_bytes", any_number, "what the machine has"),
    Mask("AlterReplicaLogDirs.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask("AlterReplicaLogDirs.results.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DeleteRecords.topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DeleteRecords.topics.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "DescribeProducers.topics.partitions.active_producers",
        in_any_order,
        "Kafka's order is that of a hash map",
    ),
    Mask("ElectLeaders.replica_election_results", own_elections, "scripts share a broker"),
    Mask("DescribeQuorum.*.last_fetch_timestamp", moment, "the time of the request"),
    Mask("DescribeQuorum.*.last_caught_up_timestamp", moment, "the time of the request"),
    Mask(
        "DescribeQuorum.topics.partitions.leader_epoch",
        any_number,
        "how often the controller was elected: Kafka needs several tries where it starts slowly",
    ),
    Mask("DescribeQuorum.*.log_end_offset", any_number, "how far the metadata log has come"),
    Mask("DescribeQuorum.*.high_watermark", any_number, "how far the metadata log has come"),
    Mask("DescribeQuorum.nodes.listeners.port", any_number, "the two brokers have ports of their own"),
    Mask("DescribeUserScramCredentials.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "DescribeUserScramCredentials.results.credential_infos",
        in_any_order,
        "Kafka's order is that of a hash map",
    ),
    Mask("AlterUserScramCredentials.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeClientQuotas.entries", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeClientQuotas.entries.entity", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeClientQuotas.entries.values", in_any_order, "Kafka's order is that of a hash map"),
    Mask("AlterClientQuotas.entries", in_any_order, "Kafka's order is that of a hash map"),
    Mask("AlterClientQuotas.entries.entity", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeConfigs.results.configs", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "ListConfigResources.config_resources",
        then(own_resources, in_any_order),
        "scripts share a broker; Kafka's order is that of hash maps",
    ),
    Mask("CreatePartitions.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DeleteTopics.responses", in_any_order, "Kafka shuffles them"),
    Mask("ListOffsets.topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("ListOffsets.topics.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "JoinGroup.members",
        members_in_any_order,
        "Kafka's order is that of a hash map over random member ids",
    ),
    Mask("DescribeGroups.groups.members", members_in_any_order, "as for JoinGroup.members"),
    Mask("ConsumerGroupDescribe.groups", in_any_order, "Kafka answers by partition of __consumer_offsets"),
    Mask(
        "ConsumerGroupDescribe.groups.members",
        members_in_any_order,
        "Kafka's order is that of a hash map over random member ids",
        "consumer_groups_migration/*",
    ),
    Mask("*.member_id", member_id, "member ids are random"),
    Mask("JoinGroup.leader", member_id, "member ids are random"),
    Mask("DescribeGroups.groups", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "ListGroups.groups",
        then(own_groups, in_any_order),
        "scripts share a broker; the order is a hash map's",
    ),
    Mask("DeleteGroups.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask("OffsetFetch.*topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("OffsetFetch.*partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask("Produce.responses", in_any_order, "Kafka's order is that of a hash map over random topic ids"),
    Mask("Produce.responses.partition_responses", in_any_order, "as for Produce.responses"),
)


def masked(api: str, value: Any, names: Names, script: str) -> Any:
    """An answer of `api`, as plain values, after all masks."""
    return _masked(value, api, script, names)


@cache
def _masks_of(script: str, path: str) -> tuple[Mask, ...]:
    """Remembered, since an answer has the same path many times, and a script the same answer."""
    return tuple(
        mask for mask in MASKS if fnmatchcase(script, mask.scripts) and fnmatchcase(path, mask.where)
    )


def _masked(value: Any, path: str, script: str, names: Names) -> Any:
    for mask in _masks_of(script, path):
        value = mask.action(value, names)
    # Lists are put in order before what is in them gets its names.
    if isinstance(value, list):
        return [_inside(element, path, script, names) for element in value]
    return _inside(value, path, script, names)


def _inside(value: Any, path: str, script: str, names: Names) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _masked(inner, f"{path}.{name}", script, names) for name, inner in value.items()}
