"""Fetch: min_bytes and max_wait_ms. Waits that should end early are long. Waits that should time out are short."""

from __future__ import annotations

from tests.support.wire import Outcome

from ..batches import batch, record
from ..play import LONG_MS, SHORT_MS, SILENCE_S, Play, script, versions
from ..requests import fetch, produce, unknown


def sized(total_bytes: int) -> bytes:
    """Return a batch of that many bytes, 100 to 8000."""
    value = b"x" * (total_bytes - len(batch([record(b"x" * 100)])) + 100)
    data = batch([record(value)])
    return (
        data if len(data) == total_bytes else batch([record(value[: len(value) - (len(data) - total_bytes)])])
    )


def quiet(play: Play, case: str, on: str) -> None:
    """Record that nothing has arrived on that connection so far."""
    payload = play.client(on).receive_frame(within_s=SILENCE_S / 2)
    play.note(case, "nothing yet" if payload is Outcome.SILENCE else "something came")


@script
def answered_at_once(play: Play) -> None:
    topic = play.topic("a", 2)
    play.write(topic.name, sized(500))
    at_once = {"max_wait_ms": LONG_MS}
    for case, asked in {
        "enough bytes": fetch((topic, 0, 0), min_bytes=500, **at_once),
        "min_bytes 0": fetch((topic, 1, 0), min_bytes=0, **at_once),
        "negative min_bytes": fetch((topic, 1, 0), min_bytes=-5, **at_once),
        "no partitions": fetch(min_bytes=1, **at_once),
        "an offset out of range": fetch((topic, 0, 99), min_bytes=1, **at_once),
        "an offset out of range beside an empty partition": fetch(
            (topic, 1, 0), (topic, 0, 99), min_bytes=1, **at_once
        ),
        "a leader epoch too high": fetch(
            (topic, 0, 0, {"current_leader_epoch": 4}), min_bytes=10**6, **at_once
        ),
        "a replica that is none": fetch((topic, 0, 0), replica_id=5, min_bytes=10**6, **at_once),
        "a negative partition_max_bytes": fetch(
            (topic, 0, 0, {"partition_max_bytes": -1}), min_bytes=10**6, **at_once
        ),
        "negative max_bytes": fetch((topic, 0, 0), max_bytes=-1, min_bytes=10**6, **at_once),
        "an isolation level that is none": fetch(
            (topic, 0, 0), isolation_level=3, min_bytes=10**6, **at_once
        ),
        "a session that is none": fetch(
            (topic, 0, 0), session_id=5, session_epoch=5, min_bytes=10**6, **at_once
        ),
        "min_bytes above max_bytes, which are reached": fetch(
            (topic, 0, 0), min_bytes=10**6, max_bytes=400, **at_once
        ),
        "the first batch is larger than max_bytes": fetch(
            (topic, 0, 0), min_bytes=200, max_bytes=200, **at_once
        ),
    }.items():
        play.ask(case, "Fetch", 12, asked)
    for wait_ms in (0, -1, -(2**31)):
        play.ask(
            f"max_wait_ms {wait_ms}", "Fetch", 12, fetch((topic, 1, 0), min_bytes=1, max_wait_ms=wait_ms)
        )


@script
def answered_after_the_wait(play: Play) -> None:
    topic = play.topic("a", 3)
    play.write(topic.name, sized(500))
    play.write(topic.name, sized(500), partition=2)
    wait = {"max_wait_ms": SHORT_MS}
    for case, asked in {
        "an empty partition": fetch((topic, 1, 0), min_bytes=1, **wait),
        "too few bytes": fetch((topic, 0, 0), min_bytes=501, **wait),
        "too few bytes in two partitions": fetch((topic, 0, 0), (topic, 2, 0), min_bytes=1001, **wait),
        "an unknown topic": fetch((unknown("nowhere"), 0, 0), min_bytes=1, **wait),
        "an unknown partition beside an empty one": fetch((topic, 9, 0), (topic, 1, 0), min_bytes=1, **wait),
        "an unknown partition beside too few bytes": fetch(
            (topic, 9, 0), (topic, 0, 0), min_bytes=501, **wait
        ),
        "little room in the partition": fetch(
            (topic, 0, 0, {"partition_max_bytes": 10}), min_bytes=501, **wait
        ),
        "min_bytes above max_bytes, of which there are less": fetch(
            (topic, 0, 0), min_bytes=10**6, max_bytes=2000, **wait
        ),
        "min_bytes at the least max_bytes": fetch((topic, 0, 0), min_bytes=10**6, max_bytes=1024, **wait),
    }.items():
        play.ask(case, "Fetch", 12, asked)
    asked = fetch((topic, 1, 0), min_bytes=1, isolation_level=1, **wait)
    play.ask("read committed, an empty partition", "Fetch", 12, asked)
    asked = fetch((unknown("nowhere"), 0, 0), min_bytes=1, **wait)
    play.ask("an unknown id", "Fetch", 13, asked)


@script
def woken_by_an_append(play: Play) -> None:
    topic = play.topic("a", 2)
    for version in (4, 12, 13, 18):
        end = play.write(topic.name, sized(100)) + 1
        waiting = play.send(
            f"an append (v{version})",
            "Fetch",
            version,
            fetch((topic, 0, end), min_bytes=1, max_wait_ms=LONG_MS),
            on="waiting",
        )
        quiet(play, f"before the append (v{version})", "waiting")
        play.write(topic.name, sized(300))
        play.receive(waiting)
    for isolation in (0, 1):
        end = play.write(topic.name, sized(100)) + 1
        asked = fetch((topic, 0, end), min_bytes=900, isolation_level=isolation, max_wait_ms=LONG_MS)
        waiting = play.send(
            f"appends that add up (isolation level {isolation})", "Fetch", 12, asked, on="waiting"
        )
        play.write(topic.name, sized(300), sized(300))
        quiet(play, f"before the last append (isolation level {isolation})", "waiting")
        play.write(topic.name, sized(300))
        play.receive(waiting)


