"""Everything visible before a restart is visible after it, for a few seeds; `make restarts` tries as many as you
like."""

from __future__ import annotations

import os
from typing import Any

import pytest

from broker.controller.image import ClusterImage
from broker.coordination import hosted_shards
from broker.handlers import offset_commit
from coordinator.group.offsets.commit import NewOffset
from protocol.errors import Error
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from protocol.messages.transactions import (
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.wire.schema import ZERO_UUID
from tests.simulation.restarts import picture
from tests.simulation.restarts.history import History, How
from tests.simulation.restarts.nodes import GROUP, TRANSACTION
from tests.simulation.restarts.simulated import play, play_this

SEEDS = range(1, int(os.environ.get("RESTARTED_SEEDS", "6")) + 1)
NO_SNAPSHOT = "metadata.log.max.record.bytes.between.snapshots=20971520"
"""The log has all of the metadata's history."""


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_visible_before_a_restart_is_visible_after_it(seed: int) -> None:
    history = play(seed)
    assert history.anomalies == []
    assert history.counts["things compared"] > 0


async def _made_anew(history: History) -> None:
    """A transaction commits an offset of a topic whose name an earlier, deleted topic had."""
    nodes = history.nodes
    await nodes.until_coordinated("g", GROUP)
    await nodes.until_coordinated("x", TRANSACTION)
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    create = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    for request, version in (
        (create, 7),
        (DeleteTopicsRequest(topic_names=["a"], timeout_ms=10_000), 5),
        (create, 7),
    ):
        answer = await nodes.ask(request, version)
        [done] = getattr(answer, "topics", None) or answer.responses
        assert done.error_code == Error.NONE, request
    producer = await nodes.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000), 5)
    by = {
        "transactional_id": "x",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    of_topic = TxnOffsetCommitRequestTopic(name="a", partitions=[offset])
    commit = TxnOffsetCommitRequest(group_id="g", member_id="", topics=[of_topic], **by)
    [topic_done] = (await nodes.ask(commit, 5)).topics
    assert topic_done.partitions[0].error_code == Error.NONE
    assert (await nodes.ask(EndTxnRequest(committed=True, **by), 5)).error_code == Error.NONE
    await history.restart(How.KILLED)


@pytest.fixture
def without_topic_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets are written in Kafka 4.3's form for those of a transaction, and older versions' form for all."""

    def without_id(*of: Any) -> NewOffset:
        return NewOffset(*of)._replace(topic_id=ZERO_UUID)

    monkeypatch.setattr(offset_commit, "NewOffset", without_id)


@pytest.mark.usefixtures("without_topic_ids")
def test_an_offset_of_a_recreated_topic_survives_a_restart() -> None:
    assert play_this(_made_anew, NO_SNAPSHOT).anomalies == []


@pytest.mark.usefixtures("without_topic_ids")
def test_a_start_that_takes_history_for_now_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take_changes = ClusterImage.take_changes

    def with_history(self: ClusterImage) -> Any:
        changes = take_changes(self)
        return changes._replace(removed=[*changes.removed, *changes.bygone], bygone=[])

    monkeypatch.setattr(ClusterImage, "take_changes", with_history)
    monkeypatch.setattr(hosted_shards._Hosted, "is_new", property(lambda _: False, lambda *_: None))
    assert any("offsets of group" in each for each in play_this(_made_anew, NO_SNAPSHOT).anomalies)


def test_pictures_differ_in_changed_values_and_in_those_only_one_has() -> None:
    before = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "d": 4}
    after = {"a": {"x": 1, "y": [1, 3]}, "c": 1, "d": 4}
    found = picture.differences(before, after)
    assert found == ["a:  y 1: 2 then 3", "b: : 1 then None", "c: : None then 1"]
