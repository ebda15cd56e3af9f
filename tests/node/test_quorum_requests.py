"""The answers of the metadata log's leader to those that fetch the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.controller import quorum_requests
from broker.controller.observer import AfterAnswer
from broker.controller.snapshots import SnapshotPolicy
from protocol.errors import Error
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.wire.codec import encode
from tests.node.metadata_logs import ALWAYS, NEVER, begin, topic
from tests.node.observers import Controller, catch_up, names, observer_in


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cluster_id": "another"}, Error.INCONSISTENT_CLUSTER_ID),
        ({"topics": []}, Error.INVALID_REQUEST),
    ],
)
def test_requests_that_are_refused_as_a_whole(
    tmp_path: Path, change: dict[str, object], error: Error
) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    request = observer_in(tmp_path / "observer").request()
    for name, value in change.items():
        setattr(request, name, value)
    assert controller.answer(request).error_code == error


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"fetch_offset": -1}, Error.INVALID_REQUEST),
        ({"last_fetched_epoch": -1}, Error.INVALID_REQUEST),
        ({"last_fetched_epoch": 2}, Error.INVALID_REQUEST),
        ({"current_leader_epoch": 0}, Error.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 2}, Error.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_requests_of_another_epoch_or_none(tmp_path: Path, change: dict[str, int], error: Error) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    request = observer.request()
    assert isinstance(request, FetchRequest)
    (asked,) = request.topics[0].partitions
    if "current_leader_epoch" in change:
        asked.last_fetched_epoch = 0
    for name, value in change.items():
        setattr(asked, name, value)
    answer = controller.answer(request)
    assert isinstance(answer, FetchResponse)
    (found,) = answer.responses[0].partitions
    assert found.error_code == error
    assert found.current_leader is not None
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (1, 1)
    assert [(each.node_id, each.host, each.port) for each in answer.node_endpoints] == [
        (1, "controller.example", 9093)
    ]


def test_a_node_that_does_not_lead_says_so(tmp_path: Path) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    controller.metadata.resign()
    answer = controller.answer(observer.request())
    assert isinstance(answer, FetchResponse)
    (found,) = answer.responses[0].partitions
    assert found.error_code == Error.NOT_LEADER_OR_FOLLOWER
    assert observer.answered(answer) is AfterAnswer.BACK_OFF


def test_a_fetch_waits_where_there_is_nothing_new_and_the_high_watermark_is_known(tmp_path: Path) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    request = observer.request()
    assert isinstance(request, FetchRequest)
    assert controller.requests.fetch(request, 0).may_wait
    controller.metadata.replicate = lambda end_offset: None
    controller.metadata.append(topic("a"))
    assert not controller.requests.fetch(request, 0).may_wait
    observer.answered(controller.answer(request))
    request = observer.request()
    assert isinstance(request, FetchRequest)
    assert controller.requests.fetch(request, 0).may_wait
    controller.metadata.commit(controller.metadata.next_offset)
    assert not controller.requests.fetch(request, 0).may_wait  # for the high watermark alone


@pytest.mark.limit("broker.controller.quorum_requests.MOST_ANSWER_BYTES")
def test_one_answer_has_limited_bytes_and_the_next_one_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum_requests, "MOST_ANSWER_BYTES", 300)
    for policy in (NEVER, ALWAYS):
        metadata = begin(tmp_path / f"leader{policy.max_bytes_between}", policy)
        for number in range(20):
            metadata.append(topic(f"t{number}"))
        controller = Controller(metadata)
        observer = observer_in(tmp_path / f"observer{policy.max_bytes_between}")
        answer = controller.answer(observer.request())
        observer.answered(answer)
        answer = controller.answer(observer.request())
        assert len(encode(answer, 18 if isinstance(answer, FetchResponse) else 1)) < 600
        observer.answered(answer)
        assert catch_up(observer, controller) > 5
        assert names(observer._metadata) == names(metadata)


@pytest.mark.parametrize(
    ("before_start", "last_epoch", "is_snapshot"), [(1, 1, True), (0, 1, False), (0, 2, True)]
)
def test_records_below_the_log_are_in_a_snapshot(
    tmp_path: Path, before_start: int, last_epoch: int, is_snapshot: bool
) -> None:
    metadata = begin(tmp_path / "leader", SnapshotPolicy(1, 0, 0, -1), segment_bytes=400)
    for number in range(5):
        metadata.append(topic(f"t{number}"))
    metadata.snapshots.clean(0)
    metadata.become_leader(1)
    (snapshot_id,) = metadata.snapshots.ids
    assert snapshot_id.epoch == 1
    assert 0 < metadata.log.log_start_offset == snapshot_id.offset
    request = observer_in(tmp_path / "observer").request()
    assert isinstance(request, FetchRequest)
    (asked,) = request.topics[0].partitions
    asked.current_leader_epoch, asked.last_fetched_epoch = 2, last_epoch
    asked.fetch_offset = metadata.log.log_start_offset - before_start
    answer = Controller(metadata).answer(request)
    assert isinstance(answer, FetchResponse)
    (found,) = answer.responses[0].partitions
    assert found.error_code == Error.NONE
    assert (found.snapshot_id is not None) == is_snapshot


def test_a_fetching_replica_is_known_for_a_while(tmp_path: Path) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    request = observer.request()
    assert isinstance(request, FetchRequest)
    assert request.replica_state is not None
    for node_id in range(100):
        request.replica_state.replica_id = node_id
        controller.requests.fetch(request, 10 * node_id)
    assert len(controller.requests.replicas) == 100
    (one,) = [each for (node_id, _), each in controller.requests.replicas.items() if node_id == 42]
    end_offset = controller.metadata.log.log_end_offset
    assert (one.end_offset, one.fetched_ms, one.caught_up_ms) == (end_offset, 420, 420)
    request.replica_state.replica_id = 200
    controller.requests.fetch(request, 300_500)
    assert sorted(node_id for node_id, _ in controller.requests.replicas) == [*range(51, 100), 200]
    request.replica_state.replica_id = -1  # one of Kafka's tools
    controller.requests.fetch(request, 300_500)
    assert -1 not in {node_id for node_id, _ in controller.requests.replicas}


@pytest.mark.limit("broker.controller.quorum_requests.MOST_REPLICAS")
def test_the_longest_silent_of_too_many_replicas_is_forgotten(tmp_path: Path) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    request = observer.request()
    assert isinstance(request, FetchRequest)
    assert request.replica_state is not None
    controller.requests.replicas.clear()
    for node_id in range(quorum_requests.MOST_REPLICAS + 10):
        request.replica_state.replica_id = node_id
        controller.requests.fetch(request, 1_000 + node_id)
    known = {node_id for node_id, _ in controller.requests.replicas}
    assert known == {*range(10, quorum_requests.MOST_REPLICAS + 10)}
