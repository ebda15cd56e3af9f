"""Counts of requests for metrics: how many of each API, how long they take, the errors in their answers, and what they
carry for each topic.

Numbers only go up here; the scraper makes rates of them. Only a node with a listener for metrics counts, from the
moment it has one. Appends of coordinators and the controller aren't requests of clients, so the counts of topics don't
include them.

Counting may cost a request some 2 µs and no more. So names of errors and sums over topics are made at a scrape.
Source: `RequestMetrics`, `BrokerTopicMetrics`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from struct import Struct as Layout
from typing import TYPE_CHECKING, Any

from broker.coordination.hosted_shards import SAMPLES, Durations
from broker.metrics.idleness import Idleness
from broker.network.observed_requests import LATERS, HungUpError, ObservedLater
from protocol.errors import Error
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.groups import HeartbeatResponse
from protocol.messages.produce import InitProducerIdResponse, ProduceRequest, ProduceResponse
from protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    EndTxnResponse,
)
from protocol.records.batch import BATCH_LENGTH_POS, INT32, LAST_OFFSET_DELTA_POS, LOG_OVERHEAD
from protocol.wire.schema import Struct, error_codes

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.network.context import RequestContext
    from broker.network.observed_requests import Handle


FIRST_OF_BROKERS = 4
"""The first version of AddPartitionsToTxn that brokers send, for several transactions."""


class TopicCounts:
    """The counts of one topic (Kafka: `BrokerTopicMetrics`), or of several."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_out = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0

    def add(self, other: TopicCounts) -> None:
        """Add other counts."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class VersionCounts:
    """One version of an API: the number of requests, and how long they took together."""

    __slots__ = ("count", "sum_s")

    def __init__(self) -> None:
        self.count = 0
        self.sum_s = 0.0


class NamedCounts:
    """The requests that Kafka counts under one name: those of an API, or a part of them."""

    __slots__ = ("_last_s", "_parts", "_versions", "keep")

    def __init__(self, whole: NamedCounts | None) -> None:
        """`whole`: other counts in which these requests are counted, too."""
        self._versions: dict[int, VersionCounts] = {}
        self._parts: list[NamedCounts] = []
        self._last_s: deque[float] = deque(maxlen=SAMPLES)
        self.keep: Callable[[float], None] = self._last_s.append
        """Keeps how long a request took, from reading it until its answer is known."""
        if whole is not None:
            whole._parts.append(self)
            keep_of_part, keep_of_whole = self.keep, whole.keep

            def keep(took_s: float) -> None:
                keep_of_part(took_s)
                keep_of_whole(took_s)

            self.keep = keep

    def version(self, number: int) -> VersionCounts:
        """The counts of a version."""
        return self._versions.setdefault(number, VersionCounts())

    def versions(self) -> dict[int, VersionCounts]:
        """The counts of all versions, those of the parts included."""
        found: dict[int, VersionCounts] = {}
        for each in (self, *self._parts):
            for number, counts in each._versions.items():
                sums = found.setdefault(number, VersionCounts())
                sums.count += counts.count
                sums.sum_s += counts.sum_s
        return found

    def times(self) -> Durations:
        """The durations of all versions."""
        found = Durations()
        for each in self.versions().values():
            found.count += each.count
            found.sum_ms += each.sum_s * 1000
        found.last.extend(1000 * took_s for took_s in self._last_s)
        return found


class ApiCounts:
    """The counts of one API."""

    __slots__ = ("by_name", "errors", "hung_up")

    def __init__(self) -> None:
        self.by_name: dict[str, NamedCounts] = {}
        self.errors: Counter[int] = Counter()
        """Errors by code, NONE included. Each error of an answer counts."""
        self.hung_up = 0
        """Requests whose client didn't wait for the answer."""

    def named(self, name: str, *, part_of: str | None = None) -> NamedCounts:
        """The counts under this name."""
        found = self.by_name.get(name)
        if found is None:
            whole = None if part_of is None else self.named(part_of)
            found = self.by_name[name] = NamedCounts(whole)
        return found


After = Callable[[Any, Any], None]
"""Counts an answer, which is never None. The first argument is what was kept of its request."""


