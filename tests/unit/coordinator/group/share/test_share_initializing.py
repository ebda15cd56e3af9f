"""How the states of a share group's partitions are initialized and deleted, and altered on request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.coordination.groups import Groups
from coordinator.group.share.initializing import MOST_ASKED_AT_ONCE
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from tests.support.wishes import drive
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.share.sharers import Sharers


def test_initializing_partitions_are_requested_once_committed_and_recorded_once_done() -> None:
    sharers = Sharers()
    sharers.persister.holds = True
    sharers.runtime.lags = True
    sharers.enter("m")
    assert sharers.persister.asked == []
    sharers.runtime.commit()
    assert len(sharers.persister.asked) == 3
    assert sharers.state_partitions() == ({"t": [0, 1, 2]}, {}, [])
    sharers.beat("m", 2)
    assert len(sharers.persister.asked) == 3
    sharers.persister.answer()
    assert sharers.state_partitions() == ({}, {"t": [0, 1, 2]}, [])


def test_lost_records_are_not_requested() -> None:
    sharers = Sharers()
    sharers.runtime.lags = True
    sharers.enter("m")
    sharers.runtime.fail_commits()
    assert sharers.persister.asked == []


def test_a_refused_initialization_is_given_up_and_the_next_heartbeat_begins_again() -> None:
    sharers = Sharers()
    sharers.persister.failing = Error.COORDINATOR_NOT_AVAILABLE
    sharers.enter("m")
    assert sharers.state_partitions() == ({}, {}, [])
    sharers.persister.failing = None
    sharers.beat("m", 2)
    assert sharers.state_partitions() == ({}, {"t": [0, 1, 2]}, [])


def test_an_unanswered_initialization_is_not_repeated_however_long_it_takes() -> None:
    """If the first request succeeded, records may already be acknowledged when the second one arrives."""
    sharers = Sharers(share_initialize_retry_interval_ms=30_000)
    sharers.persister.holds = True
    sharers.enter("m")
    sharers.runtime.pass_ms(30_000)
    sharers.beat("m", 2)
    assert len(sharers.persister.asked) == 3
    sharers.persister.answer()
    assert sharers.state_partitions() == ({}, {"t": [0, 1, 2]}, [])


def test_partitions_that_two_heartbeats_found_missing_are_requested_once() -> None:
    sharers = Sharers()
    sharers.persister.holds = True
    sharers.runtime.lags = True
    sharers.enter("m")
    sharers.runtime.pass_ms(30_000)
    sharers.beat("m", 2)
    sharers.runtime.commit()
    assert [asked[3] for asked in sharers.persister.asked] == [0, 1, 2]


def begun_again() -> Sharers:
    """Return a group that was deleted while its share partitions were initializing, and then made anew."""
    sharers = Sharers()
    sharers.persister.holds = True
    sharers.enter("m")
    sharers.beat("m", -1)
    delete(sharers, "g")
    sharers.enter("n")
    return sharers


def test_a_refusal_to_a_deleted_group_is_none_to_the_next_one() -> None:
    sharers = begun_again()
    sharers.persister.failing = Error.COORDINATOR_NOT_AVAILABLE
    sharers.persister.answer(3)
    assert sharers.state_partitions() == ({"t": [0, 1, 2]}, {}, [])


def test_an_initialization_pending_when_a_group_was_deleted_is_repeated_by_the_next_one() -> None:
    sharers = begun_again()
    asked = [each[0] for each in sharers.persister.asked]
    assert asked == [*["initialize"] * 3, *["delete"] * 3, *["initialize"] * 3]
    sharers.persister.answer(3)  # these are the first group's requests
    assert sharers.state_partitions() == ({"t": [0, 1, 2]}, {}, [])
    sharers.runtime.pass_ms(30_000)
    sharers.beat("n", sharers.group.epoch)
    assert len(sharers.persister.asked) == 9
    sharers.persister.answer()
    assert sharers.state_partitions() == ({}, {"t": [0, 1, 2]}, [])


def test_a_restart_restarts_the_time_of_initializing_partitions() -> None:
    sharers = Sharers()
    sharers.persister.holds = True
    sharers.enter("m")
    again = sharers.restarted()
    again.beat("m", 2)
    assert again.persister.asked == []
    again.runtime.pass_ms(30_000)
    again.beat("m", 2)
    assert len(again.persister.asked) == 3


def test_an_answer_for_a_group_that_is_gone_is_of_no_use() -> None:
    sharers = Sharers()
    sharers.persister.holds = True
    sharers.enter("m")
    sharers.shard.unload()
    sharers.persister.answer()
    assert sharers.shard.groups.share == {}


@pytest.mark.limit("coordinator.group.share.initializing.MOST_ASKED_AT_ONCE")
def test_only_some_of_many_partitions_are_requested_at_a_time() -> None:
    sharers = Sharers(FakeTopics(t=2 * MOST_ASKED_AT_ONCE + 1))
    sharers.enter("m")
    assert len(sharers.persister.asked) == MOST_ASKED_AT_ONCE
    sharers.runtime.timers.fire_due()
    assert len(sharers.persister.asked) == 2 * MOST_ASKED_AT_ONCE
    sharers.runtime.timers.fire_due()
    assert len(sharers.persister.asked) == 2 * MOST_ASKED_AT_ONCE + 1
    assert sharers.state_partitions() == ({}, {"t": [*range(2 * MOST_ASKED_AT_ONCE + 1)]}, [])


def test_a_request_about_many_partitions_is_answered_if_the_shard_is_given_up() -> None:
    sharers = Sharers(FakeTopics(t=MOST_ASKED_AT_ONCE + 1))
    asked = AlterShareGroupOffsetsRequestTopic(
        topic_name="t",
        partitions=[
            AlterShareGroupOffsetsRequestPartition(partition_index=index)
            for index in range(MOST_ASKED_AT_ONCE + 1)
        ],
    )
    answers: list[Any] = []
    asking: Any = SimpleNamespace(shard_of=lambda group_id: sharers.shard)
    drive(
        Groups.ask_waiting(asking, "g", lambda shard: shard.share_groups.offsets.alter("g", [asked])),
        answers.append,
    )
    assert (len(sharers.persister.asked), answers) == (MOST_ASKED_AT_ONCE, [])
    sharers.shard.unload()
    assert [answer.error for answer in answers] == [Error.NOT_COORDINATOR]
    sharers.runtime.timers.fire_due()
    assert len(sharers.persister.asked) == MOST_ASKED_AT_ONCE


# --- deleting -----------------------------------------------------------------------------------------------


def delete(sharers: Sharers, *groups: str) -> list[Any]:
    """Delete groups as DeleteGroups does."""
    refused: list[Any] = []
    drive(sharers.shard.share_groups.delete_states(groups), refused.append)
    return refused


def test_with_a_group_its_states_are_deleted_first() -> None:
    sharers = Sharers()
    sharers.enter("m")
    sharers.beat("m", -1)
    sharers.persister.asked.clear()
    sharers.persister.holds = True
    first = len(sharers.runtime.log)
    refused = delete(sharers, "g")
    assert refused == []
    assert sharers.state_partitions() == ({}, {}, [sharers.topic_id()])
    assert sharers.persister.asked == [("delete", "g", sharers.topic_id(), index) for index in range(3)]
    sharers.persister.answer()
    assert refused == [{}]
    assert sharers.shard.delete_groups(["g"]) == [Error.NONE]
    assert sharers.keys_since(first) == [15, -12, -15, -11]
    assert sharers.shard.groups.share == {}
    assert sharers.restarted().shard.groups.share == {}


def test_a_group_with_members_and_one_whose_states_stay_are_refused() -> None:
    sharers = Sharers()
    sharers.enter("m")
    assert delete(sharers, "g", "absent") == [{"g": Error.NON_EMPTY_GROUP}]
    assert sharers.shard.delete_groups(["g"]) == [Error.NON_EMPTY_GROUP]
    sharers.beat("m", -1)
    sharers.persister.failing = Error.COORDINATOR_NOT_AVAILABLE
    assert delete(sharers, "g") == [{"g": Error.COORDINATOR_NOT_AVAILABLE}]
    sharers.persister.failing = None
    sharers.persister.asked.clear()
    assert delete(sharers, "g") == [{}]  # the failed deletions are tried again
    assert len(sharers.persister.asked) == 3


def test_a_group_without_states_is_deleted_at_once() -> None:
    sharers = Sharers(FakeTopics())
    sharers.enter("m", "absent")
    sharers.beat("m", -1)
    assert delete(sharers, "g") == [{}]
    assert sharers.shard.delete_groups(["g"]) == [Error.NONE]


# --- offsets ------------------------------------------------------------------------------------------------


def alter(sharers: Sharers, **offsets: dict[int, int]) -> Any:
    """Alter offsets. Return the errors by topic and partition, or the error of the whole request."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for index, offset in of_topic.items()
            ],
        )
        for name, of_topic in offsets.items()
    ]
    told: list[Any] = []
    try:
        drive(sharers.shard.share_groups.offsets.alter("g", topics), told.append)
    except KafkaError as error:
        return error.error
    return [
        {
            (topic.topic_name, part.partition_index): Error(part.error_code)
            for topic in answer
            for part in topic.partitions
        }
        for answer in told
    ]


