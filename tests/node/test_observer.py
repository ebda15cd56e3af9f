"""An observer of the metadata log ends up with the log of its leader, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.controller import quorum_state
from broker.controller.metadata_log import METADATA_TOPIC_ID
from broker.controller.observer import AfterAnswer, LeaderEndpoint, Observer, ObserverIdentity
from broker.controller.snapshots import SnapshotPolicy
from protocol.errors import BrokenInvariantError, Error, KafkaError
from protocol.messages.fetch import FetchRequest, FetchResponse, SnapshotId
from protocol.messages.metadata_records import RemoveTopicRecord
from protocol.messages.raft import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.records.batch import build_batch
from protocol.waiting import Later
from tests.node.metadata_logs import ALWAYS, NEVER, begin, open_log, topic
from tests.node.observers import (
    CLUSTER,
    DIRECTORY,
    LEADER,
    Controller,
    bytes_of,
    catch_up,
    catch_up_some,
    end_of,
    names,
    observer_in,
)
from tests.support.manual_clock import ManualClock


def test_an_empty_log_becomes_the_leaders(tmp_path: Path) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    controller.metadata.append(topic("a"))
    observer = observer_in(tmp_path / "observer")
    assert not observer.has_caught_up
    catch_up(observer, controller)
    assert observer.has_caught_up
    assert observer.leader == LEADER
    assert bytes_of(observer._metadata) == bytes_of(controller.metadata)
    assert names(observer._metadata) == ["a"]
    assert observer._metadata.image.features == controller.metadata.image.features


def test_a_restarted_observer_continues_where_it_was(tmp_path: Path) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    controller.metadata.append(topic("a"))
    observer = observer_in(tmp_path / "observer")
    assert observer.epoch == controller.metadata.epoch == 1
    assert quorum_state.read_leader_epoch(observer._log.files, observer._log.directory) in (0, 1)
    assert catch_up(observer, controller) == 1
    assert names(observer._metadata) == ["a"]


def test_an_observer_begins_with_a_snapshot_if_there_is_one(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader", ALWAYS)
    controller = Controller(metadata)
    for number in range(5):
        metadata.append(topic(f"t{number}"))
    newest = metadata.snapshots.newest
    assert newest is not None
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    assert observer._metadata.snapshots.ids == [newest]
    assert observer._log.log_start_offset == newest.offset
    assert names(observer._metadata) == names(metadata)
    metadata.append(topic("later"))
    again = observer_in(tmp_path / "observer")  # it begins with what is on the disk
    assert names(again._metadata) == [f"t{number}" for number in range(5)]
    catch_up(again, controller)
    assert names(again._metadata) == names(metadata)


def test_after_a_long_absence_a_snapshot_shows_what_came_and_went(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader", SnapshotPolicy(1, 0, 0, -1), segment_bytes=400)
    controller = Controller(metadata)
    metadata.append(topic("stays"))
    metadata.append(topic("goes"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    gone = metadata.image.topics["goes"]
    metadata.append([RemoveTopicRecord(topic_id=gone.topic_id)])
    metadata.append(topic("comes"))
    metadata.snapshots.clean(0)
    assert metadata.log.log_start_offset > observer._log.log_end_offset
    observer._metadata.image.take_changes()
    catch_up(observer, controller)
    changes = observer._metadata.image.take_changes()
    assert names(observer._metadata) == ["comes", "stays"]
    assert [removed.name for removed in changes.removed] == ["goes"]
    assert [*changes.touched] == [*observer._metadata.image.topics]
    assert observer._metadata.image.kept.take_quota_change()  # there may have been some


def test_records_that_the_leader_lacks_are_cut_off(tmp_path: Path) -> None:
    old = begin(tmp_path / "old")
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, Controller(old))
    new = open_log(tmp_path / "new")
    as_observer = Observer(new, ObserverIdentity(2, CLUSTER, DIRECTORY), ManualClock())
    catch_up(as_observer, Controller(old))
    old.replicate = lambda end_offset: None  # from now on nothing is committed
    old.append(topic("lost"))
    old.append(topic("lost-as-well"))
    for _ in range(3):
        observer.answered(Controller(old).answer(observer.request()))
    assert observer._log.log_end_offset == old.log.log_end_offset
    assert names(observer._metadata) == []
    new.become_leader(2)
    new.append(topic("kept"))
    controller = Controller(new)
    controller.requests.lead(LeaderEndpoint(2, "other.example", 9093))
    catch_up(observer, controller)
    assert bytes_of(observer._metadata) == bytes_of(new)
    assert names(observer._metadata) == ["kept"]
    assert observer.leader == LeaderEndpoint(2, "other.example", 9093)


def test_a_leader_that_would_cut_off_committed_records_is_not_believed(tmp_path: Path) -> None:
    first = Controller(begin(tmp_path / "first"))
    first.metadata.append(topic("a"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, first)
    other = begin(tmp_path / "other")
    other.become_leader(1)  # epoch 2, and another history
    with pytest.raises(BrokenInvariantError, match="truncated to offset"):
        catch_up(observer, Controller(other))
    assert names(observer._metadata) == ["a"]


def test_two_leaders_of_one_epoch_are_a_broken_invariant(tmp_path: Path) -> None:
    first = Controller(begin(tmp_path / "first"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, first)
    first.requests.lead(LeaderEndpoint(2))
    with pytest.raises(BrokenInvariantError, match="both say that they lead in epoch 1"):
        observer.answered(first.answer(observer.request()))


def test_a_controller_with_this_brokers_id_is_not_followed(tmp_path: Path) -> None:
    first = Controller(begin(tmp_path / "first"))
    observer = observer_in(tmp_path / "observer")
    first.requests.lead(LeaderEndpoint(observer._identity.node_id))
    with pytest.raises(BrokenInvariantError, match="as this broker, which needs another one"):
        catch_up(observer, first)
    assert observer.leader is None


def test_records_that_were_changed_on_the_way_are_not_taken(tmp_path: Path) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    observer.answered(controller.answer(observer.request()))
    answer = controller.answer(observer.request())
    assert isinstance(answer, FetchResponse)
    (found,) = answer.responses[0].partitions
    assert found.records
    records = bytearray(found.records)  # type: ignore[arg-type]
    for position in (20, 61, len(records) - 1):
        broken = bytearray(records)
        broken[position] ^= 1
        found.records = bytes(broken)
        assert observer.answered(answer) is AfterAnswer.BACK_OFF
    catch_up(observer, controller)
    assert bytes_of(observer._metadata) == bytes_of(controller.metadata)


def test_records_that_do_not_follow_are_not_taken(tmp_path: Path) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    controller.metadata.append(topic("a"))
    answer = controller.answer(observer.request())
    assert observer.answered(answer) is AfterAnswer.ASK
    assert observer.answered(answer) is AfterAnswer.BACK_OFF  # once more
    assert bytes_of(observer._metadata) == bytes_of(controller.metadata)
    first = controller.metadata.next_offset
    controller.metadata.append(topic("b"))
    controller.metadata.append(topic("c"))
    request = observer.request()
    assert isinstance(request, FetchRequest)
    request.topics[0].partitions[0].fetch_offset = first + 2
    assert observer.answered(controller.answer(request)) is AfterAnswer.BACK_OFF  # not what was asked for
    catch_up(observer, controller)
    assert bytes_of(observer._metadata) == bytes_of(controller.metadata)


def test_uncommitted_records_are_uncommitted_after_a_restart_too(tmp_path: Path) -> None:
    leader = begin(tmp_path / "leader")
    controller = Controller(leader)
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    leader.replicate = lambda end_offset: None
    leader.append(topic("lost"))
    observer.answered(controller.answer(observer.request()))
    again = observer_in(tmp_path / "observer")
    assert again._log.log_end_offset == leader.log.log_end_offset
    assert names(again._metadata) == []
    assert again._log.high_watermark < leader.log.log_end_offset
    other = begin(tmp_path / "other")  # it has the same beginning, and then something else
    other.become_leader(1)
    other.append(topic("kept"))
    catch_up(again, Controller(other))
    assert names(again._metadata) == ["kept"]
    assert bytes_of(again._metadata) == bytes_of(other)


@pytest.mark.parametrize("what", ["bytes", "footer", "record"])
def test_a_nonsense_snapshot_is_not_kept(tmp_path: Path, what: str) -> None:
    metadata = begin(tmp_path / "leader", ALWAYS)
    controller = Controller(metadata)
    metadata.append(topic("t"))
    observer = observer_in(tmp_path / "observer")
    while not isinstance(request := observer.request(), FetchSnapshotRequest):
        observer.answered(controller.answer(request))
    answer = controller.answer(request)
    assert isinstance(answer, FetchSnapshotResponse)
    piece = answer.topics[0].partitions[0]
    whole = bytes(piece.unaligned_records)
    broken = bytearray(whole[:-1] if what == "footer" else whole)
    if what == "bytes":
        broken[len(broken) // 2] ^= 1
    elif what == "record":
        broken = build_batch([(0, None, b"\x01\xff\x7f\x00", ())])
    piece.unaligned_records, piece.size = bytes(broken), len(broken)
    assert observer.answered(answer) is AfterAnswer.BACK_OFF
    assert observer._metadata.snapshots.ids == []
    catch_up(observer, controller)
    assert names(observer._metadata) == ["t"]


def test_a_snapshot_of_less_than_is_committed_is_not_believed(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader")
    controller = Controller(metadata)
    metadata.append(topic("t"))
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    answer = controller.answer(observer.request())
    assert isinstance(answer, FetchResponse)
    answer.responses[0].partitions[0].snapshot_id = SnapshotId(end_offset=3, epoch=1)
    with pytest.raises(BrokenInvariantError, match="only has a snapshot of the metadata up to offset 3"):
        observer.answered(answer)


def test_a_batch_of_a_later_epoch_waits_until_the_epoch_is_known(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader")
    controller = Controller(metadata)
    observer = observer_in(tmp_path / "observer")
    catch_up(observer, controller)
    before = observer._log.log_end_offset
    request = observer.request()
    metadata.become_leader(1)
    found = controller.answer(request)
    assert isinstance(found, FetchResponse)
    data = found.responses[0].partitions[0]
    assert data.error_code == Error.FENCED_LEADER_EPOCH
    assert data.current_leader is not None
    data.error_code, data.current_leader.leader_epoch, data.high_watermark = 0, 1, before
    data.records = bytes_of(metadata, before)  # as if they had come in amid the answer
    assert observer.answered(found) is AfterAnswer.ASK
    assert observer._log.log_end_offset == before
    catch_up(observer, controller)
    assert bytes_of(observer._metadata) == bytes_of(metadata)


def test_writing_under_way_comes_to_nothing_after_a_stop(tmp_path: Path) -> None:
    metadata = begin(tmp_path / "leader", ALWAYS)
    controller = Controller(metadata)
    observer = observer_in(tmp_path / "observer")
    works: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
    observer._metadata.snapshots._background = lambda work, then, **more: works.append((work, then))  # type: ignore[assignment]
    while not isinstance(request := observer.request(), FetchSnapshotRequest):
        observer.answered(controller.answer(request))
    assert isinstance(observer.answered(controller.answer(request)), Later)
    ((work, then),) = works
    work()
    observer.stop()
    then(None)
    assert names(observer._metadata) == []
    assert observer._log.log_end_offset == 0


def test_an_unreachable_leader_is_asked_again(tmp_path: Path) -> None:
    observer = observer_in(tmp_path / "observer")
    assert observer.answered(KafkaError(Error.NETWORK_EXCEPTION)) is AfterAnswer.BACK_OFF
    assert observer.answered(FetchResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)) is AfterAnswer.BACK_OFF
    assert observer.answered(FetchResponse()) is AfterAnswer.BACK_OFF
    assert observer.request().topics[0].topic_id == METADATA_TOPIC_ID  # type: ignore[union-attr]


def test_a_lasting_problem_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller(begin(tmp_path / "leader"))
    observer = observer_in(tmp_path / "observer")
    caplog.set_level("WARNING")
    refused = FetchResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
    for _ in range(3):
        observer.answered(refused)
    said = observer.complaint
    assert said.startswith(f"the controller belongs to another cluster than {CLUSTER}, ")
    assert caplog.messages == [said]
    catch_up(observer, controller)
    assert observer.complaint == ""
    observer.answered(refused)
    observer.answered(FetchResponse())
    assert caplog.messages == [said, said, "the controller's answer has another topic"]


@pytest.mark.parametrize("seed", range(60))
def test_an_observer_always_reaches_the_committed_state(tmp_path: Path, seed: int) -> None:
    """Leaders come and go among three nodes that follow each other. What was once committed stays in all logs."""
    luck = random.Random(seed)
    policy = luck.choice([NEVER, ALWAYS])
    segment_bytes = luck.choice([600, 10**6])
    logs = {node: open_log(tmp_path / f"{node}", policy, segment_bytes=segment_bytes) for node in (1, 2)}
    observer = observer_in(tmp_path / "observer")
    leader = made = 0

    def elect(node: int) -> Controller:
        logs[node].replicate = lambda end_offset: None  # only what both have is committed
        logs[node].become_leader(node)
        return controller_of(node)

    def controller_of(node: int) -> Controller:
        controller = Controller(logs[node])
        controller.requests.lead(LeaderEndpoint(node, f"{node}.example", 9093))
        return controller

    def follow(until_level: bool) -> None:
        """Have the other voter ask the leader until it knows the epoch, or until it is level."""
        other = Observer(logs[3 - leader], ObserverIdentity(3 - leader, CLUSTER, DIRECTORY), ManualClock())
        for _ in range(100):
            is_level = end_of(logs[3 - leader]) == end_of(controller.metadata)
            if other.epoch == controller.metadata.epoch and (is_level or not until_level):
                return
            other.answered(controller.answer(other.request()))
        raise AssertionError("the other one never comes level")

    def commit() -> None:
        follow(until_level=True)
        controller.metadata.commit(controller.metadata.next_offset)

    leader, controller = 1, elect(1)
    commit()
    for _ in range(40):
        action = luck.random()
        if action < 0.4:
            controller.metadata.append(topic(f"t{made}"))
            made += 1
        elif action < 0.7:
            catch_up_some(observer, controller, luck.randrange(1, 6))
        elif action < 0.85:
            commit()
        else:
            follow(until_level=False)
            controller.metadata.resign()
            leader = 3 - leader
            controller = elect(leader)
    commit()
    catch_up(observer, controller)
    assert names(observer._metadata) == names(controller.metadata)
    first = max(observer._log.log_start_offset, controller.metadata.log.log_start_offset)
    assert bytes_of(observer._metadata, first) == bytes_of(controller.metadata, first)
