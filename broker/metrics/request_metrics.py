"""Requests as metrics count them: how many of each API, how long they take, which errors they are answered with, and
what they carry for each topic.

Numbers only go up here; whoever scrapes makes rates of them. All of it is counted from the moment that a node has a
listener for metrics, and for such a node alone. What coordinators and the controller append themselves isn't a client's
request, and isn't in the counts of topics.
Source: `RequestMetrics`, `BrokerTopicMetrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.metrics.idleness import Idleness
from broker.network.observed_requests import HungUpError
from coordinator.transaction.statistics import Durations
from protocol.errors import Error, error_name
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.records.batch import BATCH_LENGTH_POS, INT32, LAST_OFFSET_DELTA_POS, LOG_OVERHEAD
from protocol.wire.schema import Struct, error_codes

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.network.context import RequestContext
    from broker.network.observed_requests import End, Observer


class TopicCounts:
    """Of one topic, or of all together (Kafka: `BrokerTopicMetrics`)."""

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


class RequestMetrics:
    """Of one node, over all its listeners."""

    def __init__(self, monotonic_s: Callable[[], float], image: ClusterImage) -> None:
        self._monotonic_s = monotonic_s
        self._image = image
        self.idleness = Idleness(monotonic_s)
        self.requests: Counter[tuple[str, int]] = Counter()
        """By API and version."""
        self.errors: Counter[tuple[str, str]] = Counter()
        """By API and error, NONE among them; each error of an answer counts."""
        self.hung_up: Counter[str] = Counter()
        """Requests whose client didn't wait for the answer, by API."""
        self.times: dict[str, Durations] = {}
        """By API: from the moment that a request is read to that at which its answer is known."""
        self.topics: dict[str, TopicCounts] = {}
        self.all_topics = TopicCounts()

    def observer(self, api: str) -> Observer:
        """See `broker.network.observed_requests`."""
        times = self.times.setdefault(api, Durations())
        count_topics: Callable[[Any], Callable[[Any], None]] | None = None
        if api in ("Produce", "Fetch"):
            count_topics = self._produced if api == "Produce" else self._fetched

        def begin(context: RequestContext, request: Any) -> End:
            began_s = self._monotonic_s()
            self.requests[api, context.api_version] += 1
            count = None if count_topics is None else count_topics(request)

            def end(response: Any, error: Exception | None) -> None:
                times.add((self._monotonic_s() - began_s) * 1000)
                if isinstance(error, HungUpError):
                    self.hung_up[api] += 1
                elif error is not None:
                    self.errors[api, Error.UNKNOWN_SERVER_ERROR.name] += 1
                elif count is not None and response is not None:
                    count(response)
                elif isinstance(response, Struct):
                    for code in error_codes(response):
                        self.errors[api, error_name(code)] += 1

            return end

        return begin

    def forget_topics(self, still_there: Callable[[str], bool]) -> None:
        """What a topic that was deleted had is forgotten, as in Kafka."""
        for name in [name for name in self.topics if not still_there(name)]:
            del self.topics[name]

    # --- what requests carry ---------------------------------------------------------------------------------

    def _counts_of(self, name: str, topic_id: bytes) -> Sequence[TopicCounts]:
        """Of the topic, if there is one, and of all."""
        if not name:
            found = self._image.topics_by_id.get(topic_id)
            name = "" if found is None else found.name
        if name not in self._image.topics:
            return (self.all_topics,)
        counts = self.topics.get(name)
        if counts is None:
            counts = self.topics[name] = TopicCounts()
        return counts, self.all_topics

    def _produced(self, request: ProduceRequest) -> Callable[[ProduceResponse], None]:
        # Sizes now: what is held of the request may be gone when its answer is there.
        sizes = {
            (topic.name or topic.topic_id, partition.index): _size(partition.records)
            for topic in request.topic_data
            for partition in topic.partition_data
        }

        def answered(response: ProduceResponse) -> None:
            errors = self.errors
            for topic in response.responses:
                counts = self._counts_of(topic.name, topic.topic_id)
                for partition in topic.partition_responses:
                    code = partition.error_code
                    errors["Produce", error_name(code)] += 1
                    size = sizes.get((topic.name or topic.topic_id, partition.index), _NOTHING)
                    for each in counts:
                        each.produces += 1
                        if code:
                            each.failed_produces += 1
                        else:
                            each.bytes_in += size.size_bytes
                            each.messages_in += size.messages

        return answered

    def _fetched(self, request: FetchRequest) -> Callable[[FetchResponse], None]:
        state = request.replica_state
        is_replica = max(request.replica_id, -1 if state is None else state.replica_id) >= 0

        def answered(response: FetchResponse) -> None:
            errors = self.errors
            if response.error_code:
                errors["Fetch", error_name(response.error_code)] += 1
            for topic in response.responses:
                counts = self._counts_of(topic.topic, topic.topic_id)
                for partition in topic.partitions:
                    code = partition.error_code
                    errors["Fetch", error_name(code)] += 1
                    size = _length(partition.records)
                    for each in counts:
                        if is_replica:
                            each.replication_bytes_out += size
                        else:
                            each.fetches += 1
                            each.failed_fetches += code != 0
                            each.bytes_out += size

        return answered


class _Size(NamedTuple):
    """Of what is produced to one partition."""

    size_bytes: int
    messages: int


_NOTHING = _Size(0, 0)


def _size(records: memoryview | None) -> _Size:
    """Offsets that the batches take, as Kafka counts messages. Nonsense has none: it isn't appended."""
    if not records:
        return _NOTHING
    size = len(records)
    at = messages = 0
    while at + LAST_OFFSET_DELTA_POS + INT32.size <= size:
        (length,) = INT32.unpack_from(records, at + BATCH_LENGTH_POS)
        (last_offset_delta,) = INT32.unpack_from(records, at + LAST_OFFSET_DELTA_POS)
        if length <= 0 or last_offset_delta < 0:
            break
        messages += last_offset_delta + 1
        at += LOG_OVERHEAD + length
    return _Size(size, messages)


def _length(records: Any) -> int:
    if records is None:
        return 0
    return sum(map(len, records)) if isinstance(records, list) else len(records)
