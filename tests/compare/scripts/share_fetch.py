"""ShareFetch and ShareAcknowledge at the leader (KIP-932): sessions, acquired records, and what happens to them."""

from __future__ import annotations

import random

from ..batches import batch
from ..play import LONG_MS, SHORT_MS, Play, script
from ..share_requests import (
    ACCEPT,
    GAP,
    NEEDS,
    REJECT,
    RELEASE,
    RENEW,
    ShareConsumer,
    configure,
    produce_batches,
    share_acknowledge,
    share_fetch,
    share_group,
)
from ..share_state_requests import initialize, share_records_of, summary
from ..transaction_requests import Producer, coordinator_is_there

UNKNOWN = b"\7" * 16


@script(properties="shares", needs=NEEDS)
def sessions(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group = share_group(play, "g", (topic, 0), (topic, 1))
    produce_batches(play, topic, 3)
    at = (topic, 0)

    def ask(case: str, epoch: int, *parts: object, version: int = 2, **how: object) -> None:
        fields = share_fetch(group, "m", epoch, *parts, **how)  # type: ignore[arg-type]
        play.ask(case, "ShareFetch", version, fields)

    def acknowledge(case: str, epoch: int, acks: object, version: int = 2) -> None:
        fields = share_acknowledge(group, "m", epoch, {at: acks})  # type: ignore[dict-item]
        play.ask(case, "ShareAcknowledge", version, fields)

    ask("no session", 1, at)
    ask("the end of none", -1)
    acknowledge("acknowledged in no session", 1, [(0, 0, ACCEPT)])
    acknowledge("acknowledged at the end of none", -1, [(0, 0, ACCEPT)])
    ask("acknowledged in the first request", 0, acks={at: [(0, 0, ACCEPT)]})
    for version in (1, 2):
        ask(f"a new session (v{version})", 0, at, (topic, 1), version=version)
    ask("a wrong epoch", 2)
    acknowledge("acknowledged in a wrong epoch", 2, [(0, 0, ACCEPT)])
    acknowledge("acknowledged in epoch 0", 0, [(0, 0, ACCEPT)])
    ask("nothing new", 1)
    ask("the same epoch again", 1)
    acknowledge("accepted", 2, [(0, 0, ACCEPT)])
    produce_batches(play, topic, 2, partition=1)
    ask("records of the other partition", 3)
    ask("the other one is forgotten", 4, forget=[(topic, 1)])
    produce_batches(play, topic, 2, partition=1)
    ask("and not read", 5)
    ask("named again", 6, (topic, 1))
    ask("named, though it is there", 7, (topic, 1))
    ask("an acknowledgement names a partition", 8, acks={(topic, 1): [(0, 1, ACCEPT)]})
    ask("a partition that isn't there", 9, (topic, 7))
    ask("and again", 10)
    ask("it is forgotten", 11, forget=[(topic, 7)])
    written = len(share_records_of(play, group, topic))
    ask("the end", -1, acks={at: [(1, 1, ACCEPT)]})
    play.until("all is given back", lambda: len(share_records_of(play, group, topic)) >= written + 2)
    ask("a new session after the end", 0, at)
    ask("a new one in its place", 0, at)
    ask("the old one's records are the new one's", 1, acks={at: [(2, 2, ACCEPT)]})
    for case, fields in {
        "no group": share_fetch(None, "m", 0, at),
        "no member": share_fetch(group, "", 0, at),
        "a member without name": share_fetch(group, None, 0, at),
        "a member with too long a name": share_fetch(group, "m" * 37, 0, at),
        "a member with a long name": share_fetch(group, "m" * 36, 0, at),
    }.items():
        play.ask(case, "ShareFetch", 2, fields, on="names")


@script(properties="shares", needs=NEEDS)
def partitions_that_cannot_be_fetched(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group = share_group(play, "g", (topic, 0))
    produce_batches(play, topic, 3)
    at, absent = (topic, 0), (topic, 1)
    fields = share_fetch(group, "a", 0, absent, max_wait_ms=SHORT_MS)
    play.ask("not initialized", "ShareFetch", 2, fields, on="a")
    fields = share_fetch(group, "a", 1, max_wait_ms=SHORT_MS)
    play.ask("and again", "ShareFetch", 2, fields, on="a")
    play.ask("an unknown topic", "ShareFetch", 2, share_fetch(group, "c", 0, (UNKNOWN, 0)), on="c")
    play.ask("unknown yet", "ShareFetch", 2, share_fetch(group, "c", 1), on="c")
    play.ask("forgotten", "ShareFetch", 2, share_fetch(group, "c", 2, forget=[(UNKNOWN, 0)]), on="c")
    fields = share_acknowledge(group, "c", 3, {(UNKNOWN, 0): [(0, 0, ACCEPT)], at: [(0, 0, ACCEPT)]})
    play.ask("an unknown topic is acknowledged", "ShareAcknowledge", 2, fields, on="c")
    for number, (case, how) in enumerate(
        {
            "no partitions": {},
            "a mode that there isn't": {"share_acquire_mode": 2},
            "no records": {"max_records": 0, "max_wait_ms": LONG_MS},
            "no bytes": {"max_bytes": 0, "max_wait_ms": LONG_MS},
            "few bytes": {"max_bytes": 1},
        }.items()
    ):
        parts = [] if case == "no partitions" else [(topic, 0)]
        fields = share_fetch(group, f"d{number}", 0, *parts, **how)
        play.ask(case, "ShareFetch", 2, fields, on="d")


@script(properties="shares", needs=NEEDS)
def whole_batches_and_limits(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0), partition_max_record_locks="100")
    produce_batches(play, topic, *[20] * 12)
    one, two = ShareConsumer(play, group, topic, "one"), ShareConsumer(play, group, topic, "two")
    one.fetch("cut at borders of batches", batch_size=30, max_records=90)
    two.fetch("the rest that may be in flight")
    two.fetch("nothing more")
    one.ack("some in the middle are given back", (50, 52, RELEASE), (57, 57, RELEASE))
    two.fetch("given back, and nothing behind", max_records=2)
    two.fetch("nothing is left")
    one.ack("the first are done with", (0, 19, ACCEPT), (20, 39, REJECT))
    two.fetch("new ones")
    one.ack("gaps and mixed types", (40, 43, [ACCEPT, RELEASE, REJECT, GAP]))
    one.fetch("given back and new", max_records=3)


@script(properties="shares", needs=NEEDS)
def mode_record_limit(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    produce_batches(play, topic, 10, 10, 5)
    one, two = ShareConsumer(play, group, topic, "one"), ShareConsumer(play, group, topic, "two")
    one.fetch("a part of a batch", share_acquire_mode=1, max_records=4)
    two.fetch("of the rest", share_acquire_mode=1, max_records=3)
    two.fetch("over the border", share_acquire_mode=1, max_records=6, batch_size=2)
    one.ack("given back", (0, 3, RELEASE))
    two.fetch("given back first", share_acquire_mode=1, max_records=2)
    one.fetch("whole batches again")


@script(properties="shares", needs=NEEDS)
def deliveries(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    produce_batches(play, topic, 16, 4)
    consumer = ShareConsumer(play, group, topic)
    for number in range(12):
        answer = consumer.fetch(f"delivery {number}")
        acquired = answer.responses[0].partitions[0].acquired_records if answer.responses else []
        if acquired:
            parts = [(each.first_offset, each.last_offset, RELEASE) for each in acquired]
            consumer.ack(f"given back {number}", *parts)
    play.note("written", share_records_of(play, group, topic))


@script(properties="shares", needs=NEEDS)
def good_and_bad_acknowledgements(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group = share_group(play, "g", (topic, 0), (topic, 1))
    produce_batches(play, topic, 10, 10, 10)
    one, two = ShareConsumer(play, group, topic, "one"), ShareConsumer(play, group, topic, "two")
    one.fetch("the first batch", max_records=1)
    two.fetch("the second one", max_records=1)
    for case, acks in {
        "first behind last": [(3, 2, ACCEPT)],
        "backwards": [(3, 4, ACCEPT), (2, 2, ACCEPT)],
        "the last one again": [(3, 4, RENEW + 1)],
        "a type below 0": [(0, 0, -1)],
        "renewed, and not said so": [(0, 0, RENEW)],
        "no types": [(0, 0, [])],
        "too few types": [(0, 2, [ACCEPT, ACCEPT])],
        "too many types": [(0, 0, [ACCEPT, ACCEPT])],
        "another member's": [(10, 10, ACCEPT)],
        "some of another member's": [(9, 10, ACCEPT)],
        "behind what is in flight": [(20, 20, ACCEPT)],
        "over its end": [(19, 20, ACCEPT)],
        "far behind": [(1000, 1001, ACCEPT)],
        "twice": [(0, 1, ACCEPT), (1, 1, ACCEPT)],
        "good, then bad": [(0, 4, ACCEPT), (12, 12, ACCEPT)],
        "nothing": [],
    }.items():
        one.ack(case, *acks)  # type: ignore[arg-type]
    one.ack("good", (0, 2, ACCEPT))
    one.ack("again", (0, 2, ACCEPT))
    one.ack("below the start and behind it", (1, 3, REJECT))
    one.ack("in the middle", (6, 6, ACCEPT))
    one.ack("in the middle again", (6, 6, RELEASE))
    one.ack("around it", (5, 7, ACCEPT))
    one.fetch("with a fetch, bad", (6, 6, ACCEPT), max_records=0)
    one.fetch("with a fetch, good", (4, 5, GAP), max_records=0)
    fields = share_acknowledge(
        group, "one", one.epoch, {(topic, 0): [(7, 7, ACCEPT)], (topic, 1): [(0, 0, ACCEPT)]}
    )
    play.ask("of two partitions", "ShareAcknowledge", 2, fields, on=one.on)
    one.epoch += 1
    old = ShareConsumer(play, group, topic, "old", version=1)
    old.fetch("version 1")
    for kind in (RENEW, REJECT, GAP):
        old.ack(f"version 1, type {kind}", (20, 22, kind))
    play.note("written", share_records_of(play, group, topic))


@script(properties="shares", needs=NEEDS)
def renewal(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    refused = share_group(play, "h", (topic, 0), renew_acknowledge_enable="false")
    produce_batches(play, topic, 5, 5)
    consumer = ShareConsumer(play, group, topic)
    consumer.fetch("two batches", batch_size=5)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    for name in nothing:
        fields = {**nothing, name: 1}
        consumer.fetch(f"{name} isn't 0", (0, 4, RENEW), is_renew_ack=True, **fields)
    consumer.fetch("renewed with a fetch", (0, 4, RENEW), is_renew_ack=True, **nothing)
    consumer.ack(
        "renewed and mixed", (0, 4, [RENEW, ACCEPT, RELEASE, REJECT, GAP]), (5, 9, RENEW), renews=True
    )
    consumer.ack("what isn't acquired", (1, 2, RENEW), renews=True)
    consumer.ack("said so, and none is", (0, 0, ACCEPT), renews=True)
    consumer.fetch("what was given back")
    other = ShareConsumer(play, refused, topic, "other")
    other.fetch("of a group without renewal")
    other.ack("it may not", (0, 4, RENEW), renews=True)
    other.ack("nor with others", (0, 0, ACCEPT), (1, 1, RENEW), renews=True)


@script(properties="shares", needs=NEEDS)
def locks_and_connections_that_end(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0), record_lock_duration_ms="1000", delivery_count_limit="3")
    one, two = ShareConsumer(play, group, topic, "one"), ShareConsumer(play, group, topic, "two")

    def until_written(count: int) -> None:
        play.until("it is written", lambda: len(share_records_of(play, group, topic)) >= count)

    produce_batches(play, topic, 4)
    one.fetch("a batch")
    waiting = two.send("after the lock", max_wait_ms=LONG_MS)
    play.receive(waiting, within_s=20.0)
    one.ack("too late", (0, 0, ACCEPT))
    two.ack("one of them", (1, 1, ACCEPT))
    until_written(6)  # the snapshot, the lock of the batch, the acknowledgement, the locks of three offsets
    one.fetch("for the last time")
    until_written(7)
    configure(play, group, record_lock_duration_ms="30000")
    one.fetch("the first one is archived")
    produce_batches(play, topic, 4)
    three = ShareConsumer(play, group, topic, "three")
    three.fetch("new ones")
    written = len(share_records_of(play, group, topic))
    three.hang_up()
    until_written(written + 1)
    two.fetch("after the connection")
    play.note("written", [record[1]["state_batches"] for record in share_records_of(play, group, topic)])


@script(properties="shares", needs=NEEDS)
def waits(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group = share_group(play, "g", (topic, 0), (topic, 1))
    consumer = ShareConsumer(play, group, topic)
    waiting = consumer.send("something is appended", max_wait_ms=LONG_MS)
    produce_batches(play, topic, 3)
    play.receive(waiting, within_s=20.0)
    waiting = consumer.send("more bytes than come at first", max_wait_ms=LONG_MS, min_bytes=300)
    produce_batches(play, topic, 1)
    produce_batches(play, topic, 20)
    play.receive(waiting, within_s=20.0)
    produce_batches(play, topic, 1)
    consumer.fetch("fewer bytes than asked for, after the wait", max_wait_ms=200, min_bytes=10_000)
    consumer.fetch("nothing, after the wait", max_wait_ms=200)


@script(properties="shares", needs=NEEDS)
def transactions(play: Play) -> None:
    """Data 0-1, committed 2-4 and marker 5, aborted 6-8 and marker 9, data 10-11, and 12-13 of an open transaction."""
    topic = play.topic("t")
    coordinator_is_there(play)
    all_of_it = share_group(play, "a", (topic, 0))
    committed = share_group(play, "c", (topic, 0), isolation_level="read_committed")
    producer = Producer(play, "p").init()
    produce_batches(play, topic, 2)
    producer.send(topic, count=3)
    producer.end()
    producer.send(topic, count=3)
    producer.end(commit=False)
    produce_batches(play, topic, 2)
    producer.send(topic, count=2)
    ShareConsumer(play, all_of_it, topic, "all").fetch("uncommitted")
    consumer = ShareConsumer(play, committed, topic, "committed")
    consumer.fetch("committed")
    consumer.ack("accepted", (0, 5, ACCEPT), (9, 11, ACCEPT))
    play.note("written", share_records_of(play, committed, topic))
    producer.end()
    consumer.fetch("committed since", max_wait_ms=5_000)


@script(properties="shares", needs=NEEDS)
def deleted_records(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    produce_batches(play, topic, 10, 10, 10, 10)
    one, two = ShareConsumer(play, group, topic, "one"), ShareConsumer(play, group, topic, "two")
    one.fetch("two batches", max_records=20, batch_size=10)
    one.ack("the second one is given back", (10, 19, RELEASE))
    fields = {
        "topics": [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 15}]}],
        "timeout_ms": 10_000,
    }
    play.ask("deleted up to 15", "DeleteRecords", 2, fields)
    two.fetch("an empty answer")
    two.fetch("what is left of the batch", max_records=1)
    one.ack("what was deleted", (0, 9, ACCEPT))
    two.ack("around the new start", (15, 19, ACCEPT))
    two.fetch("behind it")
    play.note("written", share_records_of(play, group, topic))


@script(properties="shares", needs=NEEDS)
def a_state_that_is_altered(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    produce_batches(play, topic, 5, 5)
    consumer = ShareConsumer(play, group, topic)
    consumer.fetch("both batches")
    play.quietly("InitializeShareGroupState", 0, initialize(group, (topic, 0), state_epoch=5, start=7))
    consumer.ack("the write is fenced", (0, 4, ACCEPT))
    consumer.fetch("from the altered start", max_wait_ms=LONG_MS)
    consumer.ack("and written", (7, 9, ACCEPT))
    play.ask("its summary", "ReadShareGroupStateSummary", 1, summary(group, (topic, 0)))


@script(properties="shares", needs=NEEDS)
def a_restart(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    produce_batches(play, topic, 5, 5, 5, 5)
    consumer = ShareConsumer(play, group, topic)
    consumer.fetch("batches of five", batch_size=5)
    consumer.ack("some of each kind", (5, 6, ACCEPT), (8, 8, RELEASE), (14, 14, REJECT))
    play.broker.restart(kill=True)  # with the session open
    play.close()
    consumer.fetch("no session")
    consumer.epoch = 0
    play.until_there(topic.name)
    consumer.fetch("all that isn't done with", max_wait_ms=5_000)
    consumer.ack("done", (0, 13, ACCEPT), (15, 19, ACCEPT))
    consumer.fetch("nothing")
    play.ask("its summary", "ReadShareGroupStateSummary", 1, summary(group, (topic, 0)))
    play.note("written", share_records_of(play, group, topic))


def _history(play: Play, seed: int) -> None:
    drawn = random.Random(seed)
    topic = play.topic(f"t{seed}")
    limit = drawn.choice([2, 3, 5])
    group = share_group(
        play, f"g{seed}", (topic, 0), partition_max_record_locks="100", delivery_count_limit=str(limit)
    )
    consumers = [ShareConsumer(play, group, topic, f"{name}{seed}") for name in "abc"]
    held: dict[str, list[tuple[int, int]]] = {each.member: [] for each in consumers}
    for step in range(40):
        what = drawn.random()
        consumer = drawn.choice(consumers)
        case = f"seed {seed}, step {step}, {consumer.member[0]}"
        if what < 0.2:
            play.write(topic.name, *(batch(drawn.randint(1, 12)) for _ in range(drawn.randint(1, 4))))
        elif what < 0.55 or consumer.epoch == 0:
            answer = consumer.fetch(
                f"{case} fetches",
                max_records=drawn.choice([1, 5, 20, 100]),
                batch_size=drawn.choice([1, 10, 500]),
                share_acquire_mode=drawn.choice([0, 0, 1]),
            )
            for each in answer.responses:
                for acquired in each.partitions[0].acquired_records:
                    held[consumer.member].append((acquired.first_offset, acquired.last_offset))
        else:
            acks = []
            for first, last in sorted(
                drawn.sample(held[consumer.member], min(2, len(held[consumer.member])))
            ):
                at = drawn.randint(first, last)
                end = drawn.randint(at, last + drawn.choice([0, 0, 0, 3]))
                kinds = [drawn.choice([GAP, ACCEPT, ACCEPT, RELEASE, REJECT]) for _ in range(end - at + 1)]
                acks.append((at, end, kinds if drawn.random() < 0.3 else kinds[0]))
            consumer.ack(f"{case} acknowledges", *acks)
    play.ask(f"seed {seed}, its summary", "ReadShareGroupStateSummary", 1, summary(group, (topic, 0)))
    play.note(f"seed {seed}, written", share_records_of(play, group, topic))


@script(properties="shares", needs=NEEDS)
def histories(play: Play) -> None:
    for seed in range(16):
        _history(play, seed)
