"""What share consumers were given and have acknowledged, and all that a share group may be held to by it.

Times are seconds of one clock. A request was served at some moment between the one at which it was sent and the one at
which its answer came. A *term* is what a leader knows in memory of a share partition, from the reading of its durable
state until it is dropped: with its broker, with its leadership, or with the group's last session there.

Of every record (`complaints`):

1. Once its accept, reject or gap was answered with success, no fetch that is sent later is given it. In later terms
   that is demanded where the member surely held it: else it may be that its lock had ended at the limit and nobody had
   written that down yet; then the start is behind it, any acknowledgement is right, and the next leader delivers it
   once more, as in Kafka.
2. A delivery count is 1 at least, and the group's limit at most. In a term each delivery counts one more than the one
   before; those that are missing are answers that nobody got. Over the end of a term a count may be less: what was
   acquired and not written has left no trace (KIP-932, as in Kafka). It is never more than there were deliveries, and
   not less than that of a record that surely was given back before: that is written.
3. In a term a record is one member's at a time: until its lock's time is over, renewals counted, or the member has
   given it up, or its session ends.
4. Who surely holds a record may acknowledge it: it isn't refused as one that somebody else has. What somebody else
   surely holds it may not.
5. When all is over, what was never accepted nor rejected was delivered as often as the group's limit says, answers that
   nobody got counted. So each record was delivered once at least.
   - With `latest` that is demanded from the first record on of which a change was written: before, the group may begin
     anew (see GAPS.md).
   - What was deleted from the log is nobody's any more; nor is 1 demanded of it. Where the broker dies soon after it
     may be there again, as in Kafka, whose logs write down a minute later where they begin.
6. What lies in a delivery and has no value is no record: a marker, or what was aborted, or was never there.
7. Who reads committed records is given no aborted ones.

Where the machine may lose what it has acknowledged, durable state among it, 2 (but for its limits of a term) and 3 are
left, and of 1 nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from coordinator.share_partition.states import AcknowledgeType
from protocol.errors import Error
from tests.simulation.work import Place

FINAL = frozenset({AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT})
"""What is said last of a record."""
MAY_BE_WRITTEN = frozenset({None, Error.NONE, Error.NOT_LEADER_OR_FOLLOWER})
"""None: nobody knows what became of it. A leader whose write came through, and its answer didn't, writes again, and may
find then that another one leads: what it tells its client is in the durable state all the same, as in Kafka."""
NOT_HELD = frozenset({Error.INVALID_RECORD_STATE, Error.INVALID_REQUEST})
"""Of who acknowledges what isn't its own."""


@dataclass(eq=False, slots=True)
class Session:
    """A share session of a member at a broker. `over_s`: since when what it holds may be given back."""

    member_id: str
    over_s: float = math.inf


@dataclass(eq=False, slots=True)
class Delivery:
    """Of one record. `is_old`: by a leader that was none any more, or may have been."""

    session: Session
    count: int
    asked_s: float
    answered_s: float
    term: object | None
    is_old: bool
    value: bytes | None
    locked_until_s: float
    """At the earliest."""
    given_up_s: float = math.inf
    """When it was first acknowledged, whatever came of that."""

    @property
    def held_until_s(self) -> float:
        return min(self.locked_until_s, self.given_up_s, self.session.over_s)

    def may_precede(self, other: Delivery) -> bool:
        """Whether the record may have gone from this one to the other."""
        return self.asked_s <= other.answered_s and self.held_until_s <= other.answered_s


@dataclass(eq=False, slots=True)
class Acknowledgement:
    """Of one record. `delivery`: the one that it is about, as far as its member knows. `error`: None where nobody knows
    what became of it."""

    session: Session
    kind: int
    sent_s: float
    delivery: Delivery
    together: list[Acknowledgement] = field(repr=False)
    """All of one partition and one request: one of them that is wrong fails them all."""
    surely_held: bool = False
    answered_s: float = math.inf
    error: Error | None = None
    term: object | None = None

    @property
    def is_final(self) -> bool:
        """Whether the record is done with."""
        return self.error is Error.NONE and self.kind in FINAL

    @property
    def may_be_final(self) -> bool:
        return self.error in MAY_BE_WRITTEN and self.kind in FINAL


@dataclass(slots=True)
class Lost:
    """A fetch whose answer nobody got: it may have acquired anything of its partitions."""

    places: frozenset[Place]
    asked_s: float


@dataclass(slots=True)
class OfRecord:
    deliveries: list[Delivery] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)


