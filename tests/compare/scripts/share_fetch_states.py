"""Every acknowledgement in every state of a record that a share group has in flight, cell by cell (KIP-932).

The state is that of a whole batch, or of each of its offsets once one of them is tracked separately. The batch's last
owner and another member acknowledge it: with one type for the whole batch, for a part of it and for one offset, and
with a type for each offset. A refused acknowledgement changes nothing, so the next one meets the same state. Each
accepted acknowledgement has its own batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..play import LONG_MS, SHORT_MS, Play, script
from ..scene import Topic
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
    share_group,
)
from ..share_state_requests import read, share_records_of

KINDS = {"gap": GAP, "accept": ACCEPT, "release": RELEASE, "reject": REJECT, "renew": RENEW}
SIZE = 3
NOTHING = {"max_records": 0, "batch_size": SIZE}

Asked = tuple[int, int, list[int]]
"""First and last offset, and the types."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two batches of one state, by their first offsets. One is whole; the middle of the other is tracked separately."""

    state: str
    owner: ShareConsumer
    whole: int

    @property
    def apart(self) -> int:
        return self.whole + SIZE

    def acknowledge_all(self, kind: int, when: str = "done") -> None:
        self.owner.ack(
            f"{self.state}: {when}", *((first, first + 2, kind) for first in (self.whole, self.apart))
        )


def _shapes(whole: int, apart: int, kind: int) -> dict[str, Asked]:
    return {
        "a whole batch": (whole, whole + 2, [kind]),
        "a part of a batch": (whole, whole + 1, [kind]),
        "each of a batch": (whole, whole + 2, [kind] * SIZE),
        "an offset": (apart + 1, apart + 1, [kind]),
        "a batch told apart": (apart, apart + 2, [kind]),
    }


SHAPES = len(_shapes(0, 0, 0))


def _ask(who: ShareConsumer, case: str, kind: str, asked: Asked) -> None:
    who.ack(f"{case}, {kind}", asked, renews=kind == "renew")


def _take(who: ShareConsumer, state: str, whole: int) -> Pair:
    """Acquire the next two batches. A renewed lock makes the broker track one batch's offsets one by one."""
    pair = Pair(state, who, whole)
    who.fetch(f"{state}: acquired", max_records=2 * SIZE, batch_size=SIZE)
    who.ack(f"{state}: told apart", (pair.apart + 1, pair.apart + 1, RENEW), renews=True)
    return pair


def _every_state(play: Play, group: str, topic: Topic) -> Iterator[Pair]:
    """Yield pairs after the first record, and last a pair that nobody has acquired yet."""
    firsts = iter(range(1, 1000, 2 * SIZE))

    def member(name: str) -> ShareConsumer:
        return ShareConsumer(play, group, topic, name)

    often = member("often")
    archived = _take(often, "delivered too often", next(firsts))
    archived.acknowledge_all(RELEASE, "given back")
    often.fetch("once more", max_records=2 * SIZE, batch_size=SIZE)
    archived.acknowledge_all(RELEASE)
    acknowledged = _take(member("accepts"), "accepted", next(firsts))
    rejected = _take(member("rejects"), "rejected", next(firsts))
    gaps = _take(member("knows"), "a gap", next(firsts))
    released = _take(member("releases"), "given back", next(firsts))
    left = _take(member("leaves"), "its session over", next(firsts))
    held = _take(member("holds"), "acquired", next(firsts))
    configure(play, group, record_lock_duration_ms="1000")
    late = Pair("its lock over", member("late"), next(firsts))
    late.owner.fetch("its lock over: acquired", max_records=2 * SIZE, batch_size=SIZE)
    configure(play, group, record_lock_duration_ms="30000")
    for pair, kind in ((acknowledged, ACCEPT), (rejected, REJECT), (gaps, GAP), (released, RELEASE)):
        pair.acknowledge_all(kind)
    left.owner.leave("its session over: it leaves")
    left.owner.fetch("its session over: a new one", **NOTHING)
    last = late.apart + 2
    play.until("its lock is over", lambda: _is_written(play, group, topic, last))
    yield from (archived, acknowledged, rejected, gaps, released, left, late)
    yield held
    yield Pair("not in flight", late.owner, next(firsts))


