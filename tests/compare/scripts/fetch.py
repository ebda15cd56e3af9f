"""Fetch without a session: which requests are answered, with which data, and how much of it."""

from __future__ import annotations

from ..batches import GZIP, NONE, ZSTD, batch, record
from ..play import Play, script, versions
from ..requests import ZERO_ID, fetch, unknown


def filled(value_bytes: int, first: int = 0, **how: int) -> bytes:
    """Return a batch of one record. Another `first` makes it a different one."""
    return batch([record(b"%06d" % first + b"x" * (value_bytes - 6))], **how)


@script
def every_version(play: Play) -> None:
    """The same requests in each version: data, an empty partition, a wrong offset, an unknown topic."""
    topic = play.topic("a", 3)
    play.write(topic.name, batch(2), batch(3, codec=GZIP))
    play.write(topic.name, batch(), partition=2)
    for version in versions("Fetch"):
        for isolation in (0, 1):
            play.ask(
                f"everything, isolation level {isolation} (v{version})",
                "Fetch",
                version,
                fetch((topic, 0, 0), (topic, 1, 0), (topic, 2, 0), isolation_level=isolation),
            )
            play.ask(
                f"an offset behind the end, isolation level {isolation} (v{version})",
                "Fetch",
                version,
                fetch((topic, 0, 6), isolation_level=isolation),
            )
            play.ask(
                f"a topic and a partition that aren't there, isolation level {isolation} (v{version})",
                "Fetch",
                version,
                fetch((unknown("nowhere"), 0, 0), (topic, 9, 0), isolation_level=isolation),
            )
        play.ask(f"the end (v{version})", "Fetch", version, fetch((topic, 0, 5)))
        play.ask(f"no topics (v{version})", "Fetch", version, fetch())
        play.ask(
            f"a leader epoch too high (v{version})",
            "Fetch",
            version,
            fetch((topic, 0, 0, {"current_leader_epoch": 9})),
        )


@script
def offsets(play: Play) -> None:
    topic = play.topic("a")
    empty = play.topic("empty")
    play.write(topic.name, batch(3), batch(1), batch(4, codec=GZIP))
    for offset in (-(2**63), -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 9, 2**31, 2**63 - 1):
        play.ask(f"offset {offset} of 8", "Fetch", 12, fetch((topic, 0, offset)))
    for offset in (-1, 0, 1):
        play.ask(f"offset {offset} of an empty log", "Fetch", 12, fetch((empty, 0, offset)))


@script
def who_asks(play: Play) -> None:
    """Replica ids, leader epochs, cluster ids, racks."""
    topic = play.topic("a")
    play.write(topic.name, batch(2))
    for version in (4, 9, 14):
        for replica in (-3, -2, -1, 0, 1, 2, 2**31 - 1):
            play.ask(
                f"replica id {replica} (v{version})",
                "Fetch",
                version,
                fetch((topic, 0, 0), replica_id=replica),
            )
    for version in (15, 17, 18):
        for replica in (-3, -2, -1, 0, 1, 2):
            state = {"replica_id": replica, "replica_epoch": 5}
            play.ask(
                f"replica id {replica} (v{version})",
                "Fetch",
                version,
                fetch((topic, 0, 0), replica_state=state),
            )
    for version in (9, 12, 16, 18):
        for epoch in (-2, -1, 0, 1, 2**31 - 1):
            asked = fetch((topic, 0, 0, {"current_leader_epoch": epoch}))
            play.ask(f"leader epoch {epoch} (v{version})", "Fetch", version, asked)
    play.ask(
        "a leader epoch too high and a wrong offset",
        "Fetch",
        12,
        fetch((topic, 0, 99, {"current_leader_epoch": 1})),
    )
    play.ask(
        "another broker's replica and a leader epoch too high",
        "Fetch",
        12,
        fetch((topic, 0, 0, {"current_leader_epoch": 1}), replica_id=5),
    )
    play.ask("a cluster id of another cluster", "Fetch", 12, fetch((topic, 0, 0), cluster_id="elsewhere"))
    play.ask("an empty cluster id", "Fetch", 12, fetch((topic, 0, 0), cluster_id=""))
    play.ask("a rack", "Fetch", 12, fetch((topic, 0, 0), rack_id="rack-1"))
    play.ask("a log start offset of a follower", "Fetch", 12, fetch((topic, 0, 0, {"log_start_offset": 7})))
    play.ask("a high watermark", "Fetch", 18, fetch((topic, 0, 0, {"high_watermark": 0})))
    play.ask("a directory id", "Fetch", 17, fetch((topic, 0, 0, {"replica_directory_id": topic.topic_id})))


