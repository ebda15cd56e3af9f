"""Transactions as readers see them: Fetch, ListOffsets and DescribeProducers, at both isolation levels."""

from __future__ import annotations

from ..batches import batch, record
from ..play import LONG_MS, SHORT_MS, Play, script, versions
from ..requests import fetch, list_offsets
from ..scene import Topic
from ..transaction_requests import (
    Producer,
    coordinator_is_there,
    end_txn,
    producers,
    rest,
)

UNCOMMITTED, COMMITTED = 0, 1


def interleaved(play: Play, topic: Topic) -> dict[str, Producer]:
    """Two aborted transactions, two committed, plain records among them, and one open from offset 9 on."""
    found = {name: Producer(play, name, tv=tv).init() for name, tv in (("a", 1), ("b", 2), ("c", 2))}
    a, b, c = found.values()
    a.send(topic, count=2)  # 0, 1
    b.send(topic)  # 2
    play.write(topic.name, batch(1, base_timestamp=play.now_ms))  # 3
    a.end(commit=False)  # 4
    a.send(topic)  # 5
    b.send(topic)  # 6
    b.end()  # 7
    a.end()  # 8
    c.send(topic, count=2)  # 9, 10
    b.send(topic)  # 11
    play.tick()  # only this marker has the latest timestamp
    b.end(commit=False)  # 12
    play.write(topic.name, batch(2, base_timestamp=play.now_ms))  # 13, 14
    return found


