"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any

from ..batches import GZIP, T0, ZSTD, batch, record
from ..play import Play, script, versions
from ..requests import list_offsets, metadata

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
                    list_offsets((topic.name, 0, timestamp), (empty.name, 0, timestamp), isolation_level=isolation),
                )
        for delta in (-1, 0, 9, 10):
            play.ask(f"T+{delta} (v{version})", "ListOffsets", version, list_offsets((topic.name, 0, T0 + delta)))


@script
def by_time(play: Play) -> None:
    """The first record in log order that is not older."""
    topic = play.topic("a")
    play.write(topic.name, timed(0, 10, 5), timed(7, 20, 20), timed(3), timed(30, 15), timed(25, codec=GZIP), timed(40, 41, 35, codec=ZSTD))
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
        play.write(topic.name, batch([record(b"x" * 200, timestamp_delta=i * 10 + j, offset_delta=j) for j in range(3)]))
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
    """Records without a time, and topics whose time is that of the append."""
    without = play.topic("without")
    play.write(without.name, batch(2, base_timestamp=-1), batch(1, base_timestamp=-1, codec=GZIP))
    mixed = play.topic("mixed")
    play.write(mixed.name, batch(2, base_timestamp=-1), timed(5), batch(1, base_timestamp=0))
    appended = play.topic("appended", message_timestamp_type="LogAppendTime")
    play.write(appended.name, batch(3), batch(2))
    for topic in (without, mixed, appended):
        kind = topic.name.rsplit("-", 1)[-1]
        for timestamp in (-1, -2, -3, 0, 1, T0, T0 + 5, T0 + 6, play.now_ms - 60_000, play.now_ms + 600_000):
            shown = timestamp if timestamp < T0 + 100 else "the past minute" if timestamp < play.now_ms else "the future"
            play.ask(f"{shown} of {kind}", "ListOffsets", 7, list_offsets((topic.name, 0, timestamp)))


@script
def equal_maximal_timestamps(play: Play) -> None:
    topic = play.topic("a", 3)
    play.write(topic.name, timed(1, 7, 7), timed(7), timed(3))
    play.write(topic.name, timed(3), timed(1, 7, 2, codec=GZIP), timed(7), partition=1)
    for partition in range(3):
        for version in (6, 7, 8, 11):
            play.ask(f"the maximum of {partition} (v{version})", "ListOffsets", version, list_offsets((topic.name, partition, -3)))


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
            "a topic without partitions": list_offsets() | {"topics": [{"name": topic.name, "partitions": []}]},
            "good and bad ones": list_offsets((topic.name, 0, -1), ("nowhere", 0, -1), (topic.name, 5, -2), (topic.name, 1, -1)),
            "a partition twice": list_offsets((topic.name, 0, -1), (topic.name, 0, -2)),
            "a partition twice in one entry": _twice(topic.name, -1, -2),
            "an unknown partition twice": _twice("nowhere", -1, -2),
            "a partition three times, and another": {
                "replica_id": -1,
                "topics": _twice(topic.name, -1, -2)["topics"] + list_offsets((topic.name, 0, -1), (topic.name, 1, -1))["topics"],
            },
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
                play.ask(f"replica {replica}, timestamp {timestamp} (v{version})", "ListOffsets", version, asked)
    for timeout_ms in (-1, 0, 1):
        asked = list_offsets((topic.name, 0, -1)) | {"timeout_ms": timeout_ms}
        play.ask(f"a timeout of {timeout_ms} ms", "ListOffsets", 11, asked)


def _twice(name: str, *timestamps: int) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "timestamp": timestamp} for timestamp in timestamps]
    return {"replica_id": -1, "topics": [{"name": name, "partitions": partitions}]}


@script(needs=("DeleteRecords",))
def a_log_whose_start_was_moved(play: Play) -> None:
    topic = play.topic("a", 2)
    play.write(topic.name, timed(0, 50, 10), timed(20, 30))
    play.write(topic.name, timed(0, 50, 10), partition=1)
    partitions = [{"partition_index": 0, "offset": 2}, {"partition_index": 1, "offset": -1}]
    play.quietly("DeleteRecords", 2, {"topics": [{"name": topic.name, "partitions": partitions}], "timeout_ms": 10_000})
    for partition in (0, 1):
        for timestamp in (-1, -2, -3, -4, T0, T0 + 10, T0 + 30, T0 + 40):
            asked = list_offsets((topic.name, partition, timestamp))
            play.ask(f"{timestamp} of {partition}", "ListOffsets", 11, asked)
    for epoch in (0, 1):
        play.ask(f"epoch {epoch} of 0", "OffsetForLeaderEpoch", 4, epochs((topic.name, 0, epoch)))
        play.ask(f"epoch {epoch} of 1", "OffsetForLeaderEpoch", 4, epochs((topic.name, 1, epoch)))