@script
def last_fetched_epochs(play: Play) -> None:
    """The leader says where a follower's log diverges from its own (KIP-595)."""
    topic = play.topic("a")
    empty = play.topic("empty")
    play.write(topic.name, batch(3))
    for version in (12, 18):
        for epoch in (-2, -1, 0, 1, 7):
            for offset in (0, 2, 3, 4, 99):
                asked = fetch((topic, 0, offset, {"last_fetched_epoch": epoch}))
                play.ask(f"epoch {epoch}, offset {offset} of 3 (v{version})", "Fetch", version, asked)
    for epoch in (-1, 0, 1):
        play.ask(
            f"epoch {epoch} of an empty log", "Fetch", 12, fetch((empty, 0, 0, {"last_fetched_epoch": epoch}))
        )
    asked = fetch((topic, 0, 99, {"last_fetched_epoch": 0}), min_bytes=1, max_wait_ms=30_000)
    play.ask("a diverging epoch is told at once", "Fetch", 12, asked)


@script
def addresses(play: Play) -> None:
    topic = play.topic("a", 2)
    other = play.topic("b")
    play.write(topic.name, batch(1))
    play.write(topic.name, batch(2), partition=1)
    play.write(other.name, batch(3))
    nowhere = unknown("nowhere")
    for version in (4, 12, 13, 18):
        for case, asked in {
            "a negative partition": fetch((topic, -1, 0)),
            "the partition behind the last": fetch((topic, 2, 0)),
            "an empty name, or a zero id": fetch((unknown("", ZERO_ID), 0, 0)),
            "a name that is not allowed": fetch((unknown("a/b"), 0, 0)),
            "known and unknown ones in turn": fetch(
                (topic, 0, 0), (nowhere, 0, 0), (topic, 9, 0), (other, 0, 0), (topic, 1, 0), (nowhere, 3, 0)
            ),
            "unknown ones first": fetch((nowhere, 1, 0), (nowhere, 0, 0), (other, 0, 0)),
            "partitions backwards": fetch((topic, 1, 0), (topic, 0, 0)),
            "a topic twice": fetch((topic, 1, 0), (other, 0, 0), (topic, 0, 0)),
            "a partition twice with other offsets": fetch((topic, 1, 0), (topic, 1, 1)),
            "a partition twice, the first one wrong": fetch((topic, 1, 99), (other, 0, 0), (topic, 1, 1)),
            "a partition twice, the last one wrong": fetch((topic, 1, 1), (other, 0, 0), (topic, 1, 99)),
            "an unknown partition twice": fetch((nowhere, 1, 0), (nowhere, 1, 5)),
            "a topic without partitions": fetch()
            | {"topics": [{"topic": topic.name, "topic_id": topic.topic_id, "partitions": []}]},
            "forgotten partitions without a session": fetch((topic, 0, 0), forgotten=[(topic, [0])]),
        }.items():
            play.ask(f"{case} (v{version})", "Fetch", version, asked)


