"""`offsets.retention.minutes`: what expires when, and what stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from coordinator.group.offsets import expiry
from coordinator.group.offsets.commit import Committer, NewOffset, OffsetProducer
from coordinator.group.records import CommittedOffset, OffsetKey, OffsetRecord
from coordinator.ports import CoordinatorRecord
from protocol.errors import Error, KafkaError
from protocol.messages.groups import ConsumerProtocolSubscription
from protocol.wire.codec import encode
from tests.support.staged_offsets import staged
from tests.unit.coordinator.runtime import START_MS, FakeRuntime, Groups

MINUTE_MS = 60_000
RETENTION_MS = 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS


@pytest.fixture
def groups() -> Groups:
    found = Groups(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS)
    found.shard.start()
    return found


def keep_alive(groups: Groups, member_id: str, for_ms: int) -> None:
    end_ms = groups.runtime.elapsed_ms + for_ms
    while groups.runtime.elapsed_ms < end_ms:
        groups.runtime.pass_ms(min(5_000, end_ms - groups.runtime.elapsed_ms))
        groups.heartbeat(member_id, 1)


def subscription(*topics: str) -> bytes:
    return b"\0\1" + encode(ConsumerProtocolSubscription(topics=[*topics]), 1)


def test_offsets_without_members_expire_by_their_commit(groups: Groups) -> None:
    groups.commit(("t", 0, 1))
    groups.runtime.pass_ms(30 * MINUTE_MS)
    groups.commit(("t", 1, 2))

    groups.runtime.pass_ms(RETENTION_MS - 30 * MINUTE_MS - 1)
    assert groups.committed("t", 0) == 1
    groups.runtime.pass_ms(1)
    assert (groups.committed("t", 0), groups.committed("t", 1)) == (-1, 2)
    assert "g" in groups.shard.groups.classic


def test_a_look_that_fails_is_not_the_last_one(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    groups.commit(("t", 0, 1))
    with monkeypatch.context() as patch:
        patch.setattr(groups.shard.groups, "all_with_offsets", _no_memory)
        with pytest.raises(MemoryError):
            groups.runtime.pass_ms(CHECK_MS)
    groups.runtime.pass_ms(RETENTION_MS)

    assert groups.committed("t", 0) == -1


def _no_memory() -> None:
    raise MemoryError


@pytest.mark.limit("coordinator.group.offsets.expiry.OFFSETS_PER_TURN")
def test_groups_are_looked_at_in_turns(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TURN", 3)
    for name in ("g1", "g2", "g3", "g4"):
        groups.commit(("t", 0, 1), ("t", 1, 2), group=name)
    groups.runtime.elapsed_ms += RETENTION_MS
    counts = []
    while len(groups.shard.groups.classic):
        groups.runtime.timers.fire_due()
        counts.append(len(groups.shard.groups.classic))
    assert counts == [3, 2, 1, 0]


def test_the_offsets_of_one_group_expire_in_turns_and_the_group_goes_last(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TURN", 3)
    for first in (0, 3, 6):
        groups.commit(*(("t", first + number, 1) for number in range(3)))
    groups.runtime.elapsed_ms += RETENTION_MS
    left = []
    while "g" in groups.shard.groups.classic:
        groups.runtime.timers.fire_due()
        left.append(groups.shard.offsets.held("g"))
    assert left == [6, 3, 0, 0]
    assert groups.restarted().shard.groups.classic == {}


def test_an_offset_committed_between_two_turns_of_the_expiry_stays_and_so_does_its_group(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TURN", 2)
    for first in (0, 2):
        groups.commit(*(("t", first + number, 1) for number in range(2)))
    groups.runtime.elapsed_ms += RETENTION_MS
    groups.runtime.timers.fire_due()
    assert groups.shard.offsets.held("g") == 2
    groups.commit(("t", 0, 5), ("t", 3, 6))
    for _ in range(3):
        groups.runtime.timers.fire_due()
    assert [groups.committed("t", number) for number in range(4)] == [5, -1, -1, 6]
    assert "g" in groups.shard.groups.classic


def test_a_member_that_joins_between_two_turns_of_the_expiry_keeps_the_rest(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "OFFSETS_PER_TURN", 2)
    groups.commit(*(("t", number, 1) for number in range(4)))
    groups.runtime.elapsed_ms += RETENTION_MS
    groups.runtime.timers.fire_due()
    groups.join(version=3)
    for _ in range(3):
        groups.runtime.timers.fire_due()
    assert groups.shard.offsets.held("g") == 2


def test_a_group_goes_with_its_last_offset(groups: Groups) -> None:
    groups.commit(("t", 0, 1))
    groups.runtime.pass_ms(RETENTION_MS)

    assert groups.shard.groups.classic == {}
    assert groups.restarted().shard.groups.classic == {}


def test_an_empty_group_without_offsets_goes_at_the_next_check(groups: Groups) -> None:
    (me,) = groups.stable()
    groups.leave(me)

    groups.runtime.pass_ms(CHECK_MS)
    assert groups.shard.groups.classic == {}


def test_a_group_with_members_stays_without_offsets_too(groups: Groups) -> None:
    (me,) = groups.stable()
    keep_alive(groups, me, 2 * CHECK_MS)

    assert groups.state == "Stable"


def test_offsets_of_a_group_expire_by_the_time_at_which_it_became_empty(groups: Groups) -> None:
    (me,) = groups.stable()
    groups.commit(("t", 0, 1), member_id=me, generation=1)
    keep_alive(groups, me, 2 * RETENTION_MS)
    groups.leave(me)

    groups.runtime.pass_ms(RETENTION_MS - 1)
    assert groups.committed() == 1
    groups.runtime.pass_ms(CHECK_MS)
    assert groups.shard.groups.classic == {}


def test_a_stable_group_keeps_only_the_offsets_of_topics_that_it_consumes(groups: Groups) -> None:
    (me,) = groups.stable(protocols=[("range", subscription("t"))])
    groups.commit(("t", 0, 1), ("u", 0, 2), member_id=me, generation=1)
    keep_alive(groups, me, RETENTION_MS + CHECK_MS)

    assert (groups.committed("t"), groups.committed("u")) == (1, -1)


@pytest.mark.parametrize(("protocol_type", "metadata"), [("consumer", b"?"), ("connect", subscription("t"))])
def test_nothing_expires_if_the_consumed_topics_are_unknown(
    groups: Groups, protocol_type: str, metadata: bytes
) -> None:
    (me,) = groups.stable(protocols=[("range", metadata)], protocol_type=protocol_type)
    groups.commit(("u", 0, 2), member_id=me, generation=1)
    keep_alive(groups, me, 2 * RETENTION_MS)

    assert groups.committed("u") == 2


def test_no_offset_expires_while_members_rebalance(groups: Groups) -> None:
    (me,) = groups.stable(protocols=[("range", subscription("t"))])
    groups.commit(("u", 0, 2), member_id=me, generation=1)
    keep_alive(groups, me, RETENTION_MS - 1000)
    groups.join(version=3, rebalance_ms=CHECK_MS, protocols=[("range", subscription("t"))])
    keep_alive(groups, me, 2_000)

    assert groups.state == "PreparingRebalance"
    assert groups.committed("u") == 2


def test_an_offset_with_a_time_of_its_own_expires_by_that(groups: Groups) -> None:
    groups.commit(("t", 0, 1), retention_ms=CHECK_MS)
    groups.commit(("t", 1, 1), retention_ms=3 * RETENTION_MS)

    groups.runtime.pass_ms(CHECK_MS)
    assert groups.committed("t", 0) == -1
    groups.runtime.pass_ms(2 * RETENTION_MS)
    assert groups.committed("t", 1) == 1


def test_an_open_transaction_keeps_offset_and_group(groups: Groups) -> None:
    groups.commit(("t", 0, 1))
    groups.shard.commit_offsets_in_transaction(
        Committer("g"),
        staged(groups.shard, "g", [NewOffset("t", bytes(16), 0, 9, -1, "")]),
        OffsetProducer(7, 0),
        api_version=5,
    )
    groups.runtime.pass_ms(2 * RETENTION_MS)
    assert groups.committed() == 1

    groups.shard.end_transaction(7, commit=False)
    groups.runtime.pass_ms(CHECK_MS)
    assert groups.shard.groups.classic == {}


class LimitedWorld(FakeRuntime):
    """A runtime that limits the bytes of a batch, and the number of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.batches_left = 1_000_000

    def append(self, records: Sequence[CoordinatorRecord], **how: Any) -> int:
        size_bytes = sum(len(key) + len(value or b"") for key, value in records)
        if size_bytes > 1_000_000 or self.batches_left == 0:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
        self.batches_left -= 1
        return super().append(records, **how)


def offset_records(group: str, count: int) -> list[OffsetRecord]:
    offset = CommittedOffset(0, -1, "", START_MS)
    return [OffsetRecord(OffsetKey(group, "t", index), offset) for index in range(count)]


def test_a_long_name_does_not_keep_offsets_from_expiring() -> None:
    groups = Groups(LimitedWorld())
    for record in offset_records("g" * 30_000, 40):
        groups.shard.journal.write([record])
    sum(groups.shard.forget_topics([("t", bytes(16))], ["t"]))
    assert not groups.shard.offsets.of_group("g" * 30_000)


def test_records_written_before_a_failure_are_in_force() -> None:
    runtime = LimitedWorld()
    groups = Groups(runtime)
    for record in offset_records("g" * 30_000, 4):
        groups.shard.journal.write([record])
    runtime.batches_left = 1
    with pytest.raises(KafkaError):
        sum(groups.shard.forget_topics([("t", bytes(16))], ["t"]))
    tombstones = [
        record for record in runtime.written() if isinstance(record, OffsetRecord) and not record.value
    ]
    assert len(tombstones) == 2
    assert len(groups.shard.offsets.of_group("g" * 30_000)["t"]) == 2
