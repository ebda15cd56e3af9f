"""Dead letter queues of share groups (KIP-1191): their records, and the parts of a record that they keep."""

from __future__ import annotations

from typing import Any

from protocol.records.batch import read_records

from ..config_requests import changed, described, resource, until_set
from ..play import Play, script
from ..requests import fetch
from ..scene import Topic
from ..share_requests import (
    ACCEPT,
    GAP,
    NEEDS,
    REJECT,
    RELEASE,
    ShareConsumer,
    produce_batches,
    share_group,
)
from ..share_state_requests import read, share_records_of

GROUP, TOPIC, SET = 32, 2, 0
QUEUE = "errors.deadletterqueue.topic.name"
COPIES = "errors.deadletterqueue.copy.record.enable"
ENABLE = "errors.deadletterqueue.group.enable"


def _queue(play: Play, suffix: str, *, enabled: bool = True) -> Topic:
    """Create a topic whose replicas aren't compared batch by batch: Kafka writes records that are rejected meanwhile
    together."""
    name = f"dlq.{play.name(suffix)}"
    placed = [{"partition_index": 0, "broker_ids": [1, 2, 3]}]
    topic = {
        "name": name,
        "num_partitions": -1 if play.on_cluster else 1,
        "replication_factor": -1 if play.on_cluster else 1,
        "assignments": placed if play.on_cluster else [],
        "configs": [{"name": ENABLE, "value": str(enabled).lower()}],
    }
    (created,) = play.quietly("CreateTopics", 7, {"topics": [topic], "timeout_ms": 20_000}).topics
    play.until_there(name)
    return Topic(name, bytes(created.topic_id))


def _with_queue(play: Play, group: str, queue: str, *, copies: bool = False) -> None:
    for name, value in {QUEUE: queue, COPIES: "true"}.items():
        if name == COPIES and not copies:
            continue
        play.ask(f"{name} is {value}", "IncrementalAlterConfigs", 1, changed(change(group, name, value)))
        until_set(play, GROUP, group, name, value)


def change(group: str, name: str, value: str) -> dict[str, Any]:
    return {
        "resource_type": GROUP,
        "resource_name": group,
        "configs": [{"name": name, "config_operation": SET, "value": value}],
    }


def _queued(play: Play, queue: Topic, partition: int = 0) -> list[Any]:
    """Return the key, value and headers of each record."""
    found: list[Any] = []
    while True:
        answer = play.quietly("Fetch", 16, fetch((queue, partition, len(found))))
        data = bytes(answer.responses[0].partitions[0].records or b"")
        if not data:
            return found
        for record in read_records(data):
            headers = [[key.decode(), (value or b"").decode()] for key, value in record.headers]
            found.append([_text(record.key), _text(record.value), headers])


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _until_queued(play: Play, queue: Topic, count: int, partition: int = 0) -> None:
    play.until(f"{count} are in the queue", lambda: len(_queued(play, queue, partition)) >= count)


def _until_archived(play: Play, group: str, topic: Topic, first: int, last: int, partition: int = 0) -> None:
    """Wait until the last write about each of these offsets says that it is archived, in a range or on its own."""

    def archived() -> bool:
        states: dict[int, int] = {}
        start = 0
        for record in share_records_of(play, group, topic, partition):
            start = max(start, record[1]["start_offset"])
            for batch_first, batch_last, state, *_ in record[1]["state_batches"]:
                states.update(dict.fromkeys(range(batch_first, batch_last + 1), state))
        return all(offset < start or states.get(offset) == 4 for offset in range(first, last + 1))

    play.until(f"{first} to {last} are archived", archived)


