"""A batch whose leader moved is sent again, as it was, to the new one."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")
pa = pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra `spark`")

from barnabas.spark import arrow_batches
from barnabas.spark import errors as codes
from barnabas.spark import tasks as writing
from barnabas.spark.errors import ResponseError
from barnabas.spark.plan import Blob
from barnabas.spark.wire import Appended, Outgoing, Pending
from tests.spark.plans import plan

MOVED_TO = 2
UNKNOWN_SERVER_ERROR = -1


@dataclass
class Cluster:
    """Answers the batches that are sent with these error codes, one after the other, and then takes them.

    sent: leader, partition and bytes of each batch.
    """

    answers: deque[int]
    sent: list[tuple[int, int, bytes]] = field(default_factory=list)

    def send(self, leader: int, transactional_id: str, batches: Sequence[Outgoing]) -> Pending:
        self.sent += [(leader, one.partition, b"".join(one.pieces)) for one in batches]
        return Pending([(one.topic, one.partition) for one in batches], None)

    def wait(self, pending: Pending) -> list[Appended | ResponseError]:
        found: list[Appended | ResponseError] = []
        for _ in pending.places:
            code = self.answers.popleft() if self.answers else 0
            found.append(
                ResponseError(code, "Name", "Produce") if code else Appended(100 * len(self.sent), -1)
            )
        return found

    def leaders(self, topics: list[str]) -> dict[str, dict[int, int]]:
        return {topic: {0: MOVED_TO, 1: 1, 2: MOVED_TO} for topic in topics}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "PAUSE_S", 0)


def writer(*answers: int) -> tuple[writing.Writer, Any]:
    told = replace(
        plan(1, topic="out", batch_bytes=1 << 20, out=3),
        request_timeout_ms=1_000,
        transactional_id="id",
        producer_id=7,
        epoch=1,
        leaders=(1, 1, 1),
    )
    cluster: Any = Cluster(deque(answers))
    return writing.Writer(told, cluster, leaders=list(told.leaders)), cluster


def blob(partition: int) -> Blob:
    columns = arrow_batches.Columns(None, pa.array([b"v"], pa.binary()), None)
    (batch,) = arrow_batches.build(columns, 0, 1 << 20)
    return Blob(partition, batch)


def write(*answers: int) -> list[tuple[int, int, bytes]]:
    one, cluster = writer(*answers)
    one.send(blob(0))
    one.finish()
    assert one.partitions[0].records == 1
    return list(cluster.sent)


@pytest.mark.parametrize(
    "code",
    [
        codes.NOT_LEADER_OR_FOLLOWER,
        codes.LEADER_NOT_AVAILABLE,
        codes.UNKNOWN_TOPIC_OR_PARTITION,
        codes.NOT_ENOUGH_REPLICAS,
        codes.COORDINATOR_LOAD_IN_PROGRESS,
        codes.NOT_COORDINATOR,
    ],
)
def test_a_batch_is_sent_again_with_the_same_sequence_to_the_leader_that_is_known_then(code: int) -> None:
    sent = write(code, code, 0)
    assert [leader for leader, _, _ in sent] == [1, MOVED_TO, MOVED_TO]
    assert len({data for _, _, data in sent}) == 1


def test_a_batch_is_sent_only_so_often() -> None:
    with pytest.raises(ResponseError):
        write(*[codes.NOT_LEADER_OR_FOLLOWER] * writing.SENDINGS)


@pytest.mark.parametrize("code", [codes.PRODUCER_FENCED, codes.MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR])
def test_a_batch_that_was_refused_is_not_sent_again(code: int) -> None:
    with pytest.raises(ResponseError):
        write(code)


def test_only_the_refused_ones_of_batches_sent_together_are_sent_again() -> None:
    moved = codes.NOT_LEADER_OR_FOLLOWER
    one, cluster = writer(moved, 0, moved)
    for partition in range(3):
        one.send(blob(partition))
    one.finish()
    places = [(leader, partition) for leader, partition, _ in cluster.sent]
    assert places == [(1, 0), (1, 1), (1, 2), (MOVED_TO, 0), (MOVED_TO, 2)]
    assert {number: part.records for number, part in one.partitions.items()} == {0: 1, 1: 1, 2: 1}


def test_records_gathered_for_a_leader_go_to_the_one_known_when_they_are_sent() -> None:
    one, cluster = writer(codes.NOT_LEADER_OR_FOLLOWER)
    for partition in (0, 2, 0, 2, 0):
        one.send(blob(partition))
    one.finish()
    assert [leader for leader, _, _ in cluster.sent] == [1, 1, *[MOVED_TO] * 4]
    assert {number: part.records for number, part in one.partitions.items()} == {0: 3, 2: 2}
