"""What share consumers were given and have acknowledged, and the rules for a share group that follow from it.

Times are seconds of one clock. A request was served at some moment between its sending and the arrival of its answer.
A *term* is what a leader knows about a share partition in memory, from reading the durable state until it drops it:
with its broker, its leadership, or the group's last session there.

Rules for every record (`complaints`):

1. Once its accept, reject or gap was answered with success, no later fetch returns it. In later terms this rule only
   applies if the member surely held the record. Otherwise its lock may have expired at the limit without anybody
   writing that down yet. Then the start is after it, any acknowledgement is right, and the next leader delivers it
   once more, as in Kafka.
2. A delivery count is at least 1, and at most the group's limit. Within a term each delivery counts one more than the
   one before; missing counts are answers that nobody got. After the end of a term a count may be lower: what was
   acquired and not written leaves no trace (KIP-932, as in Kafka). It is never more than the deliveries so far, and
   not less than that of a record that surely was given back before, because that was written.
3. Within a term a record belongs to one member at a time: until its lock expires, renewals included, or the member has
   given it up, or its session ends.
4. A member that surely holds a record may acknowledge it: it isn't refused as somebody else's. What somebody else
   surely holds, a member may not acknowledge.
5. When all is over, what was never accepted nor rejected was delivered as often as the group's limit says, lost answers
   included. So each record was delivered at least once.
   - With `latest` this applies from the first record on with a written change: before that, the group may begin again
     (see GAPS.md).
   - Records that were deleted from the log belong to nobody any more, and rule 1 doesn't apply to them. If the broker
     dies soon, they may be back, as in Kafka, whose logs record their start a minute later.
6. What is in a delivery without a value isn't a record: a marker, an aborted record, or an offset that never existed.
7. Readers of committed records get no aborted ones.

If the machine may lose what it has acknowledged, durable state included, only rules 2 (within a term) and 3 apply.
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
"""The final acknowledgements of a record."""
MAY_BE_WRITTEN = frozenset({None, Error.NONE, Error.NOT_LEADER_OR_FOLLOWER})
"""None: nobody knows what became of it. A leader whose write succeeded without an answer writes again, and may then
find that another one leads. What it tells its client is durable all the same, as in Kafka."""
NOT_HELD = frozenset({Error.INVALID_RECORD_STATE, Error.INVALID_REQUEST})
"""Errors for acknowledging what isn't one's own."""


@dataclass(eq=False, slots=True)
class Session:
    """A share session of a member at a broker. `over_s`: since when what it holds may be given back."""

    member_id: str
    over_s: float = math.inf


@dataclass(eq=False, slots=True)
class Delivery:
    """A delivery of one record. `is_old`: by a former leader, or perhaps a former one."""

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
    """When it was first acknowledged, whatever became of that."""

    @property
    def held_until_s(self) -> float:
        return min(self.locked_until_s, self.given_up_s, self.session.over_s)

    def may_precede(self, other: Delivery) -> bool:
        """Return True if the record may have gone from this delivery to the other."""
        return self.asked_s <= other.answered_s and self.held_until_s <= other.answered_s


@dataclass(eq=False, slots=True)
class Acknowledgement:
    """An acknowledgement of one record. `delivery`: the one that it is about, as far as its member knows. `error`: None
    if nobody knows what became of it."""

    session: Session
    kind: int
    sent_s: float
    delivery: Delivery
    together: list[Acknowledgement] = field(repr=False)
    """All of one partition and one request. If one of them is wrong, all fail."""
    surely_held: bool = False
    answered_s: float = math.inf
    error: Error | None = None
    term: object | None = None

    @property
    def is_final(self) -> bool:
        """True if the record is done with."""
        return self.error is Error.NONE and self.kind in FINAL

    @property
    def may_be_final(self) -> bool:
        return self.error in MAY_BE_WRITTEN and self.kind in FINAL


@dataclass(slots=True)
class Lost:
    """A fetch whose answer nobody got. It may have acquired anything in its partitions."""

    places: frozenset[Place]
    asked_s: float


@dataclass(slots=True)
class OfRecord:
    deliveries: list[Delivery] = field(default_factory=list)
    acknowledgements: list[Acknowledgement] = field(default_factory=list)


class Deliveries:
    """The deliveries of one group. `lock_s`, `limit`: from its settings."""

    def __init__(self, name: str, *, lock_s: float, limit: int, is_latest: bool, may_lose: bool) -> None:
        self.name = name
        self.lock_s = lock_s
        self.limit = limit
        self.is_latest = is_latest
        self.may_lose = may_lose
        self.records: dict[Place, dict[int, OfRecord]] = {}
        self.lost: list[Lost] = []
        self.written_s: dict[tuple[Place, int], float] = {}
        """Since when a record is there, if known."""

    def of(self, place: Place, offset: int) -> OfRecord:
        return self.records.setdefault(place, {}).setdefault(offset, OfRecord())

    # --- events ---------------------------------------------------------------------------------------------

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
        """`term`: None if it is unknown."""
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
        """Note acknowledgements that are about to be sent together: by offset, `kinds` and the deliveries `held`."""
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
            # renewing what is done with is right as well, whoever asks for it
            if is_held(told):
                delivery.locked_until_s = max(delivery.locked_until_s, told.sent_s + self.lock_s)

    def lost_answer(self, places: frozenset[Place], asked_s: float) -> None:
        self.lost.append(Lost(places, asked_s))

    # --- what is known --------------------------------------------------------------------------------------

    def is_done(self, place: Place, offset: int) -> bool:
        """Return True if it is surely never delivered again."""
        of_record = self.records.get(place, {}).get(offset)
        return of_record is not None and any(each.is_final for each in of_record.acknowledgements)

    def first_written(self, place: Place) -> int | None:
        """Return the first offset with a change that was surely written, so that the group has a start from then on.
        (Any acknowledgement before the start is right, and changes nothing.)"""
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
        """Return True if it must be delivered, or delivered again."""
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
        """Return how many lost answers may have acquired any of it."""
        return sum(place in lost.places and since_s < lost.asked_s <= until_s for lost in self.lost)

    # --- what is wrong --------------------------------------------------------------------------------------

    def complaints(
        self,
        everything: Mapping[Place, Mapping[int, bytes]],
        committed: Mapping[Place, Mapping[int, bytes]] | None,
        begins: Mapping[Place, int],
    ) -> Iterator[str]:
        """Yield complaints once everything is over. `everything`: what the logs hold. `committed`: the committed
        records, if the group only reads those. `begins`: earlier records were deleted, though they may be back if their
        broker died soon, as in Kafka."""
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
        """`may_come_back`: it was deleted; then any acknowledgement of it is right."""
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
        """The deliveries are sorted by their counts."""
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
        """Over all terms together."""
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
    """Return True if its member surely held the record until the answer, apart from what others did."""
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
