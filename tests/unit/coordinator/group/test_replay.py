"""The state after a restart, and records of every age."""

from __future__ import annotations

import pytest

from coordinator.group.offsets.commit import Tombstones
from coordinator.group.records import (
    CommittedOffset,
    GroupRecord,
    OffsetKey,
    OffsetRecord,
    ShareGroupRecord,
    StreamsGroupRecord,
    decode_record,
    encode_record,
)
from protocol.errors import CodecError, Error
from protocol.messages.group_records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)
from protocol.messages.group_records_share import ShareGroupMetadataKey, ShareGroupMetadataValue
from protocol.wire.codec import encode
from tests.unit.coordinator.runtime import Groups

GROUP_KEY = b"\0\2" + b"\0\1g"
OFFSET_KEY = b"\0\1" + b"\0\1g" + b"\0\1t" + b"\0\0\0\3"
OLD_OFFSET_KEY = b"\0\0" + OFFSET_KEY[2:]


def test_members_offsets_and_generation_survive() -> None:
    groups = Groups()
    first, second = groups.stable(2)
    groups.commit(("t", 0, 5), member_id=first, generation=2)

    again = groups.restarted()

    assert again.state == "Stable"
    assert again.committed() == 5
    assert again.heartbeat(second, 2) is Error.NONE
    synced = again.sync(second, 2).sync
    assert synced is not None
    assert synced.assignment == second.encode()


def test_members_subscriptions_are_known_again() -> None:
    groups = Groups()
    groups.stable(protocols=[("range", b"\0\0" + b"\0\0\0\1" + b"\0\1t" + b"\xff\xff\xff\xff")])

    group = groups.restarted().shard.groups.classic["g"]

    assert group.is_subscribed_to("t")
    assert not group.is_subscribed_to("u")


def test_members_have_their_whole_session_after_a_restart() -> None:
    groups = Groups()
    groups.stable()
    groups.runtime.pass_ms(9_000)

    again = groups.restarted()
    again.runtime.pass_ms(9_999)
    assert again.state == "Stable"
    again.runtime.pass_ms(1)
    assert again.state == "Empty"


def test_unwritten_state_is_gone() -> None:
    groups = Groups()
    (me,) = groups.stable()
    pending = groups.join().join
    assert pending is not None
    # generation 2 begins when the pending id has joined or expired
    groups.join(me, protocols=[("range", b"new")])
    groups.runtime.pass_ms(10_000)
    assert groups.shard.groups.classic["g"].generation == 2

    again = groups.restarted()

    assert again.heartbeat(me, 2) is Error.ILLEGAL_GENERATION
    assert again.heartbeat(me, 1) is Error.NONE
    assert again.join(pending.member_id).error is Error.UNKNOWN_MEMBER_ID


def test_deletions_survive() -> None:
    groups = Groups()
    groups.commit(("t", 0, 5))
    groups.commit(("t", 0, 6), group="other")
    groups.shard.delete_groups(["g"])
    groups.shard.delete_offsets("other", [("t", 0)], Tombstones())

    again = groups.restarted()

    assert [*again.shard.groups.classic] == ["other"]
    assert again.shard.offsets.committed == {}


def test_a_group_that_is_larger_than_allowed_now_rebalances_at_once() -> None:
    groups = Groups()
    first, _ = groups.stable(2)
    groups.settings = Groups(max_size=1).settings

    again = groups.restarted()

    assert again.state == "PreparingRebalance"
    assert again.heartbeat(first, 2) is Error.REBALANCE_IN_PROGRESS


def test_offsets_of_a_transaction_are_pending_again_until_their_marker() -> None:
    groups = Groups()
    groups.shard.replay(OFFSET_KEY, b"\0\1" + encode(OffsetCommitValue(offset=8), 1), 10, 4000)
    assert groups.committed("t", 3) == -1

    groups.shard.end_transaction(4000, commit=True)
    assert groups.committed("t", 3) == 8


# --- records ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    value = OffsetCommitValue(
        offset=9, leader_epoch=4, metadata="m", commit_timestamp=11, expire_timestamp=12, topic_id=b"i" * 16
    )
    data = version.to_bytes(2, "big") + encode(value, version)

    assert decode_record(OFFSET_KEY, data, 77) == OffsetRecord(
        OffsetKey("g", "t", 3),
        CommittedOffset(
            9,
            4 if version >= 3 else -1,
            "m",
            11,
            12 if version == 1 else -1,
            b"i" * 16 if version >= 4 else bytes(16),
            77,
        ),
    )


