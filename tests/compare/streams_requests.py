"""Requests of streams groups (KIP-1071) that scripts send often: topologies, and members with their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .group_requests import LONG_MS, Fields
from .play import Play
from .scene import Topic

MISSING_INTERNAL_TOPICS = 3

Tasks = Mapping[str, Sequence[int]]
"""Partitions by subtopology."""


def topic_info(name: str, partitions: int = 0, replication_factor: int = 0, **configs: str) -> Fields:
    """An internal topic. A config's dots are underscores here."""
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": replication_factor,
        "topic_configs": [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def subtopology(
    subtopology_id: str,
    *sources: str,
    changelogs: Sequence[Fields] = (),
    sinks: Sequence[str] = (),
    repartitions: Sequence[Fields] = (),
    copartitioned: Sequence[tuple[Sequence[int], Sequence[int]]] = (),
    regex: Sequence[str] = (),
) -> Fields:
    """`copartitioned`: indexes of source and of repartition topics, for each copartition group."""
    return {
        "subtopology_id": subtopology_id,
        "source_topics": list(sources),
        "source_topic_regex": list(regex),
        "state_changelog_topics": list(changelogs),
        "repartition_sink_topics": list(sinks),
        "repartition_source_topics": list(repartitions),
        "copartition_groups": [
            {"source_topics": list(some), "source_topic_regex": [], "repartition_source_topics": list(others)}
            for some, others in copartitioned
        ],
    }


def topology(*subtopologies: Fields, epoch: int = 0) -> Fields:
    return {"epoch": epoch, "subtopologies": list(subtopologies)}


def tasks(of: Tasks | None) -> list[Fields] | None:
    if of is None:
        return None
    return [{"subtopology_id": each, "partitions": list(partitions)} for each, partitions in of.items()]


def task_offsets(*told: Mapping[str, Mapping[int, int]]) -> list[Fields]:
    """Offsets by subtopology and partition, one after the other."""
    return [
        {"subtopology_id": subtopology_id, "partition": partition, "offset": offset}
        for each in told
        for subtopology_id, sums in each.items()
        for partition, offset in sums.items()
    ]


def streams_beat(
    group: str,
    member: str,
    epoch: int,
    *,
    active: Tasks | None = None,
    standby: Tasks | None = None,
    **more: Any,
) -> Fields:
    """Make a heartbeat that says only what is given. If one kind of tasks is given, the other kinds are empty."""
    says = active is not None or standby is not None
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "endpoint_information_epoch": 0,
        "active_tasks": tasks(active or {}) if says else None,
        "standby_tasks": tasks(standby or {}) if says else None,
        "warmup_tasks": [] if says else None,
    } | more


def streams_join(group: str, member: str, of: Fields | None, process: str = "p", **more: Any) -> Fields:
    """Make the heartbeat with which a member joins, with its topology and a process of that name."""
    said = {"topology": of, "process_id": process, "client_tags": [], "rebalance_timeout_ms": LONG_MS}
    return streams_beat(group, member, 0, active={}, **said | more)


def tasks_in(answer: Any) -> tuple[dict[str, list[int]], dict[str, list[int]]] | None:
    """Return the active and standby tasks that an answer assigns, or None if it has none."""
    if answer.active_tasks is None:
        return None
    active = {each.subtopology_id: list(each.partitions) for each in answer.active_tasks}
    standby = {each.subtopology_id: list(each.partitions) for each in answer.standby_tasks}
    return active, standby


def describe_streams(play: Play, case: str, *groups: str, version: int = 0) -> None:
    """Describe the groups, with the topology's description if the version has one."""
    fields: Fields = {"group_ids": list(groups)}
    if version:
        fields["include_topology_description"] = True
    play.ask(case, "StreamsGroupDescribe", version, fields)


def until_internal_topics_are_there(play: Play, fields: Fields) -> Any:
    """Repeat this heartbeat quietly until no internal topic is missing: in Kafka a moment after they were requested.
    Return that answer."""
    found: list[Any] = []

    def there() -> bool:
        answer = play.quietly("StreamsGroupHeartbeat", 0, fields)
        found[:] = [answer]
        return all(each.status_code != MISSING_INTERNAL_TOPICS for each in answer.status)

    play.until("the internal topics are there", there)
    return found[0]


def set_for_group(play: Play, group: str, **settings: str) -> None:
    """Set a group's settings. Their dots are underscores, and `streams.` is put before them. In Kafka the coordinator
    learns of them a moment after the answer."""
    play.quietly(
        "IncrementalAlterConfigs",
        1,
        {
            "resources": [
                {
                    "resource_type": 32,
                    "resource_name": group,
                    "configs": [
                        {
                            "name": f"streams.{key.replace('_', '.')}",
                            "config_operation": 0,
                            "value": value,
                        }
                        for key, value in settings.items()
                    ],
                }
            ],
            "validate_only": False,
        },
    )
    asked = {"resources": [{"resource_type": 32, "resource_name": group, "configuration_keys": None}]}

    def in_force() -> bool:
        (found,) = play.quietly("DescribeConfigs", 4, asked).results
        values = {each.name: each.value for each in found.configs}
        return all(values[f"streams.{key.replace('_', '.')}"] == value for key, value in settings.items())

    play.until(f"the settings of {group} are in force", in_force)
    play.tick()


def of_two(play: Play, topic: Topic, suffix: str = "") -> Fields:
    """Return a topology of two subtopologies: one repartitions, the other counts what it wrote."""
    through, store = play.name(f"through{suffix}"), play.name(f"store{suffix}")
    return topology(
        subtopology("0", topic.name, sinks=[through]),
        subtopology("1", changelogs=[topic_info(store)], repartitions=[topic_info(through)]),
    )
