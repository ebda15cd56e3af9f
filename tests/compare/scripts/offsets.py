"""ListOffsets."""

from __future__ import annotations

from typing import Any

from ..batches import GZIP, T0, ZSTD, batch, record
from ..play import Play, script, versions
from ..requests import list_offsets

SPECIAL = (-1, -2, -3, -4, -5, -6, -7, -100, -(2**63))


def timed(*deltas: int, **how: int) -> bytes:
    return batch([record(timestamp_delta=delta, offset_delta=i) for i, delta in enumerate(deltas)], **how)


@script
def special_timestamps_in_every_version(play: Play) -> None:
    topic = play.topic("a")
    empty = play.topic("empty")
    play.write(topic.name, timed(0, 5, 3), timed(9, 9), timed(1))
    for version in versions("ListOffsets"):
        for timestamp in SPECIAL:
            for isolation in (0, 1):
                play.ask(
                    f"{timestamp}, isolation level {isolation} (v{version})",
                    "ListOffsets",
                    version,
                    list_offsets(
                        (topic.name, 0, timestamp), (empty.name, 0, timestamp), isolation_level=isolation
                    ),
                )
        for delta in (-1, 0, 9, 10):
            play.ask(
                f"T+{delta} (v{version})", "ListOffsets", version, list_offsets((topic.name, 0, T0 + delta))
            )


@script
def first_not_older(play: Play) -> None:
    """ListOffsets finds the first record, in log order, that isn't older."""
    topic = play.topic("a")
    play.write(
        topic.name,
        timed(0, 10, 5),
        timed(7, 20, 20),
        timed(3),
        timed(30, 15),
        timed(25, codec=GZIP),
        timed(40, 41, 35, codec=ZSTD),
    )
    for delta in (-5, 0, 1, 3, 4, 5, 6, 7, 8, 10, 11, 15, 16, 20, 21, 25, 26, 30, 31, 35, 36, 40, 41, 42):
        for isolation in (0, 1):
            asked = list_offsets((topic.name, 0, T0 + delta), isolation_level=isolation)
            play.ask(f"T+{delta}, isolation level {isolation}", "ListOffsets", 7, asked)
    for timestamp in (0, 1, 2**63 - 1):
        play.ask(f"timestamp {timestamp}", "ListOffsets", 7, list_offsets((topic.name, 0, timestamp)))
    play.ask("the maximal timestamp", "ListOffsets", 7, list_offsets((topic.name, 0, -3)))


@script
def by_time_in_a_log_with_an_index(play: Play) -> None:
    topic = play.topic("a", index_interval_bytes="500")
    for i in range(40):
        play.write(
            topic.name,
            batch([record(b"x" * 200, timestamp_delta=i * 10 + j, offset_delta=j) for j in range(3)]),
        )
    for delta in (0, 1, 2, 3, 9, 10, 55, 100, 101, 102, 103, 199, 200, 305, 390, 391, 392, 393):
        play.ask(f"T+{delta}", "ListOffsets", 7, list_offsets((topic.name, 0, T0 + delta)))


@script
def by_time_over_several_segments(play: Play) -> None:
    topic = play.topic("a", internal_segment_bytes="300")
    for i, deltas in enumerate(((0, 100), (20, 30), (10, 15), (200, 210), (150, 160), (220,), (220,))):
        play.write(topic.name, timed(*deltas, base_timestamp=T0), *([] if i % 2 else [timed(deltas[0])]))
    for delta in (0, 1, 15, 16, 30, 31, 100, 101, 150, 160, 161, 200, 210, 211, 220, 221):
        play.ask(f"T+{delta}", "ListOffsets", 7, list_offsets((topic.name, 0, T0 + delta)))
    play.ask("the maximal timestamp", "ListOffsets", 7, list_offsets((topic.name, 0, -3)))


@script
def times_of_every_kind(play: Play) -> None:
    """Records without a timestamp, and topics with LogAppendTime."""
    without = play.topic("without")
    play.write(without.name, batch(2, base_timestamp=-1), batch(1, base_timestamp=-1, codec=GZIP))
    mixed = play.topic("mixed")
    play.write(mixed.name, batch(2, base_timestamp=-1), timed(5), batch(1, base_timestamp=0))
    appended = play.topic("appended", message_timestamp_type="LogAppendTime")
    play.write(appended.name, batch(3))
    play.tick()
    play.write(appended.name, batch(2))
    for topic in (without, mixed, appended):
        kind = topic.name.rsplit("-", 1)[-1]
        for timestamp in (-1, -2, -3, 0, 1, T0, T0 + 5, T0 + 6, play.now_ms - 60_000, play.now_ms + 600_000):
            shown = (
                timestamp
                if timestamp < T0 + 100
                else "the past minute"
                if timestamp < play.now_ms
                else "the future"
            )
            play.ask(f"{shown} of {kind}", "ListOffsets", 7, list_offsets((topic.name, 0, timestamp)))