def test_offsets_are_altered_and_a_group_is_made_for_them() -> None:
    sharers = Sharers()
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(sharers, t={0: 7, 2: -5, 3: 1}, absent={0: 1}) == [
        {("t", 0): Error.NONE, ("t", 2): Error.NONE, ("t", 3): unknown, ("absent", 0): unknown}
    ]
    assert sharers.persister.asked == [
        ("initialize", "g", sharers.topic_id(), 0, 1, 7),
        ("initialize", "g", sharers.topic_id(), 2, 1, -5),
    ]
    assert sharers.keys_since(0) == [15, 15]
    assert sharers.state_partitions() == ({}, {"t": [0, 2]}, [])
    assert sharers.group.is_empty
    sharers.enter("m")
    assert [asked[3:] for asked in sharers.persister.asked[2:]] == [(1, 2, 0)]


def test_a_joining_member_does_not_restart_an_offset_being_altered() -> None:
    sharers = Sharers(share_initialize_retry_interval_ms=30_000)
    sharers.persister.holds = True
    assert alter(sharers, t={0: 7}) == []
    sharers.runtime.pass_ms(30_000)
    sharers.enter("m")
    assert [(asked[3], asked[5]) for asked in sharers.persister.asked] == [(0, 7), (1, 0), (2, 0)]
    sharers.persister.answer()
    assert sharers.state_partitions() == ({}, {"t": [0, 1, 2]}, [])