def _is_written(play: Play, group: str, topic: Topic, offset: int) -> bool:
    batches = [each for record in share_records_of(play, group, topic) for each in record[1]["state_batches"]]
    return any(first <= offset <= last for first, last, *_ in batches)


@script(properties="shares", needs=NEEDS)
def what_is_refused(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0), delivery_count_limit="2")
    produce_batches(play, topic, 1, *[SIZE] * 18)
    anchor, other = (ShareConsumer(play, group, topic, name) for name in ("anchor", "other"))
    anchor.fetch("the first record, which keeps the start where it is", max_records=1, batch_size=1)
    other.fetch("somebody else", **NOTHING)
    pairs = [*_every_state(play, group, topic)]
    for pair in pairs:
        for who, asks in (("its owner", pair.owner), ("another one", other)):
            if pair.state == "acquired" and asks is pair.owner:
                continue  # it may
            for kind, number in KINDS.items():
                for shape, asked in _shapes(pair.whole, pair.apart, number).items():
                    _ask(asks, f"{pair.state}, {who}, {shape}", kind, asked)
    anchor.ack("the first record is done with", (0, 0, ACCEPT))
    pair = pairs[0]
    for kind, number in KINDS.items():
        for shape, asked in _shapes(pair.whole, pair.apart, number).items():
            _ask(other, f"below the start, {shape}", kind, asked)
            _ask(other, f"from below the start, {shape}", kind, (0, pairs[-2].whole, [number]))
    ShareConsumer(play, group, topic, "rest").fetch("all that is available", batch_size=SIZE)
    play.ask("its state", "ReadShareGroupState", 0, read(group, (topic, 0)))
    play.note("written", share_records_of(play, group, topic))


@script(properties="shares", needs=NEEDS)
def what_is_taken(play: Play) -> None:
    """The owner acknowledges. Each type in each shape has its own two batches."""
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    pairs = len(KINDS) * SHAPES
    produce_batches(play, topic, *[SIZE] * (2 * pairs))
    owner = ShareConsumer(play, group, topic, "owner")
    owner.fetch("all of it", max_records=2 * pairs * SIZE, batch_size=SIZE)
    whole = 0
    for kind, number in KINDS.items():
        for shape in _shapes(0, 0, number):
            apart = whole + SIZE
            owner.ack(f"{shape}, {kind}: told apart", (apart + 1, apart + 1, RENEW), renews=True)
            _ask(owner, shape, kind, _shapes(whole, apart, number)[shape])
            _ask(owner, f"again, {shape}", kind, _shapes(whole, apart, number)[shape])
            whole += 2 * SIZE
    ShareConsumer(play, group, topic, "rest").fetch("all that is available", batch_size=SIZE)
    play.ask("its state", "ReadShareGroupState", 0, read(group, (topic, 0)))
    play.note("written", share_records_of(play, group, topic))


@script(properties="shares", needs=NEEDS)
def a_log_shorter_than_the_state(play: Play) -> None:
    """An unclean election leaves such a log. Kafka answers at once, and the answers are the same."""
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0), start=4)
    produce_batches(play, topic, 2)
    consumer = ShareConsumer(play, group, topic)
    for number in range(3):
        consumer.fetch(f"nothing to read, {number}", max_wait_ms=SHORT_MS)
    produce_batches(play, topic, 1, SIZE)
    consumer.fetch("what the group hasn't had", max_wait_ms=LONG_MS)
    consumer.ack("accepted", (4, 5, ACCEPT))
    play.ask("its state", "ReadShareGroupState", 0, read(group, (topic, 0)))
    play.note("written", share_records_of(play, group, topic))