def epochs(*parts: tuple[str, int, int], current: int = -1, replica_id: int = -1) -> dict[str, Any]:
    return {
        "replica_id": replica_id,
        "topics": [
            {
                "topic": name,
                "partitions": [{"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}],
            }
            for name, partition, epoch in parts
        ],
    }


@script
def ends_of_leader_epochs(play: Play) -> None:
    topic = play.topic("a", 2)
    play.write(topic.name, batch(3))
    for version in versions("OffsetForLeaderEpoch"):
        for epoch in (-(2**31), -2, -1, 0, 1, 2**31 - 1):
            asked = epochs((topic.name, 0, epoch), (topic.name, 1, epoch))
            play.ask(f"epoch {epoch} (v{version})", "OffsetForLeaderEpoch", version, asked)
        for current in (-2, -1, 0, 1):
            asked = epochs((topic.name, 0, 0), current=current)
            play.ask(f"current epoch {current} (v{version})", "OffsetForLeaderEpoch", version, asked)
        for case, asked in {
            "an unknown topic": epochs(("nowhere", 0, 0)),
            "an unknown partition": epochs((topic.name, 9, 0)),
            "a negative partition": epochs((topic.name, -1, 0)),
            "an empty name": epochs(("", 0, 0)),
            "no topics": epochs(),
            "a topic without partitions": {"replica_id": -1, "topics": [{"topic": topic.name, "partitions": []}]},
            "good and bad ones": epochs((topic.name, 1, 0), ("nowhere", 0, 0), (topic.name, 9, 0)),
            "an unknown partition and a current epoch": epochs((topic.name, 9, 0), current=5),
            "the consumer's replica id": epochs((topic.name, 0, 0), replica_id=-1),
            "the debugger's replica id": epochs((topic.name, 0, 0), replica_id=-2),
            "another broker's replica id": epochs((topic.name, 0, 0), replica_id=5),
        }.items():
            play.ask(f"{case} (v{version})", "OffsetForLeaderEpoch", version, asked)
    asked = epochs((topic.name, 0, 0)) | {}
    asked["topics"] = [{"topic": topic.name, "partitions": [{"partition": 0, "leader_epoch": e} for e in (0, 5)]}]
    play.ask("a partition twice", "OffsetForLeaderEpoch", 4, asked)
    asked["topics"] = [{"topic": topic.name, "partitions": [{"partition": 0, "leader_epoch": 0}]}] * 2
    play.ask("a topic twice", "OffsetForLeaderEpoch", 4, asked)


@script(properties="restarted")
def epochs_after_restarts(play: Play) -> None:
    """What a restart makes of a log: its leader epochs, its producers' last batches, its end."""
    from .fetch_sessions import Session
    from .idempotence import sequenced
    from ..requests import fetch, produce

    topic = play.topic("a", 2)
    play.write(topic.name, batch(3), timed(7, 5))
    play.write(topic.name, sequenced(0, 2), sequenced(2, 1), partition=1)
    for how in ("a clean stop", "a kill"):
        play.restart(kill=how == "a kill")
        play.until_there(topic.name, 2)
        for epoch in range(8):
            play.ask(f"epoch {epoch} after {how}", "OffsetForLeaderEpoch", 4, epochs((topic.name, 0, epoch), (topic.name, 1, epoch)))
        for timestamp in (-1, -2, -3, T0 + 5):
            play.ask(f"{timestamp} after {how}", "ListOffsets", 7, list_offsets((topic.name, 0, timestamp), (topic.name, 1, timestamp)))
        for current in range(8):
            asked = {"current_leader_epoch": current}
            for version in (12, 16, 18):
                play.ask(f"a Fetch with leader epoch {current} after {how} (v{version})", "Fetch", version, fetch((topic, 0, 4, asked)))
            play.ask(f"a ListOffsets with leader epoch {current} after {how}", "ListOffsets", 7, list_offsets((topic.name, 0, -1), leader_epoch=current))
            play.ask(f"an epoch's end with leader epoch {current} after {how}", "OffsetForLeaderEpoch", 4, epochs((topic.name, 0, 0), current=current))
        for last in range(8):
            for offset in (3, 5, 7, 50):
                asked = {"last_fetched_epoch": last}
                play.ask(f"last fetched epoch {last}, offset {offset}, after {how}", "Fetch", 12, fetch((topic, 0, offset, asked)))
        play.ask(f"the last batch again after {how}", "Produce", 9, produce((topic, 1, sequenced(2, 1))))
        play.ask(f"the one before it again after {how}", "Produce", 9, produce((topic, 1, sequenced(0, 2))))
        play.ask(f"a gap after {how}", "Produce", 9, produce((topic, 1, sequenced(9, 1))))
        play.ask(f"a batch after {how}", "Produce", 9, produce((topic, 0, batch(2))))
        play.ask(f"the log after {how}", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0)))
        play.ask(f"metadata after {how}", "Metadata", 12, metadata(topic.name))
        session = Session(play)
        session.session_id, session.epoch = 12345, 1
        session.ask(f"a session of before, after {how}")
