"""A member's share session at one broker: fetches, and acknowledgements with them or alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from broker.shares.share_partition_manager import LedSharePartition
from coordinator.share_partition.states import AcknowledgeType, AcquireMode
from protocol.errors import Error
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchedPartition,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.records.batch import read_records, walk_batches
from tests.simulation.shares.deliveries import Acknowledgement, Deliveries, Delivery, Session
from tests.simulation.wire_client import NoAnswer, WireClient
from tests.simulation.work import Place

FINAL_EPOCH = -1
NO_SESSION = frozenset({Error.SHARE_SESSION_NOT_FOUND, Error.INVALID_SHARE_SESSION_EPOCH})
"""After these errors nothing was done."""

Hand = dict[Place, dict[int, Delivery]]
"""What a member holds, as far as it knows, by offset."""
Kinds = dict[Place, dict[int, int]]
"""How to acknowledge it."""


@dataclass(frozen=True)
class Group:
    """What the members of one group share. `ids`: its topics' ids. `term_of`: what leads a partition for a group at a
    broker, or None. `leads`: True if the broker surely leads the partition."""

    name: str
    topics: list[str]
    ids: dict[str, bytes]
    deliveries: Deliveries
    term_of: Callable[[str, str, Place], LedSharePartition | None]
    leads: Callable[[str, Place], bool]

    def place(self, topic_id: bytes, index: int) -> Place:
        [name] = [name for name, known in self.ids.items() if known == topic_id]
        return name, index


class ShareSession:
    """`hand`: the member's, whichever session filled it."""

    def __init__(self, group: Group, member_id: str, broker: str, client: WireClient, hand: Hand) -> None:
        self.group = group
        self.member_id = member_id
        self.broker = broker
        self.client = client
        self.hand = hand
        self.past: Hand = {}
        """What it held before."""
        self._last: Hand = {}
        """The last delivery of each offset, whether it is still held or not."""
        self.finds_no_leader = False
        """True if the last fetch got an error that a partition isn't led here."""
        self._luck = client.luck
        self._epoch = 0
        self._places: list[Place] = []
        self._session = Session(member_id)
        self._given_by: dict[Place, LedSharePartition] = {}
        """The leaders that gave this session records."""

    @property
    def is_open(self) -> bool:
        return self._epoch > 0

    # --- asking ---------------------------------------------------------------------------------------------

    async def fetch(self, places: Iterable[Place], kinds: Kinds, *, max_wait_ms: int) -> None:
        """Fetch these partitions from now on, and take what comes. Raises NoAnswer."""
        wanted = sorted(places)
        added = [place for place in wanted if place not in self._places or not self.is_open]
        forgotten = [place for place in self._places if place not in wanted and place not in kinds]
        luck = self._luck
        version = luck.choice((1, 2, 2, 2))
        request = ShareFetchRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=luck.choice((1, 1, 1, 400)),
            max_bytes=luck.choice((1 << 20, 1 << 20, 2_000)),
            max_records=luck.choice((1, 5, 30, 500)),
            batch_size=luck.choice((1, 3, 500)),
        )
        if version > 1:
            request.share_acquire_mode = luck.choice([*AcquireMode])
        if any(AcknowledgeType.RENEW in each.values() for each in kinds.values()):
            version, request.is_renew_ack = 2, True
            request.max_wait_ms = request.min_bytes = request.max_bytes = request.max_records = 0
        if self.is_open:
            request.forgotten_topics_data = self._forgotten(forgotten)
        await self._ask_to_fetch(request, version, kinds, added, wanted)

    async def _ask_to_fetch(
        self, request: ShareFetchRequest, version: int, kinds: Kinds, added: list[Place], wanted: list[Place]
    ) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        for topic, index in sorted({*added, *kinds}):
            batches = self._batches(kinds.get((topic, index), {}))
            topics.setdefault(topic, []).append(
                FetchPartition(partition_index=index, acknowledgement_batches=batches)
            )
        request.topics = [
            FetchTopic(topic_id=self.group.ids[topic], partitions=partitions)
            for topic, partitions in topics.items()
        ]
        if request.share_session_epoch == 0:
            self._session = Session(self.member_id)
            self._given_by.clear()
        sent_s = self.client.now_s()
        told = self._acknowledging(kinds, sent_s)
        names = frozenset(wanted) | kinds.keys()
        before = {place: self._term(place) for place in names}
        led = {place for place in names if self.group.leads(self.broker, place)}
        try:
            answer = await self.client.ask(request, version)
        except NoAnswer:
            self.group.deliveries.lost_answer(names, sent_s)
            self.is_lost(sent_s)
            raise
        self._look_at_connection(sent_s)
        error = Error(answer.error_code)
        if error is not Error.NONE:
            if error not in NO_SESSION:
                self.group.deliveries.lost_answer(names, sent_s)
            self._refused(error, told)
            return
        self._epoch += 1
        self.finds_no_leader = False
        self._places = sorted(names)  # partitions named only for their acknowledgements are added, too
        terms = self._terms(before)
        for topic in answer.responses:
            for partition in topic.partitions:
                place = self.group.place(topic.topic_id, partition.partition_index)
                acknowledged = Error(partition.acknowledge_error_code)
                self._acknowledged(place, told.pop(place, []), acknowledged, terms.get(place))
                is_old = place not in led or not self.group.leads(self.broker, place)
                self._take(place, partition, sent_s, terms.get(place), is_old=is_old)
        assert not any(told.values()), "acknowledgements aren't answered"
        self._check(request, answer, names)

    async def acknowledge(self, kinds: Kinds, *, final: bool = False) -> None:
        """Acknowledge without fetching; with `final` as the session's last request. Raises NoAnswer."""
        topics: dict[str, list[AcknowledgePartition]] = {}
        for (topic, index), of_place in sorted(kinds.items()):
            partition = AcknowledgePartition(
                partition_index=index, acknowledgement_batches=self._batches(of_place)
            )
            topics.setdefault(topic, []).append(partition)
        renews = any(AcknowledgeType.RENEW in each.values() for each in kinds.values())
        request = ShareAcknowledgeRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            share_session_epoch=FINAL_EPOCH if final else self._epoch,
            topics=[
                AcknowledgeTopic(topic_id=self.group.ids[topic], partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )
        if renews:
            request.is_renew_ack = True
        sent_s = self.client.now_s()
        if final:
            self._session.over_s = min(self._session.over_s, sent_s)
        told = self._acknowledging(kinds, sent_s)
        before = {place: self._term(place) for place in kinds}
        try:
            answer = await self.client.ask(request, 2 if renews else self._luck.choice((1, 2)))
        except NoAnswer:
            self.is_lost(sent_s)
            raise
        self._look_at_connection(sent_s)
        error = Error(answer.error_code)
        if error is not Error.NONE:
            self._refused(error, told)
            return
        self._epoch = 0 if final else self._epoch + 1
        terms = self._terms(before)
        for topic_answer in answer.responses:
            for partition_answer in topic_answer.partitions:
                place = self.group.place(topic_answer.topic_id, partition_answer.partition_index)
                self._acknowledged(
                    place, told.pop(place, []), Error(partition_answer.error_code), terms.get(place)
                )
        assert not any(told.values()), "acknowledgements aren't answered"

    def lets_go(self, place: Place, offset: int) -> None:
        """Let go of a record: the member no longer holds it, as far as it knows."""
        delivery = self.hand.get(place, {}).pop(offset, None)
        if delivery is not None:
            self.past.setdefault(place, {})[offset] = delivery

    def _look_at_connection(self, sent_s: float) -> None:
        """The connection may have been closed after the request, although the answer came."""
        if not self.client.is_connected:
            self._session.over_s = min(self._session.over_s, sent_s)

    def is_lost(self, since_s: float) -> None:
        """Note that the connection is lost; the next request opens a new session."""
        self._session.over_s = min(self._session.over_s, since_s)
        self._epoch = 0

    def close(self) -> None:
        """End the connection."""
        self.is_lost(self.client.now_s())
        self.client.close()

    # --- requests -------------------------------------------------------------------------------------------

    def _forgotten(self, places: Iterable[Place]) -> list[ForgottenTopic]:
        by_topic: dict[str, list[int]] = {}
        for topic, index in places:
            by_topic.setdefault(topic, []).append(index)
        return [
            ForgottenTopic(topic_id=self.group.ids[topic], partitions=indexes)
            for topic, indexes in by_topic.items()
        ]

    def _batches(self, kinds: Mapping[int, int]) -> list[AcknowledgementBatch]:
        """Group consecutive offsets now and then, with one type for all or one for each."""
        runs: list[dict[int, int]] = []
        for offset, kind in sorted(kinds.items()):
            last = next(reversed(runs[-1]), None) if runs else None
            begins = last is None or last + 1 != offset or self._luck.random() < 0.1
            if begins or (runs[-1][last] != kind and self._luck.random() < 0.5):  # type: ignore[index]
                runs.append({})
            runs[-1][offset] = kind
        batches = []
        for run in runs:
            types = [*run.values()]
            if len({*types}) == 1 and self._luck.random() < 0.7:
                types = types[:1]
            offsets = [*run]
            batches.append(
                AcknowledgementBatch(
                    first_offset=offsets[0], last_offset=offsets[-1], acknowledge_types=types
                )
            )
        return batches

    def _check(self, request: ShareFetchRequest, answer: ShareFetchResponse, names: frozenset[Place]) -> None:
        """Check that it isn't given what it doesn't fetch, nor, if that is strict, more than it asked for."""
        count = 0
        for topic in answer.responses:
            for partition in topic.partitions:
                place = self.group.place(topic.topic_id, partition.partition_index)
                assert place in names, f"{place} is answered, and isn't fetched"
                count += sum(each.last_offset - each.first_offset + 1 for each in partition.acquired_records)
        if request.share_acquire_mode == AcquireMode.RECORD_LIMIT:
            assert count <= request.max_records, f"{count} records are given instead of {request.max_records}"

    # --- answers --------------------------------------------------------------------------------------------

    def _term(self, place: Place) -> LedSharePartition | None:
        return self.group.term_of(self.broker, self.group.name, place)

    def _terms(self, before: Mapping[Place, LedSharePartition | None]) -> dict[Place, object | None]:
        """Return the terms in which the answers were given, if known. While the session goes on, a term only ends with
        the leadership. The share coordinator may know of that before the broker: it fences the state that a replaced
        leader writes."""
        found: dict[Place, object | None] = {}
        for place, known in before.items():
            now, given_by = self._term(place), self._given_by.get(place)
            if now is not None and given_by is not None and now is not given_by:
                is_led_on = now.leader is given_by.leader and self.group.leads(self.broker, place)
                assert not is_led_on or self.group.deliveries.may_lose, f"{place} is forgotten amid a session"
            found[place] = now if known is None or known is now else None
        return found

    def _acknowledging(self, kinds: Kinds, sent_s: float) -> dict[Place, list[Acknowledgement]]:
        deliveries = self.group.deliveries
        return {
            place: deliveries.acknowledging(self._session, place, of_place, self._last[place], sent_s)
            for place, of_place in kinds.items()
            if of_place
        }

    def _acknowledged(
        self, place: Place, told: list[Acknowledgement], error: Error, term: object | None
    ) -> None:
        now_s = self.client.now_s()
        for each in told:
            self.group.deliveries.acknowledged(each, error, now_s, term)
        if told:
            self.client.note(f"{len(told)} of {place} acknowledged: {error!r}")

    def _refused(self, error: Error, told: Mapping[Place, list[Acknowledgement]]) -> None:
        """Handle a refused request."""
        self.client.note(f"{self.member_id} at {self.broker}: {error!r}")
        if error in NO_SESSION:
            for place, of_place in told.items():
                self._acknowledged(place, of_place, error, None)
        self._session.over_s = -1.0  # nobody knows since when
        self._epoch = 0

    def _take(
        self, place: Place, partition: FetchedPartition, sent_s: float, term: object | None, *, is_old: bool
    ) -> None:
        error = Error(partition.error_code)
        if error is not Error.NONE:
            self.client.note(f"{place} can't be fetched: {error!r}")
            self.finds_no_leader = True
        if not partition.acquired_records:
            return
        if isinstance(term, LedSharePartition):
            self._given_by[place] = term
        values: dict[int, bytes] = {}
        data = memoryview(bytes(partition.records or b""))  # type: ignore[arg-type]
        for position, header in walk_batches(data):
            if not header.is_control:
                for record in read_records(data[position : position + header.size_bytes]):
                    values[record.offset] = bytes(record.value or b"")
        now_s = self.client.now_s()
        hand, last = self.hand.setdefault(place, {}), self._last.setdefault(place, {})
        for acquired in partition.acquired_records:
            count = acquired.delivery_count
            self.client.note(f"{place}: {acquired.first_offset} to {acquired.last_offset}, count {count}")
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                hand[offset] = last[offset] = self.group.deliveries.delivered(
                    self._session,
                    place,
                    offset,
                    count,
                    values.get(offset),
                    sent_s,
                    now_s,
                    term,
                    is_old=is_old,
                )
