"""Cases that aren't equal: barnabas answers differently on purpose, or Kafka itself goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """A case that barnabas answers differently from Kafka on purpose. `ours` is its answer, after the masks."""

    script: str
    case: str
    ours: dict[str, Any]
    reason: str


def _refused_batch(topic: str) -> dict[str, Any]:
    """Return Produce's answer to a batch of one topic that is INVALID_RECORD as a whole."""
    partition = {
        "index": 0,
        "error_code": "87 INVALID_RECORD",
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": 0,
        "record_errors": [],
        "error_message": None,
    }
    responses = [{"name": topic, "partition_responses": [partition]}]
    return {"answer": {"responses": responses, "throttle_time_ms": 0}}


def _offset_at(topic: str, minutes: int, offset: int) -> dict[str, Any]:
    """Return ListOffsets' answer for one partition: the record at this many minutes after the script's start."""
    partition = {
        "partition_index": 0,
        "error_code": "0 NONE",
        "timestamp": f"<start {minutes:+} min>",
        "offset": offset,
        "leader_epoch": 0,
    }
    return {"answer": {"throttle_time_ms": 0, "topics": [{"name": topic, "partitions": [partition]}]}}


_STREAMS_JOIN = {
    "throttle_time_ms": 0,
    "error_code": "0 NONE",
    "error_message": None,
    "member_id": "one",
    "member_epoch": 2,
    "heartbeat_interval_ms": 5_000,
    "acceptable_recovery_lag_legacy": 0,
    "task_offset_interval_ms": 60_000,
    "status": [
        {
            "status_code": 1,
            "status_detail": "Source topics streams-groups-topologies-an-endpoint-without-topics-nowhere are missing.",
        }
    ],
    "active_tasks": [],
    "standby_tasks": [],
    "warmup_tasks": [],
    "endpoint_information_epoch": 0,
    "partitions_by_user_endpoint": [],
}
_DELAYED = {
    "status_code": 5,
    "status_detail": "Assignment delayed due to the configured assignment interval.",
}


def _told_again(
    script: str, case: str, epoch: int, *partitions: int, member: str = "one", delayed: bool = False
) -> Difference:
    """A member reports that it owns less than it has. It has these numbers of partitions of each subtopology."""
    tasks = [
        {"subtopology_id": f"{number}", "partitions": [*range(count)]}
        for number, count in enumerate(partitions)
    ]
    answer = _STREAMS_JOIN | {"member_id": member, "member_epoch": epoch, "active_tasks": tasks}
    answer |= {"status": [_DELAYED] if delayed else [], "partitions_by_user_endpoint": None}
    why = "an answer may have been lost; Kafka tells a member its tasks only as they change, and it stays without"
    return Difference(script, case, {"answer": answer}, why)


_OF_STATES = partial(_told_again, "streams_groups_states/heartbeats")