def test_offsets_of_groups_with_members_or_of_another_protocol_arent_altered() -> None:
    sharers = Sharers()
    sharers.enter("m")
    assert alter(sharers, t={0: 7}) is Error.NON_EMPTY_GROUP
    assert remove(sharers, "t") is Error.NON_EMPTY_GROUP
    sharers = Sharers()
    assert remove(sharers, "t") is Error.GROUP_ID_NOT_FOUND
    sharers.commit(("t", 0, 7))
    assert alter(sharers, t={0: 7}) is Error.GROUP_ID_NOT_FOUND
    assert remove(sharers, "t") is Error.GROUP_ID_NOT_FOUND


def test_a_refusal_of_the_share_coordinator_is_reported_and_the_partition_stays_initializing() -> None:
    sharers = Sharers()
    sharers.persister.failing = Error.FENCED_STATE_EPOCH
    assert alter(sharers, t={0: 7, 3: 1}) == [
        {("t", 0): Error.FENCED_STATE_EPOCH, ("t", 3): Error.UNKNOWN_TOPIC_OR_PARTITION}
    ]
    assert sharers.state_partitions() == ({"t": [0]}, {}, [])


def test_altering_only_missing_partitions_changes_nothing() -> None:
    sharers = Sharers()
    assert alter(sharers, absent={0: 1}) == [{("absent", 0): Error.UNKNOWN_TOPIC_OR_PARTITION}]
    assert sharers.runtime.log == []