@script
def equal_maximal_timestamps(play: Play) -> None:
    topic = play.topic("a", 3)
    play.write(topic.name, timed(1, 7, 7), timed(7), timed(3))
    play.write(topic.name, timed(3), timed(1, 7, 2, codec=GZIP), timed(7), partition=1)
    for partition in range(3):
        for version in (6, 7, 8, 11):
            play.ask(
                f"the maximum of {partition} (v{version})",
                "ListOffsets",
                version,
                list_offsets((topic.name, partition, -3)),
            )


@script
def wrong_requests(play: Play) -> None:
    topic = play.topic("a", 2)
    play.write(topic.name, batch(3))
    for version in (1, 4, 7, 11):
        for case, asked in {
            "an unknown topic": list_offsets(("nowhere", 0, -1)),
            "an unknown partition": list_offsets((topic.name, 9, -1)),
            "a negative partition": list_offsets((topic.name, -1, -1)),
            "an empty name": list_offsets(("", 0, -1)),
            "a name that is not allowed": list_offsets(("a/b", 0, -1)),
            "an unknown topic and an unknown timestamp": list_offsets(("nowhere", 0, -9)),
            "no topics": list_offsets(),
            "a topic without partitions": list_offsets()
            | {"topics": [{"name": topic.name, "partitions": []}]},
            "good and bad ones": list_offsets(
                (topic.name, 0, -1), ("nowhere", 0, -1), (topic.name, 5, -2), (topic.name, 1, -1)
            ),
            "a topic twice": _entries(topic.name, [(0, -1)], [(1, -1)]),
            "a partition twice": _entries(topic.name, [(0, -1), (0, -2)]),
            "a partition twice in two entries": _entries(topic.name, [(0, -1)], [(0, -2)]),
            "an unknown partition twice": _entries("nowhere", [(0, -1), (0, -2)]),
            "a partition three times, and another": _entries(
                topic.name, [(0, -1), (0, -2)], [(0, -1), (1, -1)]
            ),
        }.items():
            play.ask(f"{case} (v{version})", "ListOffsets", version, asked)
    for version in (4, 6, 11):
        for epoch in (-2, -1, 0, 1, 2**31 - 1):
            asked = list_offsets((topic.name, 0, -1), leader_epoch=epoch)
            play.ask(f"leader epoch {epoch} (v{version})", "ListOffsets", version, asked)
            asked = list_offsets((topic.name, 0, T0), leader_epoch=epoch)
            play.ask(f"leader epoch {epoch}, by time (v{version})", "ListOffsets", version, asked)
    for version in (2, 7):
        for level in (-1, 0, 1, 2, 127):
            asked = list_offsets((topic.name, 0, -1), isolation_level=level)
            play.ask(f"isolation level {level} (v{version})", "ListOffsets", version, asked)
    for version in (1, 7, 11):
        for replica in (-3, -2, -1, 0, 1, 5):
            for timestamp in (-1, -2, -3, T0):
                asked = list_offsets((topic.name, 0, timestamp), replica_id=replica)
                play.ask(
                    f"replica {replica}, timestamp {timestamp} (v{version})", "ListOffsets", version, asked
                )
    for timeout_ms in (-1, 0, 1):
        asked = list_offsets((topic.name, 0, -1)) | {"timeout_ms": timeout_ms}
        play.ask(f"a timeout of {timeout_ms} ms", "ListOffsets", 11, asked)


def _entries(name: str, *entries: list[tuple[int, int]]) -> dict[str, Any]:
    """Return one entry of the topic for each list of (partition, timestamp)."""
    return list_offsets() | {
        "topics": [
            {
                "name": name,
                "partitions": [{"partition_index": i, "timestamp": timestamp} for i, timestamp in entry],
            }
            for entry in entries
        ]
    }


@script(needs=("DeleteRecords",))
def a_log_whose_start_was_moved(play: Play) -> None:
    topic = play.topic("a", 2)
    play.write(topic.name, timed(0, 50, 10), timed(20, 30))
    play.write(topic.name, timed(0, 50, 10), partition=1)
    partitions = [{"partition_index": 0, "offset": 2}, {"partition_index": 1, "offset": -1}]
    play.quietly(
        "DeleteRecords", 2, {"topics": [{"name": topic.name, "partitions": partitions}], "timeout_ms": 10_000}
    )
    for partition in (0, 1):
        for timestamp in (-1, -2, -3, -4, T0, T0 + 10, T0 + 30, T0 + 40):
            asked = list_offsets((topic.name, partition, timestamp))
            play.ask(f"{timestamp} of {partition}", "ListOffsets", 11, asked)
    for epoch in (0, 1):
        partitions = [{"partition": i, "leader_epoch": epoch} for i in (0, 1)]
        asked = {"topics": [{"topic": topic.name, "partitions": partitions}]}
        play.ask(f"the end of epoch {epoch}", "OffsetForLeaderEpoch", 4, asked)
