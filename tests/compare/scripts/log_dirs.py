"""DescribeLogDirs, AlterReplicaLogDirs, DeleteRecords and DescribeProducers."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..play import Play, script, versions
from ..requests import fetch, list_offsets, produce


def log_dirs(*topics: tuple[str, list[int]]) -> dict[str, Any]:
    return {"topics": [{"topic": name, "partitions": partitions} for name, partitions in topics]}


@script(needs=("DescribeLogDirs",))
def describe(play: Play) -> None:
    a, b = play.topic("a", 2), play.topic("b")
    play.write(a.name, batch(3), batch(2))
    play.write(a.name, batch(), partition=1)
    for version in versions("DescribeLogDirs"):
        play.ask(
            f"two topics (v{version})", "DescribeLogDirs", version, log_dirs((a.name, [0, 1]), (b.name, [0]))
        )
        play.ask(f"none (v{version})", "DescribeLogDirs", version, log_dirs())
    for case, asked in {
        "one partition": log_dirs((a.name, [1])),
        "no partitions": log_dirs((a.name, [])),
        "unknown ones": log_dirs((a.name, [0, 7, -1]), ("nowhere", [0])),
        "only unknown ones": log_dirs(("nowhere", [0])),
        "one twice": log_dirs((a.name, [0, 0]), (a.name, [0])),
    }.items():
        play.ask(case, "DescribeLogDirs", 5, asked)
    answer = play.quietly("DescribeLogDirs", 5, {"topics": None})
    ours = [topic.name for topic in answer.results[0].topics if topic.name.startswith(play.prefix)]
    play.note("all", sorted(ours))
    play.note(
        "the metadata log is not among them",
        "__cluster_metadata" in [t.name for t in answer.results[0].topics],
    )


def moved(*dirs: tuple[str, str, list[int]]) -> dict[str, Any]:
    return {
        "dirs": [
            {"path": path, "topics": [{"name": name, "partitions": partitions}]}
            for path, name, partitions in dirs
        ]
    }


@script(needs=("AlterReplicaLogDirs", "DescribeLogDirs"))
def alter_replicas(play: Play) -> None:
    a = play.topic("a", 2)
    here = play.quietly("DescribeLogDirs", 4, {"topics": None}).results[0].log_dir
    for version in versions("AlterReplicaLogDirs"):
        play.ask(f"where it is (v{version})", "AlterReplicaLogDirs", version, moved((here, a.name, [0])))
        play.ask(
            f"nowhere (v{version})", "AlterReplicaLogDirs", version, moved(("/no/such/folder", a.name, [0]))
        )
    for case, asked in {
        "no partitions": moved((here, a.name, [])),
        "no folders": moved(),
        "an unknown partition": moved((here, a.name, [0, 7])),
        "an unknown topic": moved((here, "nowhere", [0])),
        "an unknown topic, nowhere": moved(("/no/such/folder", "nowhere", [0])),
        "another way to write it": moved((here + "/", a.name, [0])),
        "an empty path": moved(("", a.name, [0])),
        "twice, the last one good": moved(("/no/such/folder", a.name, [0, 1]), (here, a.name, [0])),
        "a name too long": moved((here, "x" * 240, [0])),
        "a name just short enough": moved((here, "x" * 214, [0])),
        "a name just too long": moved((here, "x" * 215, [0])),
    }.items():
        play.ask(case, "AlterReplicaLogDirs", 2, asked)


def directories(play: Play) -> list[str]:
    return [result.log_dir for result in play.quietly("DescribeLogDirs", 4, {"topics": None}).results]


def lies_in(answer: Any, path: str) -> bool:
    """Return whether every requested partition is in this directory, and none is being moved."""
    return all(
        result.log_dir == path and not partition.is_future_key
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
    )


@script(needs=("AlterReplicaLogDirs", "DescribeLogDirs"), properties="directories")
def move_replicas(play: Play) -> None:
    a = play.topic("a", 2)
    first, second, third = directories(play)
    producer = {"producer_id": 7101, "producer_epoch": 0}
    play.quietly("AlterReplicaLogDirs", 2, moved((first, a.name, [0, 1])))
    play.ask_until(
        "both in the first",
        lambda answer: lies_in(answer, first),
        "DescribeLogDirs",
        4,
        log_dirs((a.name, [0, 1])),
    )
    play.write(a.name, *(batch(2) for _ in range(20)), batch(3, base_sequence=0, **producer))
    play.write(a.name, batch(2), partition=1)
    play.quietly(
        "DeleteRecords",
        2,
        {
            "topics": [{"name": a.name, "partitions": [{"partition_index": 0, "offset": 5}]}],
            "timeout_ms": 10_000,
        },
    )
    for version, path in zip(versions("AlterReplicaLogDirs"), (second, third), strict=True):
        play.ask(f"moved (v{version})", "AlterReplicaLogDirs", version, moved((path, a.name, [0, 1])))
        play.ask_until(
            f"all there (v{version})",
            lambda answer, path=path: lies_in(answer, path),
            "DescribeLogDirs",
            4,
            log_dirs((a.name, [0, 1])),
        )
        play.ask(
            f"where it starts and ends (v{version})",
            "ListOffsets",
            4,
            list_offsets((a.name, 0, -2), (a.name, 0, -1)),
        )
        play.ask(f"its producers (v{version})", "DescribeProducers", 0, _producers(a.name))
        play.ask(
            f"a duplicate (v{version})", "Produce", 9, produce((a, 0, batch(3, base_sequence=0, **producer)))
        )
        play.ask(f"read (v{version})", "Fetch", 12, fetch((a, 0, 39)))
    for case, asked in {
        "some of them": moved((first, a.name, [0, 7])),
        "elsewhere at once": moved((second, a.name, [0])),
        "and back": moved((third, a.name, [0])),
        "two places": moved((second, a.name, [1]), (first, a.name, [1])),
    }.items():
        play.ask(case, "AlterReplicaLogDirs", 2, asked)
    play.ask_until(
        "where the last one said",
        lambda answer: lies_in(answer, third),
        "DescribeLogDirs",
        4,
        log_dirs((a.name, [0])),
    )


@script(needs=("AlterReplicaLogDirs", "DescribeLogDirs"), properties="directories")
def place_replicas(play: Play) -> None:
    _first, second, third = directories(play)
    name = play.name("later")
    play.ask("not there yet", "AlterReplicaLogDirs", 2, moved((second, name, [0]), (third, name, [1])))
    play.topic("later", 2)
    play.ask("where it was sent", "DescribeLogDirs", 4, log_dirs((name, [0])))
    play.ask("and the other one", "DescribeLogDirs", 4, log_dirs((name, [1])))


def _producers(name: str) -> dict[str, Any]:
    return {"topics": [{"name": name, "partition_indexes": [0]}]}


def deleted(*parts: tuple[str, int, int], timeout_ms: int = 10_000) -> dict[str, Any]:
    topics: list[dict[str, Any]] = []
    for name, partition, offset in parts:
        if not topics or topics[-1]["name"] != name:
            topics.append({"name": name, "partitions": []})
        topics[-1]["partitions"].append({"partition_index": partition, "offset": offset})
    return {"topics": topics, "timeout_ms": timeout_ms}


@script(needs=("DeleteRecords",))
def delete_records(play: Play) -> None:
    a = play.topic("a", 2)
    compacted = play.topic("compacted", 1, cleanup_policy="compact")
    # The topic's records are old, so a round of the cleaner would delete them.
    both = play.topic("both", 1, cleanup_policy="compact,delete", retention_ms="-1")
    neither = play.topic("neither", 1, cleanup_policy="")
    for topic in (a, both, neither, compacted):
        play.write(topic.name, *(batch(2) for _ in range(5)))
    for version in versions("DeleteRecords"):
        play.ask(f"in v{version}", "DeleteRecords", version, deleted((a.name, 0, version + 1)))
    for case, asked in {
        "back": deleted((a.name, 0, 1)),
        "to where it starts": deleted((a.name, 0, 3)),
        "beyond the end": deleted((a.name, 0, 11)),
        "negative": deleted((a.name, 0, -2)),
        "twice, the last one counts": deleted((a.name, 0, 9), (a.name, 0, 5)),
        "twice, the last one bad": deleted((a.name, 0, 9), (a.name, 0, 11)),
        "a topic twice": deleted((a.name, 0, 6), (a.name, 1, 0), ("nowhere", 0, 0), (a.name, 1, -1)),
        "unknown": deleted((a.name, 2, 0), (a.name, -1, 0), ("nowhere", 0, 0), ("a/b", 0, 0), ("", 0, 0)),
        "no partitions": {"topics": [{"name": a.name, "partitions": []}], "timeout_ms": 10_000},
        "no topics": deleted(),
        "no time": deleted((a.name, 0, 7), timeout_ms=0),
        "compacted": deleted((compacted.name, 0, 1)),
        "compacted and deleted": deleted((both.name, 0, 1)),
        "neither": deleted((neither.name, 0, 1)),
        "all": deleted((a.name, 0, -1), (a.name, 1, -1)),
        "all again": deleted((a.name, 0, -1)),
    }.items():
        play.ask(case, "DeleteRecords", 2, asked)
    play.ask(
        "where they start",
        "ListOffsets",
        4,
        list_offsets((a.name, 0, -2), (a.name, 1, -2), (both.name, 0, -2)),
    )
    play.write(a.name, batch(2))
    play.ask("where they end", "ListOffsets", 4, list_offsets((a.name, 0, -1), (a.name, 0, -2)))


@script(needs=("DeleteRecords",), properties="second")
def restart_after_delete_records(play: Play) -> None:
    a = play.topic("a")
    play.write(a.name, *(batch(2) for _ in range(5)))
    play.ask("deleted", "DeleteRecords", 2, deleted((a.name, 0, 5)))
    play.restart()
    play.until_there(a.name)
    play.ask("where it starts", "ListOffsets", 4, list_offsets((a.name, 0, -2), (a.name, 0, -1)))


@script(needs=("DescribeProducers",))
def producers(play: Play) -> None:
    a = play.topic("a", 2)

    def described(*topics: tuple[str, list[int]]) -> dict[str, Any]:
        return {"topics": [{"name": name, "partition_indexes": partitions} for name, partitions in topics]}

    play.ask("nobody", "DescribeProducers", 0, described((a.name, [0, 1])))
    play.write(a.name, batch(3, producer_id=7001, producer_epoch=2, base_sequence=0))
    play.write(a.name, batch(2, producer_id=7001, producer_epoch=2, base_sequence=3))
    play.write(a.name, batch(1, producer_id=7002, producer_epoch=0, base_sequence=5), batch(1))
    for case, asked in {
        "two of them": described((a.name, [0, 1])),
        "unknown": described((a.name, [7, -1]), ("nowhere", [0, 1]), ("a/b", [0]), ("", [0])),
        "twice": described((a.name, [0, 0]), (a.name, [0])),
        "no partitions": described((a.name, [])),
        "no topics": described(),
    }.items():
        play.ask(case, "DescribeProducers", 0, asked)
