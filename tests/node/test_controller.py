"""The controller decides a request by what is written, and answers it once the decision is committed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.controller import metadata_versions
from broker.controller.controller import Controller, ControllerResult, by_item
from broker.controller.image import BROKER_RESOURCE, ClusterImage
from broker.controller.metadata_log import MetadataLog
from broker.controller.snapshots import SnapshotPolicy, read_snapshot
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import turn
from protocol.wire.schema import Message
from storage.directory.log_directory import METADATA_TOPIC
from storage.log.log_config import LogConfig
from storage.log.log_state import AppendOrigin
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.manual_clock import ManualClock
from tests.support.submitting import submit_to, unexpected

NODE = 1
LARGE = 32_000  # 300 of these are more than a batch's 8 MiB


def open_log(folder: Path, policy: SnapshotPolicy | None = None) -> MetadataLog:
    clock = ManualClock()
    log = PartitionLog.open(
        str(folder),
        METADATA_TOPIC,
        0,
        LogConfig(),
        now_ms=clock.now_ms(),
        clean=False,
        files=files,
        background=run_at_once,
    )
    return MetadataLog(log, ClusterImage(), clock, policy)


@pytest.fixture
def metadata(tmp_path: Path) -> MetadataLog:
    """Return the metadata log of the only voter, which commits at once."""
    metadata = open_log(tmp_path / "log")
    metadata.become_leader(NODE)
    metadata.append_transaction("Bootstrap records", metadata_versions.feature_levels())
    return metadata


def setting(name: str, value: str = "1") -> Message:
    return records.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=name, value=value)


def result_of(*decided: Message) -> ControllerResult[str | Error]:
    return ControllerResult(decided, lambda error: "done" if error is None else error.error)


def submit(metadata: MetadataLog, *decided: Message) -> list[object]:
    """Submit these records as a decision. Returns the list of replies, which may come later."""
    replies: list[object] = []
    submit_to(Controller(metadata), lambda image: result_of(*decided), replies.append, unexpected)
    return replies


def wait_for_others(metadata: MetadataLog) -> None:
    """Have the leader commit only when the test says so from now on, as if it had followers."""
    metadata.replicate = lambda end_offset: None


def fetch(leader: MetadataLog, observer: MetadataLog) -> None:
    """Take over what the observer lacks of the leader's log, as a follower's fetch does."""
    for _, batch in leader.log.batches(observer.log.log_end_offset, upper_bound=leader.log.log_end_offset):
        observer.log.append(
            bytearray(batch), leader_epoch=leader.epoch, now_ms=0, origin=AppendOrigin.RAFT_LEADER
        )


def configs(metadata: MetadataLog) -> dict[str, str]:
    return metadata.image.configs.get((BROKER_RESOURCE, ""), {})


def decided_upon(metadata: MetadataLog) -> dict[str, str]:
    """Return the brokers' settings that the next decision finds."""
    found: dict[str, str] = {}

    def decide(image: ClusterImage) -> ControllerResult[str | Error]:
        found.update(image.configs.get((BROKER_RESOURCE, ""), {}))
        return result_of()

    submit_to(Controller(metadata), decide, lambda reply: None, unexpected)
    return found


def lose(metadata: MetadataLog, committed_offset: int, elsewhere: MetadataLog) -> None:
    """Have another voter be elected, whose log is the same up to this offset and continues with what it wrote
    `elsewhere`."""
    metadata.resign()
    metadata.log.truncate_to(committed_offset, 0)
    fetch(elsewhere, metadata)
    metadata.catch_up(elsewhere.next_offset)


def test_the_only_voter_has_one_image(metadata: MetadataLog) -> None:
    metadata.append([setting("a")])
    assert metadata.written is metadata.image


def test_decisions_lost_with_the_log_were_never_confirmed_and_affect_no_later_decision(
    metadata: MetadataLog, tmp_path: Path
) -> None:
    topic_id = bytes(15) + b"t"
    elsewhere = open_log(tmp_path / "elsewhere")
    fetch(metadata, elsewhere)
    elsewhere.replay()
    elsewhere.become_leader(2)
    elsewhere.append([records.TopicRecord(name="kept", topic_id=topic_id), setting("theirs")])
    committed_offset = metadata.next_offset
    wait_for_others(metadata)
    metadata.append([records.TopicRecord(name="lost", topic_id=topic_id), setting("ours")])
    assert "lost" in metadata.written.topics
    assert metadata.image.topics == {}
    lose(metadata, committed_offset, elsewhere)
    assert [*metadata.image.topics] == [*metadata.written.topics] == ["kept"]
    assert configs(metadata) == {"theirs": "1"}
    assert metadata.last_applied_offset == elsewhere.last_applied_offset
    metadata.become_leader(NODE)
    assert decided_upon(metadata) == {"theirs": "1"}


