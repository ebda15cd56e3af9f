"""A partition's raw log: batches as bytes, with markers and aborted records. Part of the adapter (see `wire`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kafka.protocol.metadata import MetadataRequest
from kafka.record.memory_records import MemoryRecords

from barnabas.spark.errors import LEADER_MOVES, LEADER_NOT_AVAILABLE
from barnabas.spark.wire import EARLIEST, LATEST, READ_UNCOMMITTED, TOPIC, Wire
from barnabas.spark.wire_connection import check

OFFSET_OUT_OF_RANGE = 1
# It isn't the sink's: an audit's reads count against no query's quota.
CLIENT_ID = "barnabas-spark-audit"
FETCH_BYTES = 8 << 20
MAX_WAIT_MS = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a partition's log at one moment.

    start_offset, end_offset: its log start offset and its high watermark.
    compacts: the topic's `cleanup.policy` includes `compact`.
    begun_before: producers whose transaction was open then, and began before the log start.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    compacts: bool
    begun_before: tuple[int, ...]


class RawLog(Wire):
    """Reads raw logs. Raises ResponseError and NoAnswerError, as Wire does."""

    def __init__(self, bootstrap: str, client: Mapping[str, Any], timeout_ms: int) -> None:
        super().__init__(bootstrap, client, timeout_ms, CLIENT_ID)
        self._leaders: dict[str, dict[int, int]] = {}

    def internal(self, topics: Sequence[str]) -> list[str]:
        """Return those of the topics that the broker calls internal."""

        def attempt() -> list[str]:
            shape = MetadataRequest.MetadataRequestTopic
            request = MetadataRequest(
                topics=[shape(name=topic) for topic in topics], allow_auto_topic_creation=False, max_version=9
            )
            answer = self._finish(self._begin(self.any_node(), request))
            for topic in answer.topics:
                check(topic.error_code, f"Metadata of {topic.name}")
            return [topic.name for topic in answer.topics if topic.is_internal]

        return self._repeat(attempt, {LEADER_NOT_AVAILABLE})

    def bounds(self, topics: Sequence[str]) -> list[Bounds]:
        """Return the bounds of every partition of the topics, in their order."""
        found = []
        for topic, partitions in self.leaders(topics).items():
            compacts = "compact" in self.configs(TOPIC, topic, ["cleanup.policy"])["cleanup.policy"]
            # Ask for this before the end: if a transaction ends in between, its marker is below the end.
            opened = self.open_transactions(partial(self.leaders, [topic]))
            for partition in partitions:
                end = self._at_leader(topic, partition, self._offset_by(topic, partition, LATEST))
                start = self._at_leader(topic, partition, self._offset_by(topic, partition, EARLIEST))
                before = tuple(
                    one.producer_id
                    for one in opened
                    if one.partition == partition and one.start_offset < start
                )
                found.append(Bounds(topic, partition, start, max(start, end), compacts, before))
        return found

    def fetch(self, topic: str, partition: int, offset: int) -> bytes:
        """Return batches from the one with the offset on, the last one perhaps cut off; b"" if there is none yet.

        Raises ResponseError with OFFSET_OUT_OF_RANGE if the log by now starts later.
        """

        def attempt(leader: int) -> bytes:
            one = self._fetch(
                leader,
                topic,
                partition,
                offset,
                READ_UNCOMMITTED,
                max_bytes=FETCH_BYTES,
                max_wait_ms=MAX_WAIT_MS,
            )
            return bytes(one.records or b"")

        return self._at_leader(topic, partition, attempt)

    def _offset_by(self, topic: str, partition: int, timestamp: int) -> Callable[[int], int]:
        return lambda leader: self.offset(topic, partition, leader, timestamp, READ_UNCOMMITTED)

    def _at_leader(self, topic: str, partition: int, ask: Callable[[int], T]) -> T:
        def attempt() -> T:
            if topic not in self._leaders:
                self._leaders.update(self.leaders([topic]))
            try:
                return ask(self._leaders[topic][partition])
            except Exception:
                self._leaders.pop(topic, None)
                raise

        return self._repeat(attempt, LEADER_MOVES)


def count_from(batch: bytes, offset: int) -> int:
    """Return how many of a batch's records have this offset or a later one."""
    records = MemoryRecords(batch).next_batch()
    return 0 if records is None else sum(record.offset >= offset for record in records)