@script
def isolation_levels(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, batch(2))
    for version in (4, 7, 12, 13):
        for level in (-128, -1, 0, 1, 2, 127):
            play.ask(
                f"level {level} (v{version})", "Fetch", version, fetch((topic, 0, 0), isolation_level=level)
            )
    play.ask("level 2 without topics", "Fetch", 12, fetch(isolation_level=2))
    play.ask(
        "level 2 for an unknown topic", "Fetch", 12, fetch((unknown("nowhere"), 0, 0), isolation_level=2)
    )


@script
def how_many_bytes(play: Play) -> None:
    """max_bytes, partition_max_bytes and batches that they cut. Each batch has 1000 bytes."""
    topic = play.topic("a", 3)
    size = 1000 - (len(filled(100)) - 100) - 1
    for partition in range(3):
        play.write(topic.name, *(filled(size, i) for i in range(5)), partition=partition)
    for most in (
        -(2**31),
        -1,
        0,
        1,
        11,
        12,
        60,
        999,
        1000,
        1001,
        1023,
        1024,
        1500,
        1999,
        2000,
        2001,
        2999,
        2**31 - 1,
    ):
        play.ask(f"max_bytes {most}", "Fetch", 12, fetch((topic, 0, 0), max_bytes=most))
        play.ask(f"partition_max_bytes {most}", "Fetch", 12, fetch((topic, 0, 0), partition_max_bytes=most))
        three = ((topic, 0, 0), (topic, 1, 0), (topic, 2, 0))
        play.ask(f"max_bytes {most}, three partitions", "Fetch", 12, fetch(*three, max_bytes=most))
        play.ask(
            f"partition_max_bytes {most}, three partitions",
            "Fetch",
            12,
            fetch(*three, partition_max_bytes=most),
        )
    for most in (5000, 5001, 5999, 6000, 6001, 7500):
        play.ask(f"max_bytes {most}, three partitions", "Fetch", 12, fetch(*three, max_bytes=most))
    asked = fetch((topic, 2, 4), (topic, 1, 0), (topic, 0, 2), max_bytes=4500, partition_max_bytes=2500)
    play.ask("both limits, partitions backwards", "Fetch", 12, asked)
    asked = fetch((topic, 0, 5), (topic, 1, 3), (topic, 2, 0), max_bytes=1)
    play.ask("the first one that has something gives its batch", "Fetch", 12, asked)
    asked = fetch((topic, 0, 99), (unknown("nowhere"), 0, 0), (topic, 1, 3), (topic, 2, 0), max_bytes=1)
    play.ask("errors do not count as the first one", "Fetch", 12, asked)
    asked = fetch(
        (topic, 0, 0, {"partition_max_bytes": 0}),
        (topic, 1, 0, {"partition_max_bytes": 1500}),
        (topic, 2, 0, {"partition_max_bytes": 999}),
    )
    play.ask("a limit of its own for each partition", "Fetch", 12, asked)
    asked = fetch((topic, 0, 0, {"partition_max_bytes": -1}), (topic, 1, 0))
    play.ask("a negative limit of one of two partitions", "Fetch", 12, asked)
    asked = fetch((topic, 1, 0), (topic, 0, 0, {"partition_max_bytes": -1}))
    play.ask("a negative limit of the second of two partitions", "Fetch", 12, asked)
    for version in (4, 18):
        play.ask(f"max_bytes 1500 (v{version})", "Fetch", version, fetch((topic, 0, 1), max_bytes=1500))


@script
def batches_larger_than_what_is_asked_for(play: Play) -> None:
    topic = play.topic("a", 2)
    play.write(topic.name, filled(5000, 1), filled(100, 2), filled(3000, 3))
    play.write(topic.name, filled(100, 4), filled(6000, 5), partition=1)
    for offset in range(4):
        play.ask(f"from offset {offset}", "Fetch", 12, fetch((topic, 0, offset), max_bytes=1024))
        play.ask(
            f"from offset {offset}, little for the partition",
            "Fetch",
            12,
            fetch((topic, 0, offset), partition_max_bytes=10),
        )
    play.ask(
        "a large one behind a large one", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 1), max_bytes=6000)
    )
    play.ask(
        "a small one behind a large one", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), max_bytes=6000)
    )
    play.ask(
        "a torn one behind a large one", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), max_bytes=5500)
    )


