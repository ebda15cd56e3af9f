"""How the share coordinator handles requests, and what a restart remembers."""

from __future__ import annotations

import pytest

from coordinator.persister import StateBatch
from coordinator.share import share_partitions as decisions
from coordinator.share.share_partitions import (
    HIGHEST_SNAPSHOT_EPOCH,
    MOST_BATCHES,
    ShareGroupOffset,
    ShareRecord,
    decode_record,
    encode_record,
)
from protocol.errors import CodecError, Error
from tests.support.wishes import drive
from tests.unit.coordinator.runtime import START_MS, FakeRuntime
from tests.unit.coordinator.share.share_shards import OTHER_TOPIC, TOPIC, ShareShards, key_of

UNKNOWN_TOPIC = b"u" * 16


def test_an_initialized_state_is_a_snapshot_without_batches() -> None:
    shards = ShareShards()
    assert shards.initialize(state_epoch=7) is None
    assert shards.written() == [
        ShareRecord(key_of(), ShareGroupOffset(0, 7, 0, -1, -1, (), START_MS, START_MS))
    ]
    assert shards.read() == (7, -1, [])
    assert shards.summary() == (7, 0, -1, -1)


def test_initializing_again_starts_with_the_next_snapshot_epoch() -> None:
    shards = ShareShards()
    shards.initialize()
    shards.write((0, 9, 2, 1), start=0)
    assert shards.initialize(state_epoch=2, start_offset=100) is None
    assert shards.read() == (2, 100, [])
    assert shards.summary() == (2, 0, 100, 0)
    snapshot = shards.written()[-1].state
    assert snapshot is not None
    assert (snapshot.snapshot_epoch, snapshot.leader_epoch) == (1, 0)


def test_a_write_is_an_update_and_its_batches_lie_over_those_before() -> None:
    shards = ShareShards()
    shards.initialize()
    assert shards.write((20, 29, 0, 1), start=20, count=0) is None
    assert shards.write((24, 25, 2, 1), (20, 29, 0, 0), (21, 23, 4, 1), start=22, count=4) is None
    assert shards.read() == (1, 22, [(22, 23, 4, 1), (24, 25, 2, 1), (26, 29, 0, 1)])
    assert shards.summary() == (1, 0, 22, 4)
    update = shards.written()[-1]
    assert update.is_update
    assert update.state is not None
    assert (update.state.snapshot_epoch, update.state.start_offset) == (0, 22)
    assert [tuple(each) for each in update.state.state_batches] == [
        (22, 23, 4, 1),
        (24, 25, 2, 1),
        (26, 29, 0, 0),
    ]


def test_a_write_without_a_start_leaves_it() -> None:
    shards = ShareShards()
    shards.initialize(start_offset=5)
    shards.write((5, 6, 2, 1), start=-1, count=2)
    assert shards.read() == (1, 5, [(5, 6, 2, 1)])


def test_after_a_number_of_updates_a_write_is_a_full_snapshot() -> None:
    shards = ShareShards(updates_per_snapshot=2)
    shards.initialize()
    for offset in range(4):
        shards.runtime.pass_ms(10)
        shards.write((offset, offset, 2, 1), start=0, count=offset)
    assert [record.is_update for record in shards.written()] == [False, True, True, False, True]
    snapshot = shards.written()[3].state
    assert snapshot is not None
    assert snapshot[:5] == (1, 1, 0, 0, 2)
    assert [tuple(each) for each in snapshot.state_batches] == [(0, 2, 2, 1)]
    assert (snapshot.create_timestamp, snapshot.write_timestamp) == (START_MS + 30, START_MS + 30)


def test_with_no_updates_per_snapshot_each_write_is_one() -> None:
    shards = ShareShards(updates_per_snapshot=0)
    shards.initialize()
    shards.write((0, 0, 2, 1))
    shards.write((1, 1, 2, 1))
    assert [record.is_update for record in shards.written()] == [False, False, False]


def test_a_read_by_a_new_leader_is_recorded_once_and_fences_those_before() -> None:
    shards = ShareShards()
    shards.initialize(start_offset=5)
    shards.write((5, 9, 0, 1), start=5, count=3)
    assert shards.read(leader_epoch=4) == (1, 5, [(5, 9, 0, 1)])
    update = shards.written()[-1]
    assert update.is_update
    assert update.state is not None
    assert (update.state.leader_epoch, update.state.start_offset) == (4, 5)
    assert (update.state.delivery_complete_count, update.state.state_batches) == (3, ())
    records = len(shards.runtime.log)
    shards.read(leader_epoch=4)
    assert len(shards.runtime.log) == records
    assert shards.read(leader_epoch=3) is Error.FENCED_LEADER_EPOCH
    assert shards.write((5, 5, 2, 1), leader_epoch=3) is Error.FENCED_LEADER_EPOCH
    assert shards.summary() == (1, 4, 5, 3)


