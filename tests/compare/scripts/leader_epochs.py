"""OffsetForLeaderEpoch, and how a restart changes logs, epochs and producers."""

from __future__ import annotations

from typing import Any

from ..batches import T0, batch
from ..play import Play, script, versions
from ..requests import fetch, list_offsets, metadata, produce
from .fetch_sessions import Session
from .idempotence import sequenced
from .offsets import timed


def epochs(*parts: tuple[str, int, int], current: int = -1, replica_id: int = -1) -> dict[str, Any]:
    return {
        "replica_id": replica_id,
        "topics": [
            {
                "topic": name,
                "partitions": [
                    {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
                ],
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
            "a topic without partitions": {
                "replica_id": -1,
                "topics": [{"topic": topic.name, "partitions": []}],
            },
            "good and bad ones": epochs((topic.name, 1, 0), ("nowhere", 0, 0), (topic.name, 9, 0)),
            "an unknown partition and a current epoch": epochs((topic.name, 9, 0), current=5),
            "the consumer's replica id": epochs((topic.name, 0, 0), replica_id=-1),
            "the debugger's replica id": epochs((topic.name, 0, 0), replica_id=-2),
            "another broker's replica id": epochs((topic.name, 0, 0), replica_id=5),
        }.items():
            play.ask(f"{case} (v{version})", "OffsetForLeaderEpoch", version, asked)
    asked = epochs((topic.name, 0, 0)) | {}
    asked["topics"] = [
        {"topic": topic.name, "partitions": [{"partition": 0, "leader_epoch": e} for e in (0, 5)]}
    ]
    play.ask("a partition twice", "OffsetForLeaderEpoch", 4, asked)
    asked["topics"] = [{"topic": topic.name, "partitions": [{"partition": 0, "leader_epoch": 0}]}] * 2
    play.ask("a topic twice", "OffsetForLeaderEpoch", 4, asked)


@script(properties="second")
def epochs_after_restarts(play: Play) -> None:
    """How a restart changes a log: its leader epochs, its producers' last batches, its end."""

    topic = play.topic("a", 3)
    play.write(topic.name, batch(3), timed(7, 5))
    now = {"base_timestamp": play.now_ms}
    play.write(topic.name, sequenced(0, 2, **now), sequenced(2, 1, **now), partition=1)
    play.write(topic.name, sequenced(0, 2), sequenced(2, 1), partition=2)
    for how in ("a clean stop", "a kill"):
        play.restart(kill=how == "a kill")
        play.until_there(topic.name, 3)
        for epoch in range(8):
            play.ask(
                f"epoch {epoch} after {how}",
                "OffsetForLeaderEpoch",
                4,
                epochs((topic.name, 0, epoch), (topic.name, 1, epoch)),
            )
        for timestamp in (-1, -2, -3, T0 + 5):
            play.ask(
                f"{timestamp} after {how}",
                "ListOffsets",
                7,
                list_offsets((topic.name, 0, timestamp), (topic.name, 1, timestamp)),
            )
        for current in range(8):
            asked = {"current_leader_epoch": current}
            for version in (12, 16, 18):
                play.ask(
                    f"a Fetch with leader epoch {current} after {how} (v{version})",
                    "Fetch",
                    version,
                    fetch((topic, 0, 4, asked)),
                )
            play.ask(
                f"a ListOffsets with leader epoch {current} after {how}",
                "ListOffsets",
                7,
                list_offsets((topic.name, 0, -1), leader_epoch=current),
            )
            play.ask(
                f"an epoch's end with leader epoch {current} after {how}",
                "OffsetForLeaderEpoch",
                4,
                epochs((topic.name, 0, 0), current=current),
            )
        for last in range(8):
            for offset in (3, 5, 7, 50):
                asked = {"last_fetched_epoch": last}
                play.ask(
                    f"last fetched epoch {last}, offset {offset}, after {how}",
                    "Fetch",
                    12,
                    fetch((topic, 0, offset, asked)),
                )
        for partition, age, when in ((1, "a minute", now), (2, "years", {})):
            for case, data in {
                "the last batch again": sequenced(2, 1, **when),
                "the one before it again": sequenced(0, 2, **when),
                "a gap": sequenced(9, 1, **when),
            }.items():
                asked = produce((topic, partition, data))
                play.ask(f"{case}, from a producer silent for {age}, after {how}", "Produce", 9, asked)
        play.ask(f"a batch after {how}", "Produce", 9, produce((topic, 0, batch(2))))
        play.ask(f"the log after {how}", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), (topic, 2, 0)))
        play.ask(f"metadata after {how}", "Metadata", 12, metadata(topic.name))
        session = Session(play)
        session.session_id, session.epoch = 12345, 1
        session.ask(f"a session of before, after {how}")