class Deliveries:
    """Those of one group. `lock_s`, `limit`: of its settings."""

    def __init__(self, name: str, *, lock_s: float, limit: int, is_latest: bool, may_lose: bool) -> None:
        self.name = name
        self.lock_s = lock_s
        self.limit = limit
        self.is_latest = is_latest
        self.may_lose = may_lose
        self.records: dict[Place, dict[int, OfRecord]] = {}
        self.lost: list[Lost] = []
        self.written_s: dict[tuple[Place, int], float] = {}
        """Since when a record is there, where that is known."""

    def of(self, place: Place, offset: int) -> OfRecord:
        return self.records.setdefault(place, {}).setdefault(offset, OfRecord())

    # --- what happens ---------------------------------------------------------------------------------------

    def delivered(
        self,
        session: Session,
        place: Place,
        offset: int,
        count: int,
        value: bytes | None,
        asked_s: float,
        answered_s: float,
        term: object | None,
        *,
        is_old: bool = False,
    ) -> Delivery:
        """`term`: None where it isn't known."""
        locked_until_s = asked_s + self.lock_s
        delivery = Delivery(session, count, asked_s, answered_s, term, is_old, value, locked_until_s)
        self.of(place, offset).deliveries.append(delivery)
        return delivery

    def acknowledging(
        self,
        session: Session,
        place: Place,
        kinds: Mapping[int, int],
        held: Mapping[int, Delivery],
        sent_s: float,
    ) -> list[Acknowledgement]:
        """They are about to be sent together. By offset, `kinds` and what they are `held` by."""
        together: list[Acknowledgement] = []
        for offset, kind in kinds.items():
            delivery = held[offset]
            told = Acknowledgement(session, kind, sent_s, delivery, together)
            told.surely_held = delivery.given_up_s == math.inf and delivery.session is session
            if kind != AcknowledgeType.RENEW:
                delivery.given_up_s = min(delivery.given_up_s, sent_s)
            self.of(place, offset).acknowledgements.append(told)
            together.append(told)
        return together

    def acknowledged(
        self, told: Acknowledgement, error: Error, answered_s: float, term: object | None
    ) -> None:
        told.error, told.answered_s, told.term = error, answered_s, term
        if told.kind == AcknowledgeType.RENEW and error is Error.NONE:
            delivery = told.delivery
            # of what is done with a renewal is right as well, whoever asks for it
            if is_held(told):
                delivery.locked_until_s = max(delivery.locked_until_s, told.sent_s + self.lock_s)

    def lost_answer(self, places: frozenset[Place], asked_s: float) -> None:
        self.lost.append(Lost(places, asked_s))

    # --- what is known of it --------------------------------------------------------------------------------

    def is_done(self, place: Place, offset: int) -> bool:
        """Whether it is surely never delivered again."""
        of_record = self.records.get(place, {}).get(offset)
        return of_record is not None and any(each.is_final for each in of_record.acknowledgements)

    def first_written(self, place: Place) -> int | None:
        """The first offset of which a change was surely written, so that the group has a start from then on. (Of what
        lies before the start any acknowledgement is right, and changes nothing.)"""
        return min(
            (
                offset
                for offset, of_record in self.records.get(place, {}).items()
                for each in of_record.acknowledgements
                if each.error is Error.NONE and each.kind != AcknowledgeType.RENEW and is_held(each)
            ),
            default=None,
        )

    def is_due(self, place: Place, offset: int) -> bool:
        """Whether it has to be delivered, once more where it was before."""
        if self.is_latest:
            first = self.first_written(place)
            if first is None or offset < first:
                return False
        of_record = self.records.get(place, {}).get(offset) or OfRecord()
        if any(each.may_be_final for each in of_record.acknowledgements):
            return False
        known = max((each.count for each in of_record.deliveries), default=0)
        last_s = max(
            (each.asked_s for each in of_record.deliveries), default=self.written_s.get((place, offset), -1.0)
        )
        return known + self.lost_of(place, last_s) < self.limit

    def lost_of(self, place: Place, since_s: float = -1.0, until_s: float = math.inf) -> int:
        """How many answers nobody got that may have acquired any of it."""
        return sum(place in lost.places and since_s < lost.asked_s <= until_s for lost in self.lost)

    # --- what is wrong --------------------------------------------------------------------------------------

    def complaints(
        self,
        everything: Mapping[Place, Mapping[int, bytes]],
        committed: Mapping[Place, Mapping[int, bytes]] | None,
        begins: Mapping[Place, int],
    ) -> Iterator[str]:
        """Once all is over. `everything`: what the logs hold; `committed`: where the group reads only that. `begins`:
        what lies before was deleted, though it may be there again if its broker died soon, as in Kafka."""
        for place, records in self.records.items():
            for offset, of_record in sorted(records.items()):
                for complaint in self._of_record(place, of_record, may_come_back=offset < begins[place]):
                    yield f"{self.name}, {place} at {offset}: {complaint}"
                if not self.may_lose:
                    for complaint in _of_values(offset, of_record, everything[place], committed, place):
                        yield f"{self.name}, {place} at {offset}: {complaint}"
        if self.may_lose:
            return
        for place, values in (everything if committed is None else committed).items():
            for offset in sorted(values):
                if offset >= begins[place] and self.is_due(place, offset):
                    yield f"{self.name}, {place} at {offset}: is neither done with nor delivered {self.limit} times"

    def _of_record(self, place: Place, of_record: OfRecord, *, may_come_back: bool) -> Iterator[str]:
        """`may_come_back`: it was deleted, after which any acknowledgement of it is right."""
        for delivery in of_record.deliveries:
            if not 1 <= delivery.count <= self.limit:
                yield f"is delivered with count {delivery.count}, where {self.limit} is the limit"
        by_term: dict[object, list[Delivery]] = {}
        for delivery in of_record.deliveries:
            if delivery.term is not None:
                by_term.setdefault(delivery.term, []).append(delivery)
        for deliveries in by_term.values():
            yield from self._in_term(place, sorted(deliveries, key=lambda each: each.count))
        yield from self._counted_too_high(place, of_record)
        if self.may_lose:
            return
        if not may_come_back:
            yield from _of_what_is_done(of_record)
            yield from _of_what_was_given_back(of_record)
        yield from _of_holders(of_record)

    def _in_term(self, place: Place, deliveries: list[Delivery]) -> Iterator[str]:
        """Sorted by their counts."""
        for first, second in pairwise(deliveries):
            lost = self.lost_of(place, until_s=second.answered_s)
            if second.count == first.count:
                yield f"is delivered twice with count {first.count}"
            elif second.count > first.count + 1 + lost:
                yield f"is delivered with count {second.count} behind {first.count}, and {lost} answers were lost"
        for first, second in combinations(deliveries, 2):
            if not first.may_precede(second):
                yield (
                    f"is {second.session.member_id}'s at {second.answered_s:.6f}, "
                    f"and {first.session.member_id}'s until {first.held_until_s:.6f}"
                )

    def _counted_too_high(self, place: Place, of_record: OfRecord) -> Iterator[str]:
        """Of all terms together."""
        for delivery in of_record.deliveries:
            so_far = sum(each.asked_s <= delivery.answered_s for each in of_record.deliveries)
            lost = self.lost_of(place, until_s=delivery.answered_s)
            if delivery.count > so_far + lost:
                yield (
                    f"is delivered with count {delivery.count} to {delivery.session.member_id}, "
                    f"the {so_far}. time, and {lost} answers were lost"
                )