@script
def fetches(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    found = interleaved(play, topic)
    for when in ("while one is open", "when all have ended"):
        for level in (UNCOMMITTED, COMMITTED):
            for offset in range(18):
                asked = fetch((topic, 0, offset), isolation_level=level)
                play.ask(f"from {offset} at level {level}, {when}", "Fetch", 12, asked)
            for most in (1, 90, 200, 400, 700):
                asked = fetch((topic, 0, 0), isolation_level=level, partition_max_bytes=most)
                play.ask(f"{most} bytes at level {level}, {when}", "Fetch", 12, asked)
                asked = fetch((topic, 0, 5), isolation_level=level, max_bytes=most)
                play.ask(f"{most} bytes from 5 at level {level}, {when}", "Fetch", 12, asked)
            for timestamp in (-1, -2, -3, play.now_ms, play.now_ms + 1):
                for version in (2, 7, 11):
                    asked = list_offsets((topic.name, 0, timestamp), isolation_level=level)
                    moment = timestamp - play.now_ms if timestamp > 0 else timestamp
                    case = f"offset of {moment} at level {level}, {when} (v{version})"
                    play.ask(case, "ListOffsets", version, asked)
        play.ask(f"producers {when}", "DescribeProducers", 0, producers((topic, 0)))
        play.tick()  # and then this transaction's
        found["c"].end(commit=False)


@script
def every_version_of_a_fetch(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    interleaved(play, topic)
    for version in versions("Fetch"):
        for level in (UNCOMMITTED, COMMITTED):
            asked = fetch((topic, 0, 3), isolation_level=level)
            play.ask(f"level {level} (v{version})", "Fetch", version, asked)
    for version in versions("ListOffsets"):
        for level in (UNCOMMITTED, COMMITTED):
            asked = list_offsets((topic.name, 0, -1), isolation_level=level)
            play.ask(f"the end at level {level} (v{version})", "ListOffsets", version, asked)


@script
def aborted_lists_of_many_segments_and_index_entries(play: Play) -> None:
    """Aborted transactions are listed up to the offset index's next entry, the next segment, or the log's end."""
    coordinator_is_there(play)
    for case, configs in {
        "few index entries": {"index_interval_bytes": "4096"},
        "many index entries": {"index_interval_bytes": "100"},
        "small segments": {"segment_bytes": "1048576"},
    }.items():
        suffix = case.replace(" ", "-")
        topic = play.topic(suffix, **configs)
        a, b = (Producer(play, f"{suffix}-{name}", tv=1).init() for name in "ab")
        for step in range(8):
            a.send(topic, count=2)
            if step % 2 == 0:
                b.send(topic)
            value = b"x" * (400_000 if "segment_bytes" in configs else 1)
            play.write(topic.name, batch([record(value)], base_timestamp=play.now_ms))
            a.end(commit=step % 3 == 0)
            if step % 4 == 2:
                b.end(commit=False)
        for offset in range(0, 42, 4 if "segment_bytes" in configs else 1):
            for most in (1, 300, 1_000):
                asked = fetch((topic, 0, offset), isolation_level=COMMITTED, partition_max_bytes=most)
                play.ask(f"{most} bytes from {offset}, {case}", "Fetch", 12, asked)
        b.end(commit=False)
        asked = fetch((topic, 0, 0), isolation_level=COMMITTED)
        play.ask(f"all, {case}", "Fetch", 12, asked)


@script
def waiting_for_the_end(play: Play) -> None:
    """A fetch that waits at the last stable offset is answered when that offset moves."""
    coordinator_is_there(play)
    for tv in (1, 2):
        for committed in (True, False):
            label = f"V{tv}, {'commit' if committed else 'abort'}"
            topic = play.topic(f"t{tv}{committed}")
            producer = Producer(play, f"p{tv}{committed}", tv=tv).init()
            producer.send(topic, count=2)
            play.ask(
                f"nothing yet: {label}",
                "Fetch",
                12,
                fetch((topic, 0, 0), isolation_level=COMMITTED, min_bytes=1, max_wait_ms=SHORT_MS),
            )
            play.ask(
                f"all there is at level 0: {label}",
                "Fetch",
                12,
                fetch((topic, 0, 0), isolation_level=UNCOMMITTED, min_bytes=1, max_wait_ms=LONG_MS),
            )
            waiting = play.send(
                f"it waits for the end: {label}",
                "Fetch",
                12,
                fetch((topic, 0, 0), isolation_level=COMMITTED, min_bytes=1, max_wait_ms=LONG_MS),
                on="reader",
            )
            # Plain records above the last stable offset don't wake it.
            play.write(topic.name, batch(1, base_timestamp=play.now_ms))
            play.ask(
                f"the end: {label}",
                "EndTxn",
                5 if tv == 2 else 4,
                end_txn(*producer.who, commit=committed),
            )
            play.receive(waiting)
            rest(play, producer.transactional_id)


@script
def the_first_of_several_ends(play: Play) -> None:
    """The last stable offset moves from the first open transaction to the next one, whatever the order of their
    ends."""
    coordinator_is_there(play)
    topic = play.topic("t")
    a, b, c = (Producer(play, name, tv=1).init() for name in "abc")

    def look(when: str) -> None:
        asked = fetch((topic, 0, 0), isolation_level=COMMITTED)
        play.ask(f"the log {when}", "Fetch", 12, asked)
        asked = list_offsets((topic.name, 0, -1), isolation_level=COMMITTED)
        play.ask(f"the end {when}", "ListOffsets", 7, asked)
        play.ask(f"producers {when}", "DescribeProducers", 0, producers((topic, 0)))

    for producer in (a, b, c):
        producer.send(topic)
    look("of three open ones")
    b.end()
    look("once the second has ended")
    a.end(commit=False)
    look("once the first has ended")
    a.send(topic)
    look("once the first has begun again")
    c.end(commit=False)
    look("once the third has ended")
    a.end()
    look("once all have ended")


@script
def deleted_records(play: Play) -> None:
    """The start of a log moves past aborted transactions, and into an open one."""
    coordinator_is_there(play)
    topic = play.topic("t")
    found = interleaved(play, topic)
    for offset in (3, 5, 10, 12, -1):
        deleted = {
            "topics": [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": offset}]}],
            "timeout_ms": 10_000,
        }
        play.ask(f"up to {offset}", "DeleteRecords", 2, deleted)
        for level in (UNCOMMITTED, COMMITTED):
            asked = fetch((topic, 0, max(offset, 0)), isolation_level=level)
            play.ask(f"the log from {offset} at level {level}", "Fetch", 12, asked)
            asked = list_offsets((topic.name, 0, -1), isolation_level=level)
            play.ask(f"the end after {offset} at level {level}", "ListOffsets", 7, asked)
        play.ask(f"producers after {offset}", "DescribeProducers", 0, producers((topic, 0)))
    found["c"].end()
    asked = fetch((topic, 0, 15), isolation_level=COMMITTED)
    play.ask("the log at last", "Fetch", 12, asked)