class RequestMetrics:
    """The counts of one node, over all its listeners."""

    def __init__(self, monotonic_s: Callable[[], float], image: ClusterImage) -> None:
        self._monotonic_s = monotonic_s
        self._image = image
        self.idleness = Idleness(monotonic_s)
        self.apis: dict[str, ApiCounts] = {}
        self.topics: dict[str, TopicCounts] = {}
        self._by_id: dict[bytes, TopicCounts] = {}
        """The same, by the ids by which requests have named topics."""
        self.others = TopicCounts()
        """The counts of topics that are gone, or never existed."""

    def counted(self, api: str, version: int, handle: Handle) -> Handle:
        """See `broker.network.observed_requests`. Kafka counts some requests under a name of their own, in addition to
        their API's name or instead of it, but not their errors (`RequestChannel.updateRequestMetrics`)."""
        counts = self.apis.setdefault(api, ApiCounts())
        if api == "Produce":
            return self._counted_produce(counts, counts.named(api), version, handle)
        if api == "Fetch":
            consumers = counts.named("FetchConsumer", part_of=api)
            followers = counts.named("FetchFollower", part_of=api)
            return _told_apart(
                _is_replicas,
                self._counted(counts, followers, version, handle, self._fetched(counts, is_replicas=True)),
                self._counted(counts, consumers, version, handle, self._fetched(counts, is_replicas=False)),
            )
        after = _count_errors(counts)
        if api == "AddPartitionsToTxn" and version >= FIRST_OF_BROKERS:
            verifying = counts.named("AddPartitionsToTxnVerification")
            return _told_apart(
                _only_verifies,
                self._counted(counts, verifying, version, handle, after),
                self._counted(counts, counts.named(api), version, handle, after),
            )
        if api == "ListConfigResources" and version == 0:
            of_old = counts.named("ListClientMetricsResources", part_of=api)
            return self._counted(counts, of_old, version, handle, after)
        return self._counted(counts, counts.named(api), version, handle, after)

    # The next two do the same for requests with and without records. Each is as short as possible, since every request
    # passes through it.

    def _counted_produce(self, counts: ApiCounts, named: NamedCounts, version: int, handle: Handle) -> Handle:
        """Count Produces. Sizes are taken before the handler runs: records may be gone when the answer is known."""
        monotonic_s, keep, of_version = self._monotonic_s, named.keep, named.version(version)
        after = self._produced(counts)
        end = self._end(counts, named, of_version, after)

        def call(context: RequestContext, request: Any) -> Any:
            began_s = monotonic_s()
            said = _sizes(request)
            try:
                response = handle(context, request)
            except Exception as error:
                end(began_s, said, None, error)
                raise
            if response.__class__ is ProduceResponse:
                after(said, response)
            elif isinstance(response, LATERS):
                return ObservedLater(response, partial(end, began_s, said))
            took_s = monotonic_s() - began_s
            of_version.count += 1
            of_version.sum_s += took_s
            keep(took_s)
            return response

        return call

    def _counted(
        self, counts: ApiCounts, named: NamedCounts, version: int, handle: Handle, after: After
    ) -> Handle:
        monotonic_s, keep, of_version = self._monotonic_s, named.keep, named.version(version)
        errors = counts.errors
        end = self._end(counts, named, of_version, after)

        def call(context: RequestContext, request: Any) -> Any:
            began_s = monotonic_s()
            try:
                response = handle(context, request)
            except Exception as error:
                end(began_s, None, None, error)
                raise
            if response.__class__ in _WITH_ONE_ERROR:
                errors[response.error_code] += 1
            elif isinstance(response, LATERS):
                return ObservedLater(response, partial(end, began_s, None))
            else:
                after(None, response)
            took_s = monotonic_s() - began_s
            of_version.count += 1
            of_version.sum_s += took_s
            keep(took_s)
            return response

        return call

    def _end(
        self, counts: ApiCounts, named: NamedCounts, of_version: VersionCounts, after: After
    ) -> Callable[[float, Any, Any, Exception | None], None]:
        """A function that counts a request whose answer comes later, or never."""
        keep = named.keep

        def end(began_s: float, said: Any, response: Any, error: Exception | None) -> None:
            took_s = self._monotonic_s() - began_s
            of_version.count += 1
            of_version.sum_s += took_s
            keep(took_s)
            if isinstance(error, HungUpError):
                counts.hung_up += 1
            elif error is not None:
                counts.errors[Error.UNKNOWN_SERVER_ERROR] += 1
            elif response is not None:
                after(said, response)

        return end

    def forget_topics(self, still_there: Callable[[str], bool]) -> None:
        """Forget the counts of deleted topics, as in Kafka. The sums still include them."""
        gone = [name for name in self.topics if not still_there(name)]
        for name in gone:
            self.others.add(self.topics.pop(name))
        if gone:
            self._by_id.clear()

    # --- what requests carry ---------------------------------------------------------------------------------

    def _counts_of(self, name: str, topic_id: bytes) -> TopicCounts:
        """The counts of a topic, or `others` if it doesn't exist."""
        if not name:
            counts = self._by_id.get(topic_id)
            if counts is not None:
                return counts
            found = self._image.topics_by_id.get(topic_id)
            if found is None:
                return self.others
            counts = self._by_id[topic_id] = self._counts_of(found.name, topic_id)
            return counts
        if name not in self._image.topics:
            return self.others
        return self.topics.setdefault(name, TopicCounts())

    def _produced(self, counts: ApiCounts) -> After:
        errors, topics = counts.errors, self.topics

        def answered(sizes: _Sizes, response: ProduceResponse) -> None:
            single = sizes.__class__ is tuple
            for topic in response.responses:
                of_topic = topics.get(topic.name) or self._counts_of(topic.name, topic.topic_id)
                for partition in topic.partition_responses:
                    code = partition.error_code
                    errors[code] += 1
                    of_topic.produces += 1
                    if code:
                        of_topic.failed_produces += 1
                        continue
                    size_bytes, messages = (
                        sizes
                        if single
                        else sizes.get((topic.name or topic.topic_id, partition.index), _NOTHING)
                    )
                    of_topic.bytes_in += size_bytes
                    of_topic.messages_in += messages

        return answered

    def _fetched(self, counts: ApiCounts, *, is_replicas: bool) -> After:
        errors, topics = counts.errors, self.topics

        def answered(said: None, response: FetchResponse) -> None:
            if response.error_code:
                errors[response.error_code] += 1
            for topic in response.responses:
                of_topic = topics.get(topic.topic) or self._counts_of(topic.topic, topic.topic_id)
                for partition in topic.partitions:
                    code = partition.error_code
                    errors[code] += 1
                    records = partition.records
                    size = 0 if records is None else _length(records)
                    if is_replicas:
                        of_topic.replication_bytes_out += size
                        continue
                    of_topic.fetches += 1
                    of_topic.bytes_out += size
                    if code:
                        of_topic.failed_fetches += 1

        return answered