@script
def woken_by_appends_to_several_partitions(play: Play) -> None:
    topic = play.topic("a", 3)
    asked = fetch((topic, 2, 0), (topic, 0, 0), min_bytes=600, max_wait_ms=LONG_MS)
    play.greet("waiting")
    waiting = play.send("two partitions add up", "Fetch", 12, asked, on="waiting")
    play.write(topic.name, sized(300))
    quiet(play, "one has too little", "waiting")
    play.write(topic.name, sized(2000), partition=1)
    quiet(play, "the third does not count", "waiting")
    play.write(topic.name, sized(300), partition=2)
    play.receive(waiting)
    limited = {"partition_max_bytes": 100}
    asked = fetch((topic, 0, 1, limited), (topic, 2, 1, limited), min_bytes=201, max_wait_ms=SHORT_MS)
    waiting = play.send("each counts up to its own limit", "Fetch", 12, asked, on="waiting")
    quiet(play, "nothing new at first", "waiting")
    play.write(topic.name, sized(300))
    play.write(topic.name, sized(300), partition=2)
    play.receive(waiting)


@script
def two_wait_for_one(play: Play) -> None:
    topic = play.topic("a")
    asked = fetch((topic, 0, 0), min_bytes=1, max_wait_ms=LONG_MS)
    for on in ("one", "two", "three"):
        play.greet(on)
    first = play.send("the first", "Fetch", 12, asked, on="one")
    second = play.send("the second", "Fetch", 12, asked, on="two")
    more = fetch((topic, 0, 0), min_bytes=501, max_wait_ms=LONG_MS)
    third = play.send("the one that wants more", "Fetch", 12, more, on="three")
    play.write(topic.name, sized(500))
    play.receive(first)
    play.receive(second)
    quiet(play, "too little for the one that wants more", "three")
    play.write(topic.name, sized(500))
    play.receive(third)


@script
def woken_by_a_deletion(play: Play) -> None:
    for version in (4, 12, 13, 18):
        topic = play.topic(f"v{version}")
        other = play.topic(f"v{version}-other")
        play.write(other.name, sized(300))
        asked = fetch((topic, 0, 0), (other, 0, 0), min_bytes=1000, max_wait_ms=LONG_MS)
        waiting = play.send(f"the topic is deleted (v{version})", "Fetch", version, asked, on="waiting")
        quiet(play, f"before the deletion (v{version})", "waiting")
        play.quietly("DeleteTopics", 4, {"topic_names": [topic.name], "timeout_ms": 10_000})
        play.receive(waiting)


@script
def a_topic_created_while_it_is_waited_for(play: Play) -> None:
    name = play.name("late")
    asked = fetch((unknown(name), 0, 0), min_bytes=1, max_wait_ms=2 * SHORT_MS)
    play.greet("waiting")  # otherwise a busy machine may accept the connection after everything that follows
    waiting = play.send("a topic that comes to be, with data", "Fetch", 12, asked, on="waiting")
    topic = play.topic("late")
    play.write(topic.name, sized(300))
    play.receive(waiting)
    play.ask("the next time", "Fetch", 12, fetch((topic, 0, 0), min_bytes=1, max_wait_ms=LONG_MS))


@script
def answers_leave_in_the_order_of_their_requests(play: Play) -> None:
    """A request after a waiting Fetch isn't read before the Fetch is answered."""
    topic = play.topic("a")
    waiting = play.send(
        "a Fetch that waits", "Fetch", 12, fetch((topic, 0, 0), min_bytes=1, max_wait_ms=SHORT_MS)
    )
    behind = play.send("an ApiVersions behind it", "ApiVersions", 0, {})
    last = play.send("and a Fetch of no wait", "Fetch", 12, fetch((topic, 0, 0)))
    play.receive(waiting)
    play.receive(behind)
    play.receive(last)
    asked = fetch((topic, 0, 0), min_bytes=1, max_wait_ms=2 * SHORT_MS)
    waiting = play.send("a Fetch with a Produce to its own partition behind it", "Fetch", 12, asked)
    behind = play.send("the Produce", "Produce", 9, produce((topic, 0, sized(300))))
    play.receive(waiting)
    play.receive(behind)


@script
def a_client_that_hangs_up_while_it_waits(play: Play) -> None:
    topic = play.topic("a")
    play.send("hangs up", "Fetch", 12, fetch((topic, 0, 0), min_bytes=1, max_wait_ms=LONG_MS), on="gone")
    play.drop("gone")
    play.greet("waiting")
    waiting = play.send(
        "stays", "Fetch", 12, fetch((topic, 0, 0), min_bytes=1, max_wait_ms=LONG_MS), on="waiting"
    )
    play.write(topic.name, sized(300))
    play.receive(waiting)


@script
def waiting_in_every_version(play: Play) -> None:
    topic = play.topic("a")
    for version in versions("Fetch"):
        play.ask(
            f"an empty partition (v{version})",
            "Fetch",
            version,
            fetch((topic, 0, 0), min_bytes=1, max_wait_ms=100),
        )