@script
def reading_from_the_middle_of_a_large_log(play: Play) -> None:
    """The offset index finds the first batch, which is the batch with the offset."""
    topic = play.topic("a")
    play.write(
        topic.name,
        *(
            batch([record(b"%04d" % (i * 3 + j) + b"x" * 300, offset_delta=j) for j in range(3)])
            for i in range(60)
        ),
    )
    for offset in (0, 1, 2, 3, 11, 12, 13, 14, 44, 45, 46, 89, 90, 91, 134, 135, 150, 177, 178, 179, 180):
        play.ask(f"offset {offset} of 180", "Fetch", 12, fetch((topic, 0, offset), max_bytes=1024))


@script
def a_read_ends_with_its_segment(play: Play) -> None:
    topic = play.topic("a", 1, internal_segment_bytes="1000")
    play.write(topic.name, *(filled(250, i) for i in range(10)))
    for offset in (0, 1, 2, 3, 4, 5, 6, 8, 9, 10):
        play.ask(f"offset {offset}", "Fetch", 12, fetch((topic, 0, offset)))
    play.ask(
        "an older segment never waits",
        "Fetch",
        12,
        fetch((topic, 0, 0), min_bytes=100_000, max_wait_ms=30_000),
    )
    play.ask("the last segment does", "Fetch", 12, fetch((topic, 0, 9), min_bytes=100_000, max_wait_ms=150))
    three = ((topic, 0, 0), (topic, 0, 9))
    play.ask(
        "only the last of two entries counts", "Fetch", 12, fetch(*three, min_bytes=100_000, max_wait_ms=150)
    )


@script
def compressed_batches_come_as_they_were_sent(play: Play) -> None:
    topic = play.topic("a")
    play.write(topic.name, *(batch(3, codec=codec) for codec in range(NONE, ZSTD + 1)))
    for version in (4, 9, 10, 12, 18):
        for offset in (0, 4, 13):
            play.ask(f"from offset {offset} (v{version})", "Fetch", version, fetch((topic, 0, offset)))


@script
def a_zstd_topic_in_old_versions(play: Play) -> None:
    topic = play.topic("a", compression_type="zstd")
    play.write(topic.name, batch(3), batch(3, codec=ZSTD))
    for version in (4, 9, 10):
        play.ask(f"a topic of zstd (v{version})", "Fetch", version, fetch((topic, 0, 0)))


@script(needs=("DeleteRecords",))
def a_log_whose_start_was_moved(play: Play) -> None:
    """DeleteRecords moves the log start into the middle of a batch."""
    topic = play.topic("a", 2)
    play.write(topic.name, batch(4), batch(4), batch(2))
    play.write(topic.name, batch(2), partition=1)
    play.quietly(
        "DeleteRecords",
        2,
        {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [{"partition_index": 0, "offset": 6}, {"partition_index": 1, "offset": -1}],
                }
            ],
            "timeout_ms": 10_000,
        },
    )
    for offset in (0, 3, 4, 5, 6, 7, 8, 10, 11):
        play.ask(f"offset {offset}", "Fetch", 12, fetch((topic, 0, offset)))
    for offset in (0, 1, 2, 3):
        play.ask(f"offset {offset} of a log without records", "Fetch", 12, fetch((topic, 1, offset)))
    for version in (4, 5, 18):
        play.ask(f"offset 6 (v{version})", "Fetch", version, fetch((topic, 0, 6)))
    for epoch, offset in ((0, 3), (0, 6), (0, 11), (1, 6)):
        play.ask(
            f"last fetched epoch {epoch}, offset {offset}",
            "Fetch",
            12,
            fetch((topic, 0, offset, {"last_fetched_epoch": epoch})),
        )