DIFFERENCES = (
    _OF_STATES("assigning, it has a part", 2, 2, delayed=True),
    _OF_STATES("assigning, it has nothing", 2, 2, delayed=True),
    _OF_STATES("assigning amid reconciliation, it has nothing", 3, 1, delayed=True),
    _OF_STATES("reconciling, it has nothing", 3, 1),
    _OF_STATES("stable, it has nothing", 3, 1),
    _OF_STATES("stable, it is one epoch behind, with nothing", 3, 1),
    _OF_STATES("joined, it has nothing", 4, 1),
    _OF_STATES("joined, it is one epoch behind, with nothing", 4, 1),
    Difference(
        "streams_groups_topologies/an_endpoint_without_topics",
        "one joins",
        {"answer": _STREAMS_JOIN},
        "Kafka looks for the partitions of who has an endpoint in a topology that couldn't be configured: it answers "
        "UNKNOWN_SERVER_ERROR, and begins no group",
    ),
    *(
        Difference(
            "compaction/times_that_are_looked_for",
            f"the first of {minutes} minutes ago",
            _offset_at("compaction-times-that-are-looked-for-a", found, offset),
            "an empty batch with a late timestamp, or a segment of which nothing is left, hides from Kafka what comes "
            "behind it: it answers that there is none",
        )
        for minutes, found, offset in ((99, -85, 7), (50, -5, 12))
    ),
    *(
        Difference(
            "produce_records/record_lengths_once_decompressed",
            f"a {name} record length",
            _refused_batch(f"produce-records-record-lengths-once-decompressed-{name}"),
            "Kafka doesn't look at these lengths, and its consumers fail on what it stored",
        )
        for name in ("large", "small", "negative", "greatest")
    ),
    *(
        Difference(
            "produce_records/keys_of_compacted_topics",
            f"no key, then a record that does not parse ({kind}, codec 1)",
            _refused_batch(f"produce-records-keys-of-compacted-topics-{name}"),
            "as for lengths: the batch is refused before its single records are looked at",
        )
        for kind, name in (("compact", "compacted"), ("delete,compact", "both"))
    ),
    Difference(
        "leader_epochs/epochs_after_restarts",
        "the one before it again, from a producer silent for a minute, after a kill",
        {
            "answer": {
                "responses": [
                    {
                        "name": "leader-epochs-epochs-after-restarts-a",
                        "partition_responses": [
                            {
                                "index": 1,
                                "error_code": "0 NONE",
                                "base_offset": 0,
                                "log_append_time_ms": "<start +0 min>",
                                "log_start_offset": 0,
                                "record_errors": [],
                                "error_message": None,
                            }
                        ],
                    }
                ],
                "throttle_time_ms": 0,
            }
        },
        "recovery reads every batch again, so the last five of a producer are known as before the crash; Kafka "
        "keeps only the last one, and refuses what else was in flight",
    ),
    Difference(
        "produce_shape/null_records",
        "null records",
        {
            "answer": {
                "responses": [
                    {
                        "name": "produce-shape-null-records-a",
                        "partition_responses": [
                            {
                                "index": 0,
                                "error_code": "87 INVALID_RECORD",
                                "base_offset": -1,
                                "log_append_time_ms": -1,
                                "log_start_offset": -1,
                                "record_errors": [],
                                "error_message": None,
                            }
                        ],
                    }
                ],
                "throttle_time_ms": 0,
            }
        },
        "Kafka's handler fails on them and the client waits forever; an answer is of more use",
    ),
    Difference(
        "altered_configs/two_replacements",
        "a resource twice",
        {
            "answer": {
                "throttle_time_ms": 0,
                "responses": [
                    {
                        "error_code": error,
                        "error_message": text,
                        "resource_type": 2,
                        "resource_name": f"altered-configs-two-replacements-{name}",
                    }
                    for name, error, text in (
                        ("a", "42 INVALID_REQUEST", "<text>"),
                        ("b", "0 NONE", None),
                        ("a", "42 INVALID_REQUEST", "<text>"),
                    )
                ],
            }
        },
        "Kafka's handler fails and never answers; IncrementalAlterConfigs says what is wrong, and so do we",
    ),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """Cases in which Kafka itself goes wrong in a way that nobody wants to copy. They aren't compared."""

    script: str
    cases: str
    reason: str


FAULTS = (
    *(
        Fault(
            script,
            cases,
            "Kafka says of a topic that it creates that it is unknown; kafka-go then counts its partitions when "
            "they are there already, and waits for a change that never comes. Here its leader isn't there yet",
        )
        for script, cases in (
            ("metadata/creation", "an unknown topic (v*)"),
            ("metadata/creation", "two at once, and a bad name"),
            (
                "metadata/creation",
                "both are there",
            ),  # these have been seen before: their ids are counted further
            ("metadata/internal_topics", "__* created"),
        )
    ),
    Fault(
        "cluster/describe_topic_partitions",
        "from partition 2147483647*",
        "Kafka's partition index overflows: it answers with a cursor below zero",
    ),
    Fault(
        "fetch_sessions/a_zero_id_in_a_session",
        "*",
        "from a zero topic id on, every request of the session fails in Kafka",
    ),
    *(
        Fault(
            "transactions_levels/an_end_of_version_2_at_level_0",
            cases,
            "Kafka holds the end that it refused for pending, until the coordinator is loaded again: nothing of that "
            "transactional id goes on, not even its timeout",
        )
        for cases in ("then *: abort, *", "then *: commit, ongoing", "what all replicas have")
    ),
    Fault(
        "produce_records/record_lengths_once_decompressed",
        "what all replicas have",
        "barnabas refuses what Kafka takes and can't read: see its other cases",
    ),
    Fault(
        "replication_forwarding/metadata_log",
        "a snapshot, none: *",
        "Kafka fails on writing the answer, which has no records: it is UNKNOWN_SERVER_ERROR whatever was wrong",
    ),
    Fault(
        "connections/lengths_that_lie",
        "a surrogate in UTF-8",
        "Java makes one replacement character of it, Python three",
    ),
)


def compared(script: str, transcript: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a transcript without the cases that are Kafka's faults."""
    faults = [fault.cases for fault in FAULTS if fault.script == script]
    return [entry for entry in transcript if not any(fnmatchcase(entry["case"], cases) for cases in faults)]


def expected_of_barnabas(script: str, theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return Kafka's transcript, with the cases replaced that barnabas answers differently on purpose."""
    ours = {difference.case: difference.ours for difference in DIFFERENCES if difference.script == script}
    kept = ("case", "request")
    return [
        {name: entry[name] for name in kept if name in entry} | ours[entry["case"]]
        if entry["case"] in ours
        else entry
        for entry in theirs
    ]
