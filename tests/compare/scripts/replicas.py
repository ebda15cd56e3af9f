"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments."""

from __future__ import annotations

from typing import Any

from ..play import Play, script, versions

NEEDS = ("ElectLeaders", "AlterPartitionReassignments", "ListPartitionReassignments")


def election(*topics: tuple[str, list[int]], kind: int = 0, timeout_ms: int = 10_000) -> dict[str, Any]:
    return {
        "election_type": kind,
        "topic_partitions": [{"topic": name, "partitions": partitions} for name, partitions in topics],
        "timeout_ms": timeout_ms,
    }


@script(needs=NEEDS)
def elect(play: Play) -> None:
    a, b = play.topic("a", 2), play.topic("b")
    for version in versions("ElectLeaders"):
        play.ask(
            f"preferred (v{version})", "ElectLeaders", version, election((a.name, [0, 1]), (b.name, [0]))
        )
        play.ask(
            f"unknown (v{version})", "ElectLeaders", version, election((a.name, [7, -1]), ("nowhere", [0]))
        )
        play.ask(f"none (v{version})", "ElectLeaders", version, election())
        play.ask(
            f"all (v{version})", "ElectLeaders", version, {"topic_partitions": None, "timeout_ms": 10_000}
        )
    for version in (1, 2):
        for kind in (-128, -1, 1, 2, 127):
            asked = election((a.name, [0]), ("nowhere", [0]), kind=kind)
            play.ask(f"type {kind} (v{version})", "ElectLeaders", version, asked)
    for case, asked in {
        "one twice": election((a.name, [0, 0])),
        "a topic twice": election((a.name, [0]), (b.name, [0]), (a.name, [1, 7])),
        "a topic twice, no time": election((a.name, [0]), (a.name, [1]), timeout_ms=0),
        "no partitions": election((a.name, [])),
        "none, of an unknown type": election(kind=2),
        "all, of an unknown type": {"topic_partitions": None, "election_type": 2, "timeout_ms": 10_000},
        "no time": election((a.name, [0]), timeout_ms=0),
        "none, no time": election(timeout_ms=0),
        "negative time": election((a.name, [0]), timeout_ms=-1),
        "an unknown type and no time": election((a.name, [0]), kind=2, timeout_ms=0),
    }.items():
        play.ask(case, "ElectLeaders", 2, asked)
    for version in (0, 1):
        for timeout_ms in (0, -1):
            asked = election((a.name, [0]), timeout_ms=timeout_ms)
            play.ask(f"a time of {timeout_ms} (v{version})", "ElectLeaders", version, asked)


def reassignment(
    *parts: tuple[str, int, list[int] | None], timeout_ms: int = 10_000, **more: Any
) -> dict[str, Any]:
    topics: list[dict[str, Any]] = []
    for name, partition, replicas in parts:
        if not topics or topics[-1]["name"] != name:
            topics.append({"name": name, "partitions": []})
        topics[-1]["partitions"].append({"partition_index": partition, "replicas": replicas})
    return {"timeout_ms": timeout_ms, "topics": topics} | more


@script(needs=NEEDS)
def reassign(play: Play) -> None:
    a, b = play.topic("a", 2), play.topic("b")
    name = a.name
    for version in versions("AlterPartitionReassignments"):
        asked = reassignment((name, 0, [1]), (name, 1, None), (b.name, 0, [1, 2]), ("nowhere", 0, [1]))
        play.ask(f"several (v{version})", "AlterPartitionReassignments", version, asked)
        play.ask(f"none (v{version})", "AlterPartitionReassignments", version, reassignment())
    for case, asked in {
        "the same": reassignment((name, 0, [1])),
        "cancelled": reassignment((name, 0, None)),
        "no replicas": reassignment((name, 0, [])),
        "an unknown broker": reassignment((name, 0, [7])),
        "a negative broker": reassignment((name, 0, [-1])),
        "the same twice": reassignment((name, 0, [1, 1])),
        "an unknown partition": reassignment((name, 9, [1]), (name, -1, None)),
        "an unknown partition and broker": reassignment((name, 9, [7])),
        "a partition twice": reassignment((name, 0, [1]), (name, 0, [7])),
        "no partitions": {"timeout_ms": 10_000, "topics": [{"name": name, "partitions": []}]},
        "the number of replicas kept": reassignment((name, 0, [1]), allow_replication_factor_change=False),
        "the number of replicas not kept": reassignment(
            (name, 0, [1, 7]), allow_replication_factor_change=False
        ),
        "no time": reassignment((name, 0, [1]), timeout_ms=0),
        "none, no time": reassignment(timeout_ms=0),
        "a topic twice": reassignment((name, 0, [1]), (b.name, 0, [1]), (name, 1, None)),
        **{
            f"{case}, the number of replicas kept": reassignment(
                *parts, timeout_ms=timeout_ms, allow_replication_factor_change=False
            )
            for case, parts, timeout_ms in (
                ("none", (), 10_000),
                ("no time", ((name, 0, [1]),), 0),
                ("negative time", ((name, 0, [1]),), -1),
                ("cancelled", ((name, 0, None),), 10_000),
            )
        },
    }.items():
        play.ask(case, "AlterPartitionReassignments", 1, asked)


@script(needs=NEEDS)
def list_reassignments(play: Play) -> None:
    a = play.topic("a", 2)

    def listed(*topics: tuple[str, list[int]], timeout_ms: int = 10_000) -> dict[str, Any]:
        asked = [{"name": name, "partition_indexes": partitions} for name, partitions in topics]
        return {"timeout_ms": timeout_ms, "topics": asked}

    for case, asked in {
        "all": {"timeout_ms": 10_000, "topics": None},
        "none": listed(),
        "one": listed((a.name, [0, 1])),
        "unknown": listed((a.name, [7, -1]), ("nowhere", [0]), ("", [0])),
        "no time": listed((a.name, [0]), timeout_ms=0),
        "no partitions": listed((a.name, [])),
    }.items():
        play.ask(case, "ListPartitionReassignments", 0, asked)