@script(properties="dead_letters", needs=NEEDS)
def what_goes_there(play: Play) -> None:
    """Records that are rejected or delivered too often, by an acknowledgement, or by the end of a session or a lock."""
    topic = play.topic("t")
    queue = _queue(play, "q")
    group = share_group(play, "g", (topic, 0), delivery_count_limit="2", record_lock_duration_ms="30000")
    _with_queue(play, group, queue.name)
    produce_batches(play, topic, 1, 3, 3, 3, 3)
    member = ShareConsumer(play, group, topic, "m")
    member.fetch("all of it", batch_size=1)
    member.ack("a whole batch is rejected", (1, 3, REJECT))
    _until_archived(play, group, topic, 1, 3)
    member.ack("one of a batch is", (4, 6, [ACCEPT, REJECT, GAP]))
    _until_archived(play, group, topic, 5, 5)
    member.ack("it is done with", (5, 5, ACCEPT))
    member.ack("given back for the first time", (7, 12, RELEASE))
    member.fetch("once more, the first", max_records=3, batch_size=1)
    member.ack("one of them given back for the last time", (7, 7, RELEASE))
    play.note("the queue by then", _queued(play, queue)[:4])
    member.leave("it leaves with the rest")
    _until_queued(play, queue, 7)
    _until_archived(play, group, topic, 7, 9)
    play.note("in the queue", _queued(play, queue))
    # After these, Kafka writes once for each offset of a batch that it tracks offset by offset. The next fetch's
    # acquisition and the previous letter's write come in either order.
    play.note("written", share_records_of(play, group, topic)[:7])
    play.ask("its state", "ReadShareGroupState", 0, read(group, (topic, 0)))


@script(properties="dead_letters", needs=NEEDS)
def originals(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    queue = _queue(play, "q")
    group = share_group(play, "g", (topic, 1))
    _with_queue(play, group, queue.name, copies=True)
    produce_batches(play, topic, 3, 3, partition=1)
    member = ShareConsumer(play, group, topic, "m", partition=1)
    member.fetch("all of it")
    member.ack("some are rejected", (0, 5, [REJECT, ACCEPT, REJECT, REJECT, ACCEPT, REJECT]))
    _until_queued(play, queue, 4)
    play.note("in the queue", sorted(_queued(play, queue), key=str))


@script(properties="dead_letters", needs=NEEDS)
def without_a_queue(play: Play) -> None:
    """If the queue is missing or can't be one, the record is archived all the same. The broker creates a missing
    queue."""
    topic = play.topic("t")
    closed = _queue(play, "closed", enabled=False)
    group = share_group(play, "g", (topic, 0))
    made = f"dlq.{play.name('made')}"
    member = ShareConsumer(play, group, topic, "m")
    produce_batches(play, topic, 1, 1, 1, 1)
    member.fetch("all of it", batch_size=1)
    for offset, name in enumerate((closed.name, "dlq. no name", "undead", made)):
        _with_queue(play, group, name)
        member.ack(f"rejected, for {name}", (offset, offset, REJECT))
        _until_archived(play, group, topic, offset, offset)
    play.note("in the closed one", _queued(play, closed))
    asked = described(resource(TOPIC, made, ENABLE, "message.timestamp.type"))
    play.ask("the one that was made", "DescribeConfigs", 4, asked)
    play.note("written", share_records_of(play, group, topic))


@script(properties="dead_letters", needs=NEEDS)
def a_kill(play: Play) -> None:
    """The queue holds each rejected record after the restart, however far it had got, and no other record."""
    topic = play.topic("t")
    queue = _queue(play, "q")
    group = share_group(play, "g", (topic, 0))
    _with_queue(play, group, queue.name)
    produce_batches(play, topic, *[2] * 10)
    member = ShareConsumer(play, group, topic, "m")
    member.fetch("all of it", batch_size=2)
    member.ack(
        "every second one is rejected", *((first, first + 1, [REJECT, ACCEPT]) for first in range(0, 20, 2))
    )
    play.restart(kill=True)
    again = ShareConsumer(play, group, topic, "n")
    produce_batches(play, topic, 1)
    play.until("what was under way is loaded", lambda: _loads(play, again))
    _until_queued(play, queue, 10)
    offsets = {dict(headers)["__dlq.errors.offset"] for _, _, headers in _queued(play, queue)}
    play.note("in the queue", sorted(offsets, key=int))


def _loads(play: Play, member: ShareConsumer) -> bool:
    fields = member.fields(max_wait_ms=500)
    answer = play.quietly("ShareFetch", 2, fields)
    return (
        answer.error_code == 0 and bool(answer.responses) and not answer.responses[0].partitions[0].error_code
    )
