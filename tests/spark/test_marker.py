"""Where the query's marker is looked for, in a log that is made of numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")
pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra `spark`")

from barnabas.spark import arrow_batches, marker
from barnabas.spark.errors import MarkerError, QueryFencedError, TryFailedError
from barnabas.spark.marker import Marker
from barnabas.spark.wire import EARLIEST, Record, Wire
from protocol.records.batch import read_records

Name = Callable[[str], str]


@dataclass
class Log:
    """A partition that holds markers at these offsets, and ends at `end`; `given` offsets come with one Fetch.

    stuck_at: where Fetches give nothing any more.
    """

    markers: dict[int, int]
    end: int
    given: int = 100
    stuck_at: int | None = None
    timeout_ms: int = 1_000

    def offsets(self, topic: str, partition: int, leader: int, asked: list[tuple[int, int]]) -> list[int]:
        return [self.end, self.end, 0]

    def read_committed(
        self, topic: str, partition: int, leader: int, offset: int
    ) -> tuple[list[Record], int]:
        end = min(offset + self.given, self.end if self.stuck_at is None else self.stuck_at)
        found = [
            Record(at, b"q", json.dumps({"version": 1, "checkpoint": "", "batch": batch}).encode())
            for at, batch in self.markers.items()
            if offset <= at < end
        ]
        return found, max(end, offset)


def read(log: Any) -> Marker | None:
    return marker.read(log, "topic", 0)


@pytest.mark.parametrize("behind", [1, 2, 4, 5, 256, 257, 1000])
def test_the_last_marker_is_found_however_many_failed_tries_follow_it(behind: int) -> None:
    assert read(Log({3: 1, 10: 2}, 11 + behind)) == Marker("", 2)


@pytest.mark.parametrize("end", [0, 3, 300])
def test_a_log_without_a_marker_has_none(end: int) -> None:
    assert read(Log({}, end)) is None


@pytest.mark.parametrize(("end", "stuck_at"), [(3, 0), (300, 298), (300, 299)])
def test_a_log_that_returns_nothing_before_its_end_may_still_have_a_marker(end: int, stuck_at: int) -> None:
    with pytest.raises(TryFailedError, match=f"nothing at offset {stuck_at}, but it ends at {end}"):
        read(Log({}, end, stuck_at=stuck_at))


def test_a_marker_before_an_unreadable_part_of_the_log_may_not_be_the_last() -> None:
    with pytest.raises(TryFailedError):
        read(Log({8: 1}, 11, stuck_at=10))


class Markers:
    """A partition that holds these, one after the other."""

    timeout_ms = 1_000

    def __init__(self, *markers: Marker) -> None:
        batches = [read_records(marker.encode(one, "q").data)[0] for one in markers]
        self.records = [Record(at, one.key, one.value) for at, one in enumerate(batches)]

    def offset(self, topic: str, partition: int, leader: int, timestamp: int, isolation: int) -> int:
        return 0 if timestamp == EARLIEST else len(self.records)

    def offsets(self, topic: str, partition: int, leader: int, asked: list[tuple[int, int]]) -> list[int]:
        return [self.offset(topic, partition, leader, *one) for one in asked]

    def read_committed(
        self, topic: str, partition: int, leader: int, offset: int
    ) -> tuple[list[Record], int]:
        return self.records[offset : offset + 2], min(offset + 2, len(self.records))


def is_done(mine: Marker, *markers: Marker) -> bool:
    log: Any = Markers(*markers)
    return marker.is_done(log, "topic", 0, mine, "q")


A, B = "checkpoint a", "checkpoint b"


@pytest.mark.parametrize(
    ("mine", "markers", "done"),
    [
        (Marker(A, 0), [], False),
        (Marker(A, 9), [], False),
        (Marker(A, 5), [Marker(A, 4)], False),
        (Marker(A, 5), [Marker(A, 4), Marker(A, 5)], True),
        (Marker(A, 5), [Marker(A, 6)], True),
        (Marker(A, 5, "x"), [Marker(A, 5, "x")], True),
        (Marker(A, 5, "x"), [Marker(A, 5)], True),
        (Marker(A, 5), [Marker(A, 5, "x")], True),
        (Marker(A, 6, "x"), [Marker(A, 5, "x")], False),
        (Marker(A, 5, "x"), [Marker(A, 5, "x"), Marker(A, 6, "y"), Marker(A, 7, "z")], True),
        (Marker(A, 0, "x"), [Marker(B, 6, "x")], False),
    ],
)
def test_a_batch_with_a_marker_or_a_later_one_of_its_checkpoint_is_done(
    mine: Marker, markers: list[Marker], done: bool
) -> None:
    assert is_done(mine, *markers) is done


@pytest.mark.parametrize(
    "markers",
    [
        [Marker(A, 5, "x")],
        [Marker(A, 5, "x"), Marker(A, 6, "y")],
        [Marker(A, 4, "now"), Marker(A, 6, "y")],  # compaction took the one of batch 5
    ],
)
def test_a_number_that_comes_again_with_other_offsets_is_refused_and_not_taken_as_done(
    markers: list[Marker],
) -> None:
    with pytest.raises(MarkerError, match="the checkpoint was put back to an earlier state"):
        is_done(Marker(A, 5, "now"), *markers)


@pytest.mark.parametrize(
    ("mine", "markers"),
    [
        (Marker(A, 3), [Marker(B, 2)]),
        (Marker(A, 3), [Marker(A, 2), Marker(B, 0)]),
        (Marker(A, 0), [Marker(A, 0), Marker(B, 0)]),
        (Marker(A, 0), [Marker(A, 1), Marker(B, 0)]),
    ],
)
def test_a_batch_during_a_run_that_finds_another_checkpoints_marker_meets_another_query(
    mine: Marker, markers: list[Marker]
) -> None:
    with pytest.raises(
        QueryFencedError, match="'q' is used by another query, with the checkpoint checkpoint b"
    ):
        is_done(mine, *markers)


@pytest.fixture
def connection(bootstrap: str) -> Iterator[Wire]:
    one = Wire(bootstrap, {}, 30_000)
    yield one
    one.close()


def test_a_marker_before_failed_tries_is_read_from_a_broker(connection: Wire, name: Name) -> None:
    topic, transactional_id = name("marker"), name("id")
    leader = marker.ensure_topic(connection, topic)
    for committed in [True] + [False] * 6:
        identity = connection.init_producer_id(transactional_id, 30_000)
        connection.add_partitions(transactional_id, identity, {topic: [0]})
        batch = marker.encode(Marker("here", 7 if committed else 8), "q")
        arrow_batches.stamp(batch, identity.producer_id, identity.epoch, 0)
        connection.append(leader, transactional_id, topic, 0, *batch.pieces)
        connection.end_transaction(transactional_id, identity, commit=committed)
    connection.init_producer_id(transactional_id, 30_000)
    assert marker.read(connection, topic, leader) == Marker("here", 7)