def test_records_written_before_the_log_was_lost_and_then_confirmed_are_applied_once(
    metadata: MetadataLog,
) -> None:
    wait_for_others(metadata)
    followed: list[object] = []
    metadata.on_change = lambda: followed.append([*metadata.image.take_changes().touched])
    metadata.append([records.TopicRecord(name="t", topic_id=bytes(15) + b"t")])
    metadata.resign()
    assert followed == []
    metadata.catch_up(metadata.next_offset)  # a topic that is created twice would contradict itself
    assert followed == [["t"]]
    assert metadata.written is metadata.image


def test_a_new_leader_decides_by_its_predecessors_records_before_they_are_known_committed(
    metadata: MetadataLog, tmp_path: Path
) -> None:
    elected = open_log(tmp_path / "elected")
    elected.replay()
    metadata.append([setting("a")])
    committed_offset = metadata.next_offset
    wait_for_others(metadata)
    metadata.append([setting("b"), records.BeginTransactionRecord(name="without an end"), setting("c")])
    fetch(metadata, elected)
    elected.catch_up(committed_offset)
    wait_for_others(elected)
    elected.become_leader(2)
    assert decided_upon(elected) == {"a": "1", "b": "1"}
    replies = submit(elected, setting("d"))
    assert configs(elected) == {"a": "1"}
    elected.commit(elected.next_offset)
    assert replies == ["done"]
    assert configs(elected) == decided_upon(elected) == {"a": "1", "b": "1", "d": "1"}


def test_the_only_voter_answers_within_submit_and_after_the_change_is_followed(metadata: MetadataLog) -> None:
    order: list[object] = []
    metadata.on_change = lambda: order.append(dict(configs(metadata)))
    submit_to(Controller(metadata), lambda image: result_of(setting("a")), order.append, unexpected)
    assert order == [{"a": "1"}, "done"]


def test_with_other_voters_a_change_is_followed_and_answered_when_it_is_committed(
    metadata: MetadataLog,
) -> None:
    wait_for_others(metadata)
    followed: list[object] = []
    metadata.on_change = lambda: followed.append(None)
    first, second = submit(metadata, setting("a")), submit(metadata, setting("b"))
    assert (first, second, followed) == ([], [], [])
    assert decided_upon(metadata) == {"a": "1", "b": "1"}
    assert configs(metadata) == {}
    metadata.commit(metadata.next_offset - 1)
    assert configs(metadata) == {"a": "1"}
    assert (first, second, len(followed)) == (["done"], [], 1)
    metadata.commit(metadata.next_offset)
    assert (first, second, len(followed)) == (["done"], ["done"], 2)
    metadata.commit(metadata.next_offset)
    assert len(followed) == 2


def test_a_decision_without_records_waits_for_those_that_it_may_rest_on(metadata: MetadataLog) -> None:
    assert submit(metadata) == ["done"]
    wait_for_others(metadata)
    submit(metadata, setting("a"))
    replies = submit(metadata)
    assert replies == []
    metadata.commit(metadata.next_offset)
    assert replies == ["done"]


def test_losing_the_log_answers_present_and_later_waiters(metadata: MetadataLog) -> None:
    wait_for_others(metadata)
    followed: list[object] = []
    metadata.on_change = lambda: followed.append(None)
    replies = submit(metadata, setting("a"))
    metadata.resign()
    assert replies == [Error.NOT_CONTROLLER]
    assert followed == []
    (told,) = submit(metadata, setting("b"))
    assert isinstance(told, KafkaError)
    assert told.error is Error.NOT_CONTROLLER
    assert "b" not in configs(metadata)


def test_a_decision_made_in_one_epoch_is_not_written_in_a_later_one(metadata: MetadataLog) -> None:
    async def decide(image: ClusterImage) -> ControllerResult[str | Error]:
        metadata.resign()
        metadata.become_leader(NODE)
        await turn()
        return result_of(setting("a"))

    replies: list[object] = []
    submit_to(Controller(metadata), decide, replies.append, unexpected)
    (told,) = replies
    assert isinstance(told, KafkaError)
    assert told.error is Error.NOT_CONTROLLER
    assert configs(metadata) == {}