def test_a_newer_leader_or_state_epoch_of_a_write_is_taken_and_not_kept() -> None:
    shards = ShareShards()
    shards.initialize(state_epoch=3)
    assert shards.write((0, 0, 2, 1), leader_epoch=9, state_epoch=9) is None
    assert shards.write((0, 0, 2, 1), leader_epoch=0, state_epoch=3) is None
    assert shards.summary()[:2] == (3, 0)


def test_an_earlier_state_epoch_is_fenced() -> None:
    shards = ShareShards()
    shards.initialize(state_epoch=3)
    assert shards.write((0, 0, 2, 1), state_epoch=2) is Error.FENCED_STATE_EPOCH
    assert shards.initialize(state_epoch=2) is Error.FENCED_STATE_EPOCH
    assert shards.write((0, 0, 2, 1), state_epoch=2) is Error.FENCED_STATE_EPOCH


def test_a_negative_epoch_is_refused() -> None:
    """KAFKA-20743: up to Kafka 4.3, −1 stood for any epoch. This check comes first."""
    shards = ShareShards()
    for _ in range(2):  # first the share partition is unknown, then it is known
        assert shards.write((0, 0, 2, 1), leader_epoch=-1) is Error.INVALID_REQUEST
        assert shards.write((0, 0, 2, 1), state_epoch=-1) is Error.INVALID_REQUEST
        assert shards.read(leader_epoch=-1) is Error.INVALID_REQUEST
        assert shards.runtime.log == [] or len(shards.runtime.log) == 1
        shards.initialize()
    assert shards.initialize(state_epoch=-1) is Error.INVALID_REQUEST


@pytest.mark.parametrize("snapshots", [False, True])
@pytest.mark.parametrize(
    ("start", "count", "kept"),
    [(-1, 9, (5, 3)), (4, 9, (5, 3)), (5, 2, (5, 3)), (5, 4, (5, 4)), (6, 0, (6, 0)), (6, 7, (6, 7))],
)
def test_the_start_never_moves_back_and_the_count_goes_with_it(
    start: int, count: int, kept: tuple[int, int], snapshots: bool
) -> None:
    """This holds for an update, for a snapshot, and after reading the log again."""
    shards = ShareShards(updates_per_snapshot=0 if snapshots else 500)
    shards.initialize(start_offset=5)
    shards.write(start=5, count=3)
    shards.write((5, 9, 0, 1), start=start, count=count)
    assert shards.summary()[2:] == kept
    assert shards.restarted().summary()[2:] == kept


def test_a_deleted_share_partition_is_gone_and_deleting_a_missing_one_costs_no_record() -> None:
    shards = ShareShards()
    assert shards.delete() is None
    assert shards.runtime.log == []
    shards.initialize()
    assert shards.delete() is None
    assert shards.written()[-1] == ShareRecord(key_of(), None)
    assert shards.summary() == (0, 0, -1, -1)
    assert shards.read() is Error.INVALID_REQUEST
    assert shards.initialize(state_epoch=1) is None
    assert shards.written()[-1].state == ShareGroupOffset(0, 1, 0, -1, -1, (), START_MS, START_MS)