def test_offsets_under_the_oldest_key_are_read() -> None:
    data = b"\0\0" + encode(OffsetCommitValue(offset=9, metadata="m", commit_timestamp=11), 0)

    assert decode_record(OLD_OFFSET_KEY, data, 5) == OffsetRecord(
        OffsetKey("g", "t", 3), CommittedOffset(9, -1, "m", 11, record_offset=5)
    )


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        members=[MemberMetadata(member_id="m", session_timeout=7_000, subscription=b"s", assignment=b"a")],
    )
    groups = Groups()
    groups.shard.replay(GROUP_KEY, version.to_bytes(2, "big") + encode(value, version), 0, -1)

    group = groups.shard.groups.classic["g"]
    assert (group.generation, group.leader_id, groups.state) == (3, "m", "Stable")
    assert group.rebalance_timeout_ms == 7_000, "without one of its own, the session timeout stands for it"
    assert group.members["m"].assignment == b"a"


def test_offsets_are_written_in_the_format_without_expiry_and_with_topic_id() -> None:
    key, value = encode_record(
        OffsetRecord(OffsetKey("g", "t", 3), CommittedOffset(9, 4, "m", 11, topic_id=b"i" * 16))
    )

    assert key == OFFSET_KEY
    assert value is not None
    assert value[:2] == b"\0\4"


def test_an_offset_with_an_expiry_is_written_in_the_old_format() -> None:
    record = OffsetRecord(OffsetKey("g", "t", 3), CommittedOffset(9, -1, "m", 11, 12))
    key, value = encode_record(record)

    assert value is not None
    assert value[:2] == b"\0\1"
    found = decode_record(key, value, -1)
    assert found == record


def test_a_group_is_written_in_version_3() -> None:
    _, value = encode_record(GroupRecord("g", GroupMetadataValue(protocol=None, leader=None)))

    assert value is not None
    assert value[:2] == b"\0\3"


@pytest.mark.parametrize(
    "record",
    [
        ShareGroupRecord(ShareGroupMetadataKey(group_id="g"), ShareGroupMetadataValue(epoch=1)),
        StreamsGroupRecord(StreamsGroupMetadataKey(group_id="g"), StreamsGroupMetadataValue(epoch=1)),
    ],
    ids=["share", "streams"],
)
def test_offsets_of_groups_that_have_none_make_no_classic_ones(
    record: ShareGroupRecord | StreamsGroupRecord,
) -> None:
    groups = Groups()
    key, value = encode_record(record)
    groups.shard.replay(key, value, 0, -1)
    groups.shard.replay(OFFSET_KEY, b"\0\4" + encode(OffsetCommitValue(offset=8), 4), 1, -1)

    assert groups.shard.groups.classic == {}
    assert groups.committed("t", 3) == 8


def test_a_key_of_an_unknown_type_is_skipped() -> None:
    assert decode_record(b"\0\144whatever", b"\0\0", 0) is None
    Groups().shard.replay(b"\0\144whatever", b"\0\0", 0, -1)


@pytest.mark.parametrize(
    ("key", "value"), [(b"\0", b""), (GROUP_KEY, b"\0"), (GROUP_KEY, b"\0\5"), (GROUP_KEY, b"\0\3\0")]
)
def test_a_nonsense_record_is_an_error(key: bytes, value: bytes) -> None:
    with pytest.raises(CodecError):
        decode_record(key, value, 0)


def test_a_record_of_a_group_that_can_not_be_is_refused() -> None:
    def group(
        leader: str | None, *members: tuple[str, str | None], generation: int = 1
    ) -> GroupMetadataValue:
        return GroupMetadataValue(
            protocol_type="consumer",
            generation=generation,
            protocol="range",
            leader=leader,
            members=[
                MemberMetadata(member_id=member_id, group_instance_id=instance_id, session_timeout=1000)
                for member_id, instance_id in members
            ],
        )

    for senseless, why in (
        (group("a", ("a", "i"), ("b", "i")), "two members of one instance id"),
        (group("a", ("a", None), ("a", None)), "a member twice"),
        (group("c", ("a", None)), "led by 'c', which is no member"),
        (group("a", ("a", None), generation=2**31 - 1), "at epoch 2147483647"),
    ):
        with pytest.raises(CodecError, match=why):
            Groups().shard.replay(*encode_record(GroupRecord("g", senseless)), 0, -1)
    shard = Groups().shard
    shard.replay(*encode_record(GroupRecord("g", group("gone"))), 0, -1)
    assert shard.groups.classic["g"].leader_id is None, "nobody has to be there to lead nobody"
