"""DescribeCluster and DescribeTopicPartitions."""

from __future__ import annotations

from typing import Any

from ..play import Play, script, versions


@script
def describe_cluster(play: Play) -> None:
    for version in versions("DescribeCluster"):
        for operations in (False, True):
            asked: dict[str, Any] = {"include_cluster_authorized_operations": operations}
            play.ask(f"operations {operations} (v{version})", "DescribeCluster", version, asked)
    for version in (1, 2):
        for endpoint_type in (-128, -1, 0, 1, 2, 3, 127):
            for operations in (False, True):
                asked = {"endpoint_type": endpoint_type, "include_cluster_authorized_operations": operations}
                play.ask(
                    f"endpoint type {endpoint_type}, operations {operations} (v{version})",
                    "DescribeCluster",
                    version,
                    asked,
                )
    play.ask("fenced brokers too", "DescribeCluster", 2, {"include_fenced_brokers": True})


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> dict[str, Any]:
    return {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }


@script
def describe_topic_partitions(play: Play) -> None:
    a, b, c = play.topic("a", 3), play.topic("b", 2), play.topic("c", 1)
    names = (c.name, a.name, b.name)
    for case, asked in {
        "one": describe(a.name),
        "sorted by name": describe(*names),
        "one twice": describe(a.name, a.name),
        "unknown": describe("nowhere"),
        "not allowed": describe("a/b"),
        "an empty name": describe(""),
        "known, unknown and not allowed": describe("zz", a.name, "a/b", "", "__cluster_metadata"),
        "an internal one that is not there": describe("__share_group_state"),
    }.items():
        play.ask(case, "DescribeTopicPartitions", 0, asked)
    for limit in (-(2**31), -1, 0, 1, 2, 3, 4, 5, 6, 7, 2000, 2001, 2**31 - 1):
        play.ask(
            f"limit {limit} of 6 partitions", "DescribeTopicPartitions", 0, describe(*names, limit=limit)
        )
    for partition in (-(2**31), -1, 0, 1, 2, 3, 4, 2**31 - 1):
        for limit in (1, 2, 2000):
            asked = describe(*names, limit=limit, cursor=(a.name, partition))
            play.ask(
                f"from partition {partition} of the first, limit {limit}", "DescribeTopicPartitions", 0, asked
            )
    for case, asked in {
        "from the second": describe(*names, cursor=(b.name, 1)),
        "from the last": describe(*names, cursor=(c.name, 0)),
        "from behind the last partition of the last": describe(*names, cursor=(c.name, 1)),
        "from one that was not asked for": describe(b.name, c.name, cursor=(a.name, 0)),
        "from one that was not asked for, in between": describe(a.name, c.name, cursor=(b.name, 0)),
        "from one behind all": describe(a.name, cursor=(c.name, 0)),
        "from an unknown one that was asked for": describe(a.name, "zz", cursor=("zz", 0)),
        "from an unknown one that was asked for, first": describe("aa", a.name, cursor=("aa", 0)),
        "from an empty name": describe(a.name, cursor=("", 0)),
        "unknown ones do not count": describe("0", "1", "2", a.name, limit=3),
        "an unknown one behind the limit": describe(a.name, "zz", limit=3),
        "an unknown one within the limit": describe(a.name, "zz", limit=4),
    }.items():
        play.ask(case, "DescribeTopicPartitions", 0, asked)


@script(properties="second")
def all_topic_partitions(play: Play) -> None:
    """An empty list asks for all topics. Other scripts may add some meanwhile, so this compares only its own."""
    a = play.topic("a", 3)
    play.topic("b")
    play.ask("all", "DescribeTopicPartitions", 0, describe())
    play.ask("all from one on", "DescribeTopicPartitions", 0, describe(cursor=(a.name, 2)))
    play.ask(
        "nothing was created",
        "Metadata",
        12,
        {"topics": [{"name": "nowhere"}], "allow_auto_topic_creation": False},
    )
