"""A node that no longer leads the metadata log: the next leader commits what it wrote, or cuts it off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.controller import metadata_versions
from broker.controller.controller import Controller
from broker.controller.image import ClusterImage
from broker.controller.metadata_log import MetadataLog
from broker.network.turns import Turns
from protocol.errors import Error, KafkaError, stops_the_broker
from storage.directory.log_directory import METADATA_TOPIC
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.node.test_controller import NODE, configs, fetch, open_log, result_of, setting, submit
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.manual_clock import ManualClock
from tests.support.submitting import submit_to, unexpected


class Voter:
    """The only voter. It commits what its disk has synced, and the test says when that is."""

    def __init__(self, folder: Path) -> None:
        self.syncs = HeldSyncs()
        log = PartitionLog.open(
            str(folder),
            METADATA_TOPIC,
            0,
            LogConfig(),
            now_ms=0,
            clean=False,
            files=files,
            background=self.syncs,
        )
        self.metadata = MetadataLog(log, ClusterImage(), ManualClock())
        self.metadata.become_leader(NODE)
        self.metadata.append_transaction("Bootstrap records", metadata_versions.feature_levels())
        self.metadata.flush()
        self.metadata.commit_when_synced()
        self.syncs.is_held = True

    def sync_all(self) -> None:
        while self.syncs.waiting:
            self.syncs.run_one()


@pytest.fixture
def voter(tmp_path: Path) -> Voter:
    return Voter(tmp_path / "log")


def test_a_sync_that_ends_after_the_log_was_lost_commits_nothing(voter: Voter) -> None:
    replies = submit(voter.metadata, setting("a"))
    voter.metadata.resign()
    voter.sync_all()
    assert replies == [Error.NOT_CONTROLLER]
    assert configs(voter.metadata) == {}


def test_records_that_another_leader_cut_off_are_no_failure_of_this_nodes_disk(voter: Voter) -> None:
    before = voter.metadata.next_offset
    submit(voter.metadata, setting("cut off"))
    voter.metadata.resign()
    voter.metadata.log.truncate_to(before, 0)
    voter.sync_all()
    voter.metadata.become_leader(NODE)
    replies = submit(voter.metadata, setting("a"))
    voter.sync_all()
    assert replies == ["done"]
    assert configs(voter.metadata) == {"a": "1"}


def test_a_decision_that_was_in_the_midst_when_the_log_was_lost_is_not_written(tmp_path: Path) -> None:
    metadata = open_log(tmp_path / "log")
    metadata.become_leader(NODE)
    later: list[Callable[[], None]] = []

    def call_soon(callback: Callable[[], None]) -> SimpleNamespace:
        later.append(callback)
        return SimpleNamespace(cancel=lambda: None)

    turns = Turns(SimpleNamespace(call_soon=call_soon))  # type: ignore[arg-type]
    metadata.carry_out = lambda steps: turns.carry_out(steps, unexpected)
    for again in (False, True):
        replies: list[object] = []
        many = [setting(f"{number}") for number in range(3_000)]
        submit_to(Controller(metadata), lambda image: result_of(*many), replies.append, unexpected)  # noqa: B023
        assert replies == []
        metadata.resign()
        if again:
            metadata.become_leader(NODE)
        end_offset = metadata.next_offset
        while later:
            later.pop(0)()
        (told,) = replies
        assert isinstance(told, KafkaError)
        assert told.error is Error.NOT_CONTROLLER
        assert metadata.next_offset == end_offset
        metadata.become_leader(NODE)


def test_a_log_without_leadership_takes_no_records(tmp_path: Path) -> None:
    observer = open_log(tmp_path / "log")
    with pytest.raises(KafkaError, match="NOT_CONTROLLER"):
        observer.append([setting("a")])
    assert observer.next_offset == 0


def test_an_observer_skips_nothing_where_the_leader_has_committed_more_than_was_fetched(
    tmp_path: Path,
) -> None:
    leader = open_log(tmp_path / "leader")
    leader.become_leader(NODE)
    observer = open_log(tmp_path / "observer")
    observer.replay()
    fetch(leader, observer)
    leader.append([setting("a")])
    observer.catch_up(leader.next_offset)
    assert configs(observer) == {}
    fetch(leader, observer)
    observer.catch_up(leader.next_offset)
    assert configs(observer) == {"a": "1"}


@pytest.mark.parametrize("is_held", [False, True])
def test_a_committed_record_that_cannot_be_applied_stops_the_node(
    voter: Voter, is_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    voter.syncs.is_held = is_held
    apply = ClusterImage.apply

    def fail(image: ClusterImage, record: object) -> None:
        if image is voter.metadata.image:
            raise KeyError("a fault of ours")
        apply(image, record)  # type: ignore[arg-type]

    monkeypatch.setattr(ClusterImage, "apply", fail)
    failed = None
    try:
        submit(voter.metadata, setting("a"))
        voter.sync_all()
    except Exception as error:
        failed = error
    assert failed is not None
    assert stops_the_broker(failed)