def _of_what_is_done(of_record: OfRecord) -> Iterator[str]:
    for told in of_record.acknowledgements:
        if not told.is_final:
            continue
        for delivery in of_record.deliveries:
            same_term = told.term is not None and told.term is delivery.term is told.delivery.term
            is_later = delivery.asked_s >= told.answered_s and not delivery.is_old
            is_later = is_later and (same_term or is_held(told))
            is_next = same_term and is_held(told) and delivery.count > told.delivery.count
            if is_later or is_next:
                yield (
                    f"was done with by {told.session.member_id} at {told.answered_s:.6f} (type {told.kind}), "
                    f"and is given to {delivery.session.member_id} by {delivery.answered_s:.6f}"
                )


def _of_what_was_given_back(of_record: OfRecord) -> Iterator[str]:
    for told in of_record.acknowledgements:
        if told.kind != AcknowledgeType.RELEASE or told.error is not Error.NONE or not is_held(told):
            continue
        count = told.delivery.count
        for delivery in of_record.deliveries:
            if delivery.count <= count and delivery.asked_s >= told.answered_s and not delivery.is_old:
                yield (
                    f"was given back by {told.session.member_id} at {told.answered_s:.6f} with count {count}, "
                    f"and is delivered with count {delivery.count} to {delivery.session.member_id}"
                )


def is_held(told: Acknowledgement) -> bool:
    """Whether its member surely held the record until it was answered, as far as nobody else is looked at."""
    delivery = told.delivery
    return (
        told.surely_held
        and told.term is not None
        and told.term is delivery.term
        and told.answered_s < min(delivery.locked_until_s, told.session.over_s)
    )


def _of_holders(of_record: OfRecord) -> Iterator[str]:
    for told in of_record.acknowledgements:
        if told.error in NOT_HELD and all(is_held(each) for each in told.together):
            yield f"is refused to {told.session.member_id} at {told.answered_s:.6f}, which holds it"
        if told.error is not Error.NONE or told.term is None:
            continue
        for other in of_record.deliveries:
            if (
                other.term is told.term
                and other.session.member_id != told.session.member_id
                and other.answered_s <= told.sent_s
                and other.held_until_s > told.answered_s
            ):
                yield (
                    f"is {other.session.member_id}'s until {other.held_until_s:.6f}, "
                    f"and {told.session.member_id} acknowledges it at {told.answered_s:.6f}"
                )


def _of_values(
    offset: int,
    of_record: OfRecord,
    everything: Mapping[int, bytes],
    committed: Mapping[Place, Mapping[int, bytes]] | None,
    place: Place,
) -> Iterator[str]:
    there = everything.get(offset)
    for delivery in of_record.deliveries:
        if delivery.value is None:
            expected = everything if committed is None else committed[place]
            if offset in expected:
                yield f"is given to {delivery.session.member_id} without its value, {expected[offset]!r}"
        elif there is not None and there != delivery.value:
            yield f"is given to {delivery.session.member_id} as {delivery.value!r}, and is {there!r}"
        elif there is not None and committed is not None and offset not in committed[place]:
            yield f"is given to {delivery.session.member_id}, and was aborted"