def remove(sharers: Sharers, *names: str) -> Any:
    """Delete topics' offsets. Return the errors by topic, in their order, or the error of the whole request."""
    told: list[Any] = []
    try:
        drive(sharers.shard.share_groups.offsets.delete("g", names), told.append)
    except KafkaError as error:
        return error.error
    return [[(topic.topic_name, Error(topic.error_code)) for topic in answer] for answer in told]


def test_offsets_are_deleted_and_a_later_join_begins_afresh() -> None:
    sharers = Sharers(FakeTopics(t=2, u=1))
    sharers.enter("m", "t", "u")
    sharers.beat("m", -1)
    sharers.persister.asked.clear()
    first = len(sharers.runtime.log)
    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert remove(sharers, "absent", "t") == [[("t", Error.NONE), ("absent", unknown)]]
    assert sharers.persister.asked == [("delete", "g", sharers.topic_id(), index) for index in (0, 1)]
    assert sharers.keys_since(first) == [15, 15]
    assert sharers.state_partitions() == ({}, {"u": [0]}, [])
    assert remove(sharers, "t") == [[("t", unknown)]]
    sharers.persister.asked.clear()
    sharers.enter("m", "t")
    assert [asked[0] for asked in sharers.persister.asked] == ["initialize"] * 2


def test_offsets_whose_states_stay_are_deleting_until_the_next_try() -> None:
    sharers = Sharers(FakeTopics(t=2))
    sharers.enter("m")
    sharers.beat("m", -1)
    sharers.persister.failing = Error.NOT_COORDINATOR
    assert remove(sharers, "t") == [[("t", Error.NOT_COORDINATOR)]]
    assert sharers.state_partitions() == ({}, {}, [sharers.topic_id()])
    sharers.persister.failing = None
    assert remove(sharers, "t") == [[("t", Error.NONE)]]
    assert sharers.state_partitions() == ({}, {}, [])


def test_a_joining_member_takes_back_deleting_partitions() -> None:
    sharers = Sharers()
    sharers.enter("m")
    sharers.beat("m", -1)
    sharers.persister.failing = Error.NOT_COORDINATOR
    remove(sharers, "t")
    sharers.persister.failing = None
    sharers.enter("m")
    assert sharers.state_partitions() == ({}, {"t": [0, 1, 2]}, [])


def test_a_group_without_states_reports_nothing() -> None:
    sharers = Sharers(FakeTopics())
    sharers.enter("m", "absent")
    sharers.beat("m", -1)
    assert remove(sharers, "absent") == [[]]


def test_initialized_partitions_are_reported() -> None:
    sharers = Sharers()
    assert sharers.shard.share_groups.offsets.initialized("g") == {}
    sharers.enter("m")
    assert sharers.shard.share_groups.offsets.initialized("g") == {sharers.topic_id(): [0, 1, 2]}


def test_partitions_that_are_added_to_a_topic_begin_at_their_first_record() -> None:
    """KAFKA-20742: records that were written before the group heard of the partitions aren't skipped."""
    sharers = Sharers(FakeTopics(t=1))
    sharers.enter("m")
    assert [asked[3:] for asked in sharers.persister.asked] == [(0, 2, -1)]
    sharers.topics.create("t", 3)
    sharers.topics.create("u", 1)
    sharers.beat("m", sharers.group.members["m"].epoch, "t", "u")
    assert [(asked[2], *asked[3:]) for asked in sharers.persister.asked[1:]] == [
        (sharers.topic_id("t"), 1, sharers.group.epoch, 0),
        (sharers.topic_id("t"), 2, sharers.group.epoch, 0),
        (sharers.topic_id("u"), 0, sharers.group.epoch, -1),
    ]