def test_a_request_refused_as_a_whole_is_answered_so_and_changes_nothing(metadata: MetadataLog) -> None:
    replies: list[object] = []
    refusal = KafkaError(Error.POLICY_VIOLATION)

    def decide(image: ClusterImage) -> ControllerResult[str | Error]:
        raise refusal

    end_offset = metadata.next_offset
    submit_to(Controller(metadata), decide, replies.append, unexpected)
    assert replies == [refusal]
    (told,) = submit(metadata, *[setting("a", "x" * LARGE)] * 300)
    assert isinstance(told, KafkaError)
    assert (told.error, told.message) == (Error.UNKNOWN_SERVER_ERROR, None)
    assert metadata.next_offset == end_offset


def test_a_refusing_disk_fails_the_entries_that_were_not_refused_before(
    metadata: MetadataLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = KafkaError(Error.KAFKA_STORAGE_ERROR, "the disk's own words")

    def refuse(decided: Sequence[Message], *, may_split: bool) -> int:
        raise failure

    monkeypatch.setattr(metadata, "append", refuse)
    before = KafkaError(Error.INVALID_REQUEST)
    replies: list[object] = []
    items: list[tuple[str, bytes | KafkaError]] = [("a", b"id"), ("b", before)]
    submit_to(Controller(metadata), lambda image: by_item([setting("a")], items), replies.append, unexpected)
    ((a, b),) = replies
    assert b == ("b", before)
    assert a[1].error is Error.KAFKA_STORAGE_ERROR
    assert a[1].message is None


def test_an_observer_applies_committed_records_and_a_transaction_once_it_has_its_end(
    metadata: MetadataLog, tmp_path: Path
) -> None:
    observer = open_log(tmp_path / "observer")
    observer.replay()
    followed: list[object] = []
    observer.on_change = lambda: followed.append(dict(configs(observer)))
    metadata.append([setting("a")])
    before = metadata.next_offset
    metadata.append_transaction("both", [setting("b"), setting("c")])
    fetch(metadata, observer)
    assert configs(observer) == {}  # fetched, and not known to be committed
    observer.catch_up(before)
    assert configs(observer) == {"a": "1"}
    assert observer.last_applied_offset == before - 1
    metadata.append([setting("d")])
    fetch(metadata, observer)
    observer.catch_up(metadata.next_offset)
    assert configs(observer) == configs(metadata) == {"a": "1", "b": "1", "c": "1", "d": "1"}
    assert [len(found) for found in followed] == [1, 4]
    assert observer.image.features == metadata.image.features


def test_an_observer_that_is_elected_goes_on_with_the_log(metadata: MetadataLog, tmp_path: Path) -> None:
    observer = open_log(tmp_path / "observer")
    observer.replay()
    fetch(metadata, observer)
    observer.catch_up(metadata.next_offset)
    epoch = metadata.epoch
    metadata.resign()
    observer.become_leader(2)
    assert observer.epoch == epoch + 1
    assert submit(observer, setting("a")) == ["done"]


def test_a_snapshot_holds_only_committed_records(tmp_path: Path) -> None:
    metadata = open_log(tmp_path / "log", SnapshotPolicy(max_bytes_between=1))
    metadata.become_leader(NODE)
    metadata.append([setting("a")])
    first = metadata.snapshots.newest
    assert first is not None
    wait_for_others(metadata)
    metadata.append([setting("b")])
    middle = metadata.next_offset
    metadata.append([setting("c")])
    metadata.commit(middle)
    newest = metadata.snapshots.newest
    assert newest is not None
    assert (newest.offset, newest.epoch) == (middle, metadata.epoch)
    held = read_snapshot(files, metadata.snapshots.path_of_newest).records
    assert [record.name for record in held if isinstance(record, records.ConfigRecord)] == ["a", "b"]
    metadata.commit(metadata.next_offset)
    newest = metadata.snapshots.newest
    assert newest is not None
    assert newest.offset == metadata.next_offset


def test_no_snapshot_ends_within_a_transaction(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    leader.become_leader(NODE)
    leader._append_records([records.BeginTransactionRecord(name="x"), setting("a")])
    observer = open_log(tmp_path / "observer", SnapshotPolicy(max_bytes_between=1))
    fetch(leader, observer)
    observer.catch_up(leader.next_offset)
    assert observer.snapshots.newest is None
    leader._append_records([records.EndTransactionRecord()])
    fetch(leader, observer)
    observer.catch_up(leader.next_offset)
    newest = observer.snapshots.newest
    assert newest is not None
    assert (newest.offset, newest.epoch) == (leader.next_offset, leader.epoch)
