"""Committed offsets: who may commit, what is stored and answered, deletion, and offsets in open transactions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.states import EMPTY
from coordinator.group.offsets.commit import Committer, NewOffset, OffsetProducer, Tombstones
from coordinator.group.records import CommittedOffset, OffsetKey, OffsetRecord
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    ConsumerProtocolSubscription,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from protocol.wire.codec import encode
from tests.support.staged_offsets import staged
from tests.unit.coordinator.runtime import START_MS, Groups

TOPIC_ID = b"t" * 16
OTHER_ID = b"u" * 16
PRODUCER = 4000


def fetch(
    groups: Groups,
    topic: str = "t",
    indexes: Sequence[int] = (0,),
    *,
    topic_id: bytes = bytes(16),
    stable: bool = False,
) -> list[OffsetFetchResponsePartitions]:
    asked = OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[*indexes])
    (answer,) = groups.shard.fetch_offsets("g", [asked], require_stable=stable)
    assert (answer.name, answer.topic_id) == (topic, topic_id)
    return answer.partitions


def commit_in_transaction(
    groups: Groups,
    offset: int,
    *,
    producer: int = PRODUCER,
    partition: int = 0,
    committer: Committer | None = None,
) -> list[Error]:
    try:
        return groups.shard.commit_offsets_in_transaction(
            committer or Committer("g"),
            staged(groups.shard, "g", [NewOffset("t", TOPIC_ID, partition, offset, -1, "")]),
            OffsetProducer(producer, 0),
            api_version=5,
        )
    except KafkaError as error:
        return [error.error]


def is_simple(group: ClassicGroup) -> bool:
    """Check whether the group exists only for its offsets."""
    return group.protocol_type is None and group.state is EMPTY and not group.pending_joins


def subscription(*topics: str) -> bytes:
    return b"\0\1" + encode(ConsumerProtocolSubscription(topics=[*topics]), 1)


# --- commits ------------------------------------------------------------------------------------------------


def test_an_offset_is_stored_as_it_was_committed() -> None:
    groups = Groups()
    offset = NewOffset("t", TOPIC_ID, 3, 77, 5, "note")
    groups.shard.commit_offsets(Committer("g"), staged(groups.shard, "g", [offset]), api_version=9)

    (record,) = groups.runtime.written()
    assert isinstance(record, OffsetRecord)
    assert record.key == OffsetKey("g", "t", 3)
    assert record.value == CommittedOffset(77, 5, "note", START_MS, -1, TOPIC_ID, 0)
    assert groups.shard.offsets.get(OffsetKey("g", "t", 3)) == record.value


def test_the_last_commit_counts() -> None:
    groups = Groups()
    for offset in (5, 9, 7):
        groups.commit(("t", 0, offset))

    assert groups.committed() == 7


def test_missing_metadata_is_stored_as_empty() -> None:
    groups = Groups()
    groups.commit(("t", 0, 1), metadata=None)

    assert fetch(groups)[0].metadata == ""


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("m" * 4096, Error.NONE),
        ("m" * 4097, Error.OFFSET_METADATA_TOO_LARGE),
        ("ü" * 4096, Error.NONE),
        ("\U0001f600" * 2048, Error.NONE),
        ("\U0001f600" * 2049, Error.OFFSET_METADATA_TOO_LARGE),
    ],
    ids=["longest", "too long", "letters of two bytes", "surrogates", "too many surrogates"],
)
def test_metadata_is_measured_in_javas_characters(metadata: str, expected: Error) -> None:
    assert Groups().commit(("t", 0, 1), metadata=metadata) == [expected]


def test_too_long_metadata_leaves_nothing_behind() -> None:
    groups = Groups()
    groups.commit(("t", 0, 1), metadata="m" * 4097)

    assert groups.runtime.log == []
    assert groups.committed() == -1


def test_one_bad_partition_does_not_harm_the_others() -> None:
    groups = Groups()
    offsets = [NewOffset("t", TOPIC_ID, 0, 1, -1, "m" * 5000), NewOffset("t", TOPIC_ID, 1, 2, -1, "")]
    errors = groups.shard.commit_offsets(Committer("g"), staged(groups.shard, "g", offsets), api_version=9)

    assert errors == [Error.OFFSET_METADATA_TOO_LARGE, Error.NONE]
    assert groups.committed(partition=1) == 2


def test_a_commit_without_a_generation_makes_a_group() -> None:
    groups = Groups()
    groups.commit(("t", 0, 1))

    assert is_simple(groups.shard.groups.classic["g"])


@pytest.mark.parametrize(
    ("version", "expected"), [(8, Error.ILLEGAL_GENERATION), (9, Error.GROUP_ID_NOT_FOUND)]
)
def test_a_generation_of_no_group_is_refused(version: int, expected: Error) -> None:
    assert Groups().commit(("t", 0, 1), generation=0, version=version) == [expected]


def test_a_commit_that_can_not_be_written_changes_nothing() -> None:
    groups = Groups()
    groups.commit(("t", 0, 1))
    groups.runtime.failing = Error.NOT_COORDINATOR

    assert groups.commit(("t", 0, 2)) == [Error.NOT_COORDINATOR]
    assert groups.committed() == 1


def test_members_are_checked_before_their_generation() -> None:
    groups = Groups()
    (me,) = groups.stable()

    assert groups.commit(("t", 0, 1), member_id="nobody", generation=9) == [Error.UNKNOWN_MEMBER_ID]
    assert groups.commit(("t", 0, 1), member_id=me, generation=9) == [Error.ILLEGAL_GENERATION]
    assert groups.commit(("t", 0, 1), member_id=me, generation=-1) == [Error.ILLEGAL_GENERATION]
    assert groups.commit(("t", 0, 1), generation=1) == [Error.UNKNOWN_MEMBER_ID]
    assert groups.commit(("t", 0, 1), member_id=me, generation=1) == [Error.NONE]


# --- fetches ------------------------------------------------------------------------------------------------


def test_a_missing_offset_is_minus_one_and_no_error() -> None:
    groups = Groups()
    groups.commit(("t", 0, 5))

    found, missing = fetch(groups, indexes=(0, 1))
    assert (found.committed_offset, found.error_code) == (5, 0)
    assert (missing.committed_offset, missing.committed_leader_epoch, missing.metadata) == (-1, -1, "")
    assert missing.error_code == Error.NONE


def test_all_offsets_of_a_group_include_no_others() -> None:
    groups = Groups()
    groups.commit(("t", 0, 5), ("u", 2, 7))
    groups.commit(("t", 0, 9), group="other")

    answers = groups.shard.fetch_all_offsets("g", require_stable=False)

    found = {
        (each.name, one.partition_index): one.committed_offset for each in answers for one in each.partitions
    }
    assert found == {("t", 0): 5, ("u", 2): 7}
    assert groups.shard.fetch_all_offsets("nobody", require_stable=False) == []


def test_an_offset_of_an_older_topic_of_the_same_name_does_not_count_by_id() -> None:
    groups = Groups()
    groups.commit(("t", 0, 5), topic_id=TOPIC_ID)

    assert fetch(groups, topic_id=OTHER_ID)[0].committed_offset == -1
    assert fetch(groups, topic_id=TOPIC_ID)[0].committed_offset == 5
    assert fetch(groups)[0].committed_offset == 5


# --- deletion -----------------------------------------------------------------------------------------------


def test_an_offset_is_deleted_with_a_tombstone_and_only_where_there_is_one() -> None:
    groups = Groups()
    groups.commit(("t", 0, 5))
    written = len(groups.runtime.log)

    assert groups.shard.delete_offsets("g", [("t", 0), ("t", 1)], Tombstones()) == [Error.NONE, Error.NONE]

    assert groups.runtime.written()[written:] == [OffsetRecord(OffsetKey("g", "t", 0), None)]
    assert groups.committed() == -1


def test_offsets_of_topics_that_members_consume_are_not_deleted() -> None:
    groups = Groups()
    (me,) = groups.stable(protocols=[("range", subscription("t"))])
    groups.commit(("t", 0, 5), ("u", 0, 6), member_id=me, generation=1)

    errors = groups.shard.delete_offsets("g", [("t", 0), ("u", 0)], Tombstones())

    assert errors == [Error.GROUP_SUBSCRIBED_TO_TOPIC, Error.NONE]
    assert (groups.committed("t"), groups.committed("u")) == (5, -1)


def test_members_with_an_unreadable_subscription_may_consume_anything() -> None:
    groups = Groups()
    groups.stable(protocols=[("range", b"?")])

    assert groups.shard.delete_offsets("g", [("t", 0)], Tombstones()) == [Error.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_no_group_can_not_be_deleted() -> None:
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        Groups().shard.delete_offsets("g", [("t", 0)], Tombstones())


def test_a_deleted_topics_offsets_go_but_not_those_of_its_successor() -> None:
    groups = Groups()
    groups.commit(("t", 0, 1), topic_id=TOPIC_ID)
    groups.commit(("t", 1, 2), topic_id=OTHER_ID)
    groups.commit(("t", 2, 3))
    groups.commit(("u", 0, 4), topic_id=OTHER_ID)

    sum(groups.shard.forget_topics([("t", TOPIC_ID)], ["t"]))

    assert [groups.committed("t", index) for index in range(3)] == [-1, 2, -1]
    assert groups.committed("u") == 4


# --- offsets in transactions --------------------------------------------------------------------------------


def test_an_offset_of_an_open_transaction_is_not_committed_yet() -> None:
    groups = Groups()
    groups.commit(("t", 0, 5))
    commit_in_transaction(groups, 9)

    last = groups.runtime.written()[-1]
    assert isinstance(last, OffsetRecord)
    assert last.value is not None
    assert last.value.topic_id == TOPIC_ID, "from Kafka 4.4 on"
    assert groups.runtime.log[-1][1] == PRODUCER
    assert groups.committed() == 5
    assert fetch(groups)[0].committed_offset == 5
    (unstable,) = fetch(groups, stable=True)
    assert (unstable.committed_offset, Error(unstable.error_code)) == (-1, Error.UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize(("commit", "expected"), [(True, 9), (False, 5)])
def test_a_marker_decides_the_offsets_of_its_producer(commit: bool, expected: int) -> None:
    groups = Groups()
    groups.commit(("t", 0, 5))
    commit_in_transaction(groups, 9)
    commit_in_transaction(groups, 11, producer=PRODUCER + 1, partition=1)

    groups.shard.end_transaction(PRODUCER, commit=commit)

    assert groups.committed() == expected
    assert fetch(groups, stable=True)[0].error_code == Error.NONE
    assert fetch(groups, indexes=(1,), stable=True)[0].error_code == Error.UNSTABLE_OFFSET_COMMIT


def test_a_later_plain_commit_outlives_the_marker() -> None:
    groups = Groups()
    commit_in_transaction(groups, 9)
    groups.commit(("t", 0, 12))

    groups.shard.end_transaction(PRODUCER, commit=True)

    assert groups.committed() == 12


def test_deletion_takes_pending_offsets_away_too() -> None:
    groups = Groups()
    commit_in_transaction(groups, 9)
    groups.shard.delete_offsets("g", [("t", 0)], Tombstones())
    groups.shard.end_transaction(PRODUCER, commit=True)

    assert groups.committed() == -1
    assert not groups.shard.offsets.has_open_transaction("g")


def test_a_deleted_groups_pending_offsets_go_with_it() -> None:
    groups = Groups()
    groups.commit(("t", 1, 5))
    commit_in_transaction(groups, 9)
    assert groups.shard.offsets.keys_held("g") == 2

    assert groups.shard.delete_groups(["g"]) == [Error.NONE]
    groups.shard.end_transaction(PRODUCER, commit=True)

    assert groups.shard.offsets.committed == {}


@pytest.mark.parametrize(
    ("committer", "expected"),
    [
        (Committer("g"), Error.NONE),
        (Committer("g", "me", None, 2), Error.NONE),
        (Committer("g", "me", None, 1), Error.ILLEGAL_GENERATION),
        (Committer("g", "nobody", None, 2), Error.UNKNOWN_MEMBER_ID),
        (Committer("g", "", None, 2), Error.UNKNOWN_MEMBER_ID),
        (Committer("new", "", None, 2), Error.ILLEGAL_GENERATION),
        (Committer("new"), Error.NONE),
    ],
)
def test_members_that_may_commit_in_a_transaction(committer: Committer, expected: Error) -> None:
    groups = Groups()
    (me,) = groups.stable()
    # the group now waits for a sync, which doesn't matter here
    groups.join(me, protocols=[("range", b"new")])
    real = committer._replace(member_id=me) if committer.member_id == "me" else committer

    assert commit_in_transaction(groups, 1, committer=real) == [expected]