@pytest.mark.parametrize("is_known", [False, True])
def test_each_request_is_checked_in_kafkas_order(is_known: bool) -> None:
    """Each line is wrong in one more way than the line before. The answer names the error that Kafka checks first."""
    shards = ShareShards()
    if is_known:
        for partition in (0, 9):
            shards.topics[TOPIC] = 10
            shards.initialize(state_epoch=5, partition=partition)
            shards.read(leader_epoch=5, partition=partition)
        shards.topics[TOPIC] = 3
    uninitialized = None if is_known else Error.INVALID_REQUEST
    absent = Error.UNKNOWN_TOPIC_OR_PARTITION
    fenced_leader, fenced_state = Error.FENCED_LEADER_EPOCH, Error.FENCED_STATE_EPOCH
    batch = (5, 2, 0, 1)
    records = len(shards.runtime.log)
    assert shards.write(batch, leader_epoch=5, state_epoch=5) is Error.INVALID_REQUEST
    assert shards.write(batch, leader_epoch=5, state_epoch=5, partition=9) is (uninitialized or absent)
    assert shards.write(batch, leader_epoch=5, partition=9) is (uninitialized or fenced_state)
    assert shards.write(batch, leader_epoch=4, partition=9) is (uninitialized or fenced_leader)
    assert shards.write(batch, leader_epoch=4, partition=-1) is Error.INVALID_REQUEST
    assert shards.read(leader_epoch=5, partition=9) is (uninitialized or absent)
    assert shards.read(leader_epoch=4, partition=9) is (uninitialized or fenced_leader)
    assert shards.read(leader_epoch=4, partition=-1) is Error.INVALID_REQUEST
    assert shards.initialize(state_epoch=5, partition=9) is absent
    assert shards.initialize(state_epoch=4, partition=9) is (fenced_state if is_known else absent)
    assert shards.initialize(state_epoch=4, partition=-1) is Error.INVALID_REQUEST
    for ask in (shards.delete, shards.summary):
        assert ask(partition=9) is absent
        assert ask(partition=-1) is Error.INVALID_REQUEST
    assert shards.initialize(topic_id=UNKNOWN_TOPIC) is absent
    assert len(shards.runtime.log) == records


def test_a_failed_write_changes_nothing() -> None:
    shards = ShareShards()
    shards.initialize()
    shards.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    assert shards.write((0, 0, 2, 1), start=0) is Error.COORDINATOR_NOT_AVAILABLE
    assert shards.delete() is Error.COORDINATOR_NOT_AVAILABLE
    shards.runtime.failing = None
    assert shards.read() == (1, -1, [])


def test_uncommitted_states_are_shown_to_nobody() -> None:
    shards = ShareShards()
    shards.runtime.lags = True
    told: list[object] = []
    drive(shards.shard.ask(lambda shard: shard.initialize(key_of(), 1, -1)), told.append)
    drive(shards.shard.ask(lambda shard: shard.summarize(key_of()).state_epoch), told.append)
    assert told == []
    shards.runtime.commit()
    assert told == [None, 1]


def test_a_request_that_waits_too_long_for_a_commit_may_be_repeated_and_its_write_counts() -> None:
    shards = ShareShards(write_timeout_ms=5_000)
    shards.runtime.lags = True
    told: list[object] = []
    drive(shards.shard.ask(lambda shard: shard.initialize(key_of(), 1, -1)), told.append)
    shards.runtime.pass_ms(4_999)
    assert told == []
    shards.runtime.pass_ms(1)
    (error,) = told
    assert getattr(error, "error", None) is Error.COORDINATOR_NOT_AVAILABLE
    shards.runtime.commit()
    assert len(told) == 1
    assert shards.read() == (1, -1, [])


@pytest.mark.parametrize("how", ["lost", "unloaded"])
def test_a_request_waiting_when_the_partition_goes_has_to_find_the_coordinator(how: str) -> None:
    shards = ShareShards()
    shards.runtime.lags = True
    told: list[object] = []
    drive(shards.shard.ask(lambda shard: shard.initialize(key_of(), 1, -1)), told.append)
    if how == "lost":
        shards.runtime.fail_commits()
    else:
        shards.shard.unload()
    (error,) = told
    assert getattr(error, "error", None) is Error.NOT_COORDINATOR
    assert shards.summary() is Error.NOT_COORDINATOR
    assert shards.initialize() is Error.NOT_COORDINATOR


def test_a_restart_restores_all_states() -> None:
    shards = ShareShards(updates_per_snapshot=3)
    for partition in range(3):
        shards.initialize(partition=partition, state_epoch=partition)
        shards.read(leader_epoch=2, partition=partition)
        for offset in range(partition + 1):
            shards.write((offset, offset + 3, 0, offset), leader_epoch=2, start=offset, partition=partition)
    shards.delete(partition=1)
    again = shards.restarted()
    for partition in range(3):
        assert again.summary(partition=partition) == shards.summary(partition=partition)
        assert again.read(-1, partition=partition) == shards.read(-1, partition=partition)
        assert again.write((0, 0, 2, 1), leader_epoch=1, partition=partition) == shards.write(
            (0, 0, 2, 1), leader_epoch=1, partition=partition
        )
        mine, theirs = (each.shard.known.get(key_of(partition)) for each in (again, shards))
        assert (mine and mine.updates) == (theirs and theirs.updates)


