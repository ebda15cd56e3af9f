"""An incremental answer lists the same as Kafka's, field by field (`CachedPartition.maybeUpdateResponseData`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.fetch import news_of
from broker.network import turns
from broker.replicas import fetch_sessions
from broker.replicas.fetch_sessions import FetchPlan, FetchSessions
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from protocol.messages.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from protocol.waiting import at_once
from tests.node.replicated import ME, OTHER, change, fetch, fetched, produce, replicated
from tests.node.transactional import ask
from tests.support.whole_server import crash

SELECTOR = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"

FIELDS: dict[str, tuple[Any, bool]] = {
    "partition_index": (0, False),
    "error_code": (3, True),
    "high_watermark": (7, True),
    "last_stable_offset": (7, False),
    "log_start_offset": (7, True),
    "diverging_epoch": (EpochEndOffset(epoch=1, end_offset=2), True),
    "current_leader": (LeaderIdAndEpoch(leader_id=1, leader_epoch=2), False),
    "snapshot_id": (SnapshotId(end_offset=1, epoch=2), False),
    "aborted_transactions": ([], False),
    "preferred_read_replica": (OTHER, True),
    "records": (b"x", True),
}
"""The fields of a partition's answer: a value that isn't empty, and whether Kafka lists a partition because of it."""


def _finish(sessions: FetchSessions, plan: FetchPlan, answers: fetch_sessions.Answered) -> Any:
    return at_once(sessions.finish(plan, answers, lambda: 0))


def _begin(sessions: FetchSessions, session_id: int, epoch: int) -> FetchPlan:
    named = [("t", [FetchPartition(partition=0, fetch_offset=0)])]
    steps = sessions.begin(
        session_id=session_id, session_epoch=epoch, by_id=False, wanted=named, forgotten=[], now_ms=lambda: 0
    )
    return at_once(steps)


@pytest.mark.parametrize("per_turn", [1, 1_000])
@pytest.mark.parametrize("field", [field.name for field in PartitionData.FIELDS])
def test_each_field_that_a_reader_acts_on_is_news(
    field: str, per_turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (fetch_sessions, turns):
        monkeypatch.setattr(module, "PER_TURN", per_turn)
    sessions = FetchSessions(8, lambda low, high: low)
    empty: dict[str, Any] = {"partition_index": 0, "error_code": 0, "high_watermark": 0, "records": b""}
    plan = _begin(sessions, 0, 0)
    session_id, _ = _finish(sessions, plan, [(plan.targets[0], PartitionData(**empty))])
    plan = _begin(sessions, session_id, 1)
    value, is_news = FIELDS[field]
    answers = [(plan.targets[0], PartitionData(**empty | {field: value}))]
    expected = answers if is_news else []
    assert news_of(plan, answers) == expected  # what quotas count
    assert _finish(sessions, plan, answers) == (session_id, expected)


async def test_a_consumer_is_sent_to_its_racks_replica_when_it_returns_during_the_session(
    tmp_path: Path,
) -> None:
    node = await replicated(tmp_path, SELECTOR, "broker.rack=a")
    there = BrokerEndpoint(name="PLAINTEXT", host="there", port=1, security_protocol=0)
    node.metadata.append([RegisterBrokerRecord(broker_id=OTHER, rack="b", end_points=[there], fenced=False)])
    change(node, isr=[ME])
    produce(node)

    def consume(session_id: int, epoch: int, *wanted: FetchPartition) -> Any:
        topics = [FetchTopic(topic="t", partitions=[*wanted])] if wanted else []
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1_000,
            rack_id="b",
            topics=topics,
        )
        return ask(node, request, 12)

    first = consume(0, 0, FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000))
    assert first.responses[0].partitions[0].records, "nobody is in that rack"
    change(node, isr=[ME, OTHER])
    fetch(node, 1, replica_id=OTHER)
    wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1_000)
    for epoch, again in ((1, (wanted,)), (2, ())):
        answer = fetched(consume(first.session_id, epoch, *again))
        assert (answer.preferred_read_replica, answer.records, answer.error_code) == (OTHER, b"", 0)
    crash(node)