_WITH_ONE_ERROR: frozenset[Any] = frozenset(
    (HeartbeatResponse, EndTxnResponse, InitProducerIdResponse, AddOffsetsToTxnResponse)
)
"""Frequent answers with exactly one error field."""


def _is_replicas(request: FetchRequest) -> bool:
    """True if it is a follower's request."""
    state = request.replica_state
    return request.replica_id >= 0 or (state is not None and state.replica_id >= 0)


def _only_verifies(request: AddPartitionsToTxnRequest) -> bool:
    """True if a broker only asks what is in transactions, and adds nothing."""
    return all(each.verify_only for each in request.transactions)


def _told_apart(is_one: Callable[[Any], bool], one: Handle, other: Handle) -> Handle:
    def call(context: RequestContext, request: Any) -> Any:
        return one(context, request) if is_one(request) else other(context, request)

    return call


def _count_errors(counts: ApiCounts) -> After:
    errors = counts.errors

    def after(said: None, response: Any) -> None:
        if isinstance(
            response, Struct
        ):  # else it is the controller's undecoded answer, which is counted there
            for code in error_codes(response):
                errors[code] += 1

    return after


def _length(records: Any) -> int:
    return sum(map(len, records)) if isinstance(records, list) else len(records)


# --- Produced records ---------------------------------------------------------------------------------------------

_Size = tuple[int, int]
"""(bytes, messages). As in Kafka, the offsets of a batch count as messages."""

_Sizes = Any
"""A `_Size` for one partition, as in most requests; otherwise a dict of them, by the topic's name or id and the
partition's number."""

_NOTHING: _Size = (0, 0)
_look = Layout(f">i{LAST_OFFSET_DELTA_POS - LOG_OVERHEAD}xi").unpack_from
"""Reads the length of a batch, and the delta of its last offset."""
_SEEN_BYTES = LAST_OFFSET_DELTA_POS + INT32.size
"""The bytes of a batch's header that are needed."""


def _sizes(request: ProduceRequest) -> _Sizes:
    topics = request.topic_data
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        records = topics[0].partition_data[0].records
        if records is not None and (size := len(records)) >= _SEEN_BYTES:
            length, last_offset_delta = _look(records, BATCH_LENGTH_POS)
            if length + LOG_OVERHEAD == size and last_offset_delta >= 0:
                return size, last_offset_delta + 1
        return _size(records)
    return {
        (topic.name or topic.topic_id, partition.index): _size(partition.records)
        for topic in topics
        for partition in topic.partition_data
    }


def _size(records: memoryview | None) -> _Size:
    """The size of records. Bytes that make no sense have no messages, since they aren't appended."""
    if not records:
        return _NOTHING
    size = len(records)
    at = messages = 0
    while at + _SEEN_BYTES <= size:
        length, last_offset_delta = _look(records, at + BATCH_LENGTH_POS)
        if length <= 0 or last_offset_delta < 0:
            break
        messages += last_offset_delta + 1
        at += LOG_OVERHEAD + length
    return size, messages
