"""A batch whose leader moved is sent again, as it was, to the new one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")
pa = pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra `spark`")

from barnabas.spark import arrow_batches, codes, writing
from barnabas.spark.codes import ResponseError
from barnabas.spark.plan import Blob, Plan, Target
from barnabas.spark.wire import Appended, Pending

MOVED_TO = 2
UNKNOWN_SERVER_ERROR = -1


@dataclass
class Cluster:
    """Answers what is sent with these error codes, one after the other, and then takes it."""

    answers: deque[int]
    sent: list[tuple[int, bytes]] = field(default_factory=list)

    def send(self, leader: int, transactional_id: str, topic: str, partition: int, batch: bytes) -> Pending:
        self.sent.append((leader, bytes(batch)))
        return Pending(topic, partition, None)

    def wait(self, pending: Pending) -> Appended:
        if self.answers and (code := self.answers.popleft()):
            raise ResponseError(code, "Name", "Produce")
        return Appended(len(self.sent), -1)

    def leaders(self, topics: list[str]) -> dict[str, dict[int, int]]:
        return {topic: {0: MOVED_TO} for topic in topics}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "PAUSE_S", 0)


def write(*answers: int) -> list[tuple[int, bytes]]:
    plan = Plan(
        bootstrap="",
        client={},
        request_timeout_ms=1_000,
        transactional_id="id",
        producer_id=7,
        epoch=1,
        batch_id=0,
        topic="out",
        compression="none",
        max_batch_bytes=1 << 20,
        targets=(Target("out", 0),),
        leaders=(1,),
        max_message_bytes={"out": 1 << 20},
        owners=1,
    )
    cluster: Any = Cluster(deque(answers))
    writer = writing.Writer(plan, cluster, leaders=[1])
    columns = arrow_batches.Columns(None, pa.array([b"v"], pa.binary()), None)
    (batch,) = arrow_batches.build(columns, 0, 1 << 20)
    writer.send(Blob(0, batch))
    writer.finish()
    assert writer.partitions[0].records == 1
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
    assert [leader for leader, _ in sent] == [1, MOVED_TO, MOVED_TO]
    assert len({data for _, data in sent}) == 1


def test_a_batch_is_sent_only_so_often() -> None:
    with pytest.raises(ResponseError):
        write(*[codes.NOT_LEADER_OR_FOLLOWER] * writing.SENDINGS)


@pytest.mark.parametrize("code", [codes.PRODUCER_FENCED, codes.MESSAGE_TOO_LARGE, UNKNOWN_SERVER_ERROR])
def test_a_batch_that_was_refused_is_not_sent_again(code: int) -> None:
    with pytest.raises(ResponseError):
        write(code)
