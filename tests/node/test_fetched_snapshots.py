"""An observer fetches a snapshot of the metadata in pieces, and begins again if they don't fit together."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.controller import observer as module
from broker.controller.metadata_versions import encode_metadata_record
from broker.controller.observer import AfterAnswer
from broker.controller.quorum_state import Quorum
from broker.controller.snapshots import SnapshotId, encode_snapshot
from protocol.messages.fetch import FetchRequest
from protocol.messages.raft import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.waiting import PER_STEP, at_once
from tests.node.metadata_logs import ALWAYS, LEVEL, begin, open_log, topic
from tests.node.observers import Controller, catch_up, names, observer_in


def test_snapshots_come_in_pieces_and_restart_where_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_PIECE_BYTES", 100)
    metadata = begin(tmp_path / "leader", ALWAYS)
    controller = Controller(metadata)
    for number in range(5):
        metadata.append(topic(f"t{number}"))
    observer = observer_in(tmp_path / "observer")
    while not isinstance(request := observer.request(), FetchSnapshotRequest):
        observer.answered(controller.answer(request))
    observer.answered(controller.answer(request))
    metadata.append(topic("later"))
    metadata.snapshots.ids.pop(-2)  # the one that is on its way is given up
    assert observer.answered(controller.answer(observer.request())) is AfterAnswer.BACK_OFF
    assert isinstance(observer.request(), FetchRequest)
    assert catch_up(observer, controller) > 5
    assert names(observer._metadata) == names(metadata)


def test_a_snapshot_that_is_on_its_way_is_given_up_where_another_controller_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_PIECE_BYTES", 100)
    metadata = begin(tmp_path / "leader", ALWAYS)
    metadata.append(topic("t"))
    controller = Controller(metadata)
    observer = observer_in(tmp_path / "observer")
    while not isinstance(request := observer.request(), FetchSnapshotRequest):
        observer.answered(controller.answer(request))
    observer.answered(controller.answer(request))
    request = observer.request()
    assert isinstance(request, FetchSnapshotRequest)
    answer = controller.answer(request)
    assert isinstance(answer, FetchSnapshotResponse)
    answer.topics[0].partitions[0].current_leader.leader_epoch = metadata.epoch + 1
    observer.answered(answer)
    assert observer.epoch == metadata.epoch + 1
    assert isinstance(observer.request(), FetchRequest)


@pytest.mark.parametrize("other_by", [-1, 1])
def test_a_snapshot_whose_pieces_disagree_about_its_size_is_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_by: int
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_PIECE_BYTES", 100)
    metadata = begin(tmp_path / "leader", ALWAYS)
    metadata.append(topic("t"))
    controller = Controller(metadata)
    observer = observer_in(tmp_path / "observer")
    while not isinstance(request := observer.request(), FetchSnapshotRequest):
        observer.answered(controller.answer(request))
    observer.answered(controller.answer(request))
    answer = controller.answer(observer.request())
    assert isinstance(answer, FetchSnapshotResponse)
    answer.topics[0].partitions[0].size += other_by
    assert observer.answered(answer) is AfterAnswer.BACK_OFF
    assert isinstance(observer.request(), FetchRequest)
    catch_up(observer, controller)
    assert names(observer._metadata) == names(metadata)


def test_an_own_snapshot_overtaken_by_a_fetched_one_is_not_kept(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader")
    metadata.append(topic("t"))
    controller = Controller(metadata)
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    own = observer._metadata.snapshots
    held = [encode_metadata_record(LEVEL, 0)] * 2 * PER_STEP
    written = own.write(held, Quorum(), observer._log.log_end_offset, 0)
    written.send(None)
    metadata.append(topic("later"))
    fetched = SnapshotId(metadata.epoch, metadata.log.log_end_offset)
    data = at_once(
        encode_snapshot(held, Quorum(), epoch=fetched.epoch, last_contained_log_timestamp_ms=0, now_ms=0)
    )
    own.take(fetched, data).when_answered(lambda: own.begin_with(fetched, 0))
    at_once(written)
    assert own.ids == [fetched]
    again = open_log(tmp_path / "observer", only_voter=False)
    assert again.snapshots.ids == [fetched]
    assert len([*(tmp_path / "observer").glob("*.checkpoint")]) == 1


@pytest.mark.limit("broker.controller.observer.MOST_SNAPSHOT_BYTES")
def test_a_snapshot_that_is_too_large_is_not_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = begin(tmp_path / "leader", ALWAYS)
    metadata.append(topic("t"))
    newest = metadata.snapshots.newest
    assert newest is not None
    monkeypatch.setattr(module, "MOST_SNAPSHOT_BYTES", metadata.snapshots.size_of(newest) - 1)
    controller = Controller(metadata)
    observer = observer_in(tmp_path / "observer")
    while not isinstance(request := observer.request(), FetchSnapshotRequest):
        observer.answered(controller.answer(request))
    assert observer.answered(controller.answer(request)) is AfterAnswer.BACK_OFF
    assert isinstance(observer.request(), FetchRequest)
    assert observer._metadata.snapshots.newest is None