def test_replayed_states_are_not_shown_before_they_are_committed() -> None:
    shards = ShareShards()
    shards.initialize()
    runtime = FakeRuntime()
    runtime.lags = True
    runtime.log = [*shards.runtime.log]
    again = ShareShards(runtime)
    again.shard.replay(*runtime.log[0][0], 0, -1)
    again.shard.start(1)
    told: list[object] = []
    drive(again.shard.ask(lambda shard: shard.summarize(key_of()).state_epoch), told.append)
    assert told == []
    runtime.commit()
    assert told == [1]


def test_an_update_whose_snapshot_is_lost_is_taken_as_it_is() -> None:
    shards = ShareShards()
    update = ShareRecord(key_of(), ShareGroupOffset(4, 0, 3, 10, 2), is_update=True)
    shards.shard.replay(*encode_record(update), 0, -1)
    assert shards.summary() == (0, 3, 10, 2)
    assert shards.write((10, 10, 2, 1), state_epoch=0, leader_epoch=3) is None
    assert shards.initialize(state_epoch=0) is None


def test_deleted_topics_take_their_share_partitions_along() -> None:
    shards = ShareShards()
    for partition in range(3):
        shards.initialize(partition=partition)
        shards.initialize(partition=partition, topic_id=OTHER_TOPIC)
    assert [*shards.shard.forget_topics([TOPIC, UNKNOWN_TOPIC])] == [3]
    assert [record.key for record in shards.written()[-3:]] == [key_of(0), key_of(1), key_of(2)]
    assert all(record.state is None for record in shards.written()[-3:])
    assert shards.shard.known.keys() == [key_of(partition, OTHER_TOPIC) for partition in range(3)]
    assert [*shards.shard.forget_topics([TOPIC])] == []


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0", b""), (b"\0\0", None), (b"\0\1\2g\0", None), (b"\0\0\0\1g", b"\0\0")],
)
def test_records_that_make_no_sense_are_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CodecError):
        decode_record(key, value)


@pytest.mark.parametrize("is_update", [False, True])
def test_states_that_make_no_sense_are_refused(is_update: bool) -> None:
    sound = ShareGroupOffset(HIGHEST_SNAPSHOT_EPOCH, state_batches=(StateBatch(5, 5, 0, 1),))
    assert decode_record(*encode_record(ShareRecord(key_of(), sound, is_update))) is not None
    for state in (
        sound._replace(snapshot_epoch=HIGHEST_SNAPSHOT_EPOCH + 1),
        sound._replace(state_batches=(StateBatch(5, 4, 0, 1),)),
    ):
        with pytest.raises(CodecError):
            decode_record(*encode_record(ShareRecord(key_of(), state, is_update)))


def test_an_update_without_a_value_is_nonsense() -> None:
    update = ShareRecord(key_of(), ShareGroupOffset(), is_update=True)
    with pytest.raises(CodecError):
        decode_record(encode_record(update)[0], None)


def test_a_record_of_an_unknown_type_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    shards = ShareShards()
    shards.shard.replay(b"\0\7", b"", 0, -1)
    assert "unknown type" in caplog.text
    assert len(shards.shard.known) == 0


@pytest.mark.limit("coordinator.share.share_partitions.MOST_BATCHES")
def test_a_write_has_a_limit_of_batches() -> None:
    shards = ShareShards()
    shards.initialize()
    batches = [(offset, offset, 2, 1) for offset in range(MOST_BATCHES)]
    assert shards.write(*batches, (0, 0, 0, 1)) is Error.INVALID_REQUEST
    assert shards.write(*batches) is None
    assert shards.read()[2] == [(0, MOST_BATCHES - 1, 2, 1)]


@pytest.mark.limit("coordinator.share.share_partitions.MOST_BATCHES")
def test_a_share_partition_has_a_limit_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "MOST_BATCHES", 10)
    shards = ShareShards()
    shards.initialize()
    apart = [(offset, offset, 2, 1) for offset in range(0, 40, 2)]
    assert shards.write(*apart[:6]) is None
    assert shards.write(*apart[6:10]) is None
    assert shards.write(apart[10]) is Error.INVALID_REQUEST
    assert len(shards.read()[2]) == 10
    assert shards.write((0, 0, 4, 2)) is None  # this offset is already in the state
    # the new start drops other batches
    assert shards.write((1, 1, 4, 2), (apart[11]), start=apart[3][0]) is None
    assert shards.read()[2][0] == apart[3]
