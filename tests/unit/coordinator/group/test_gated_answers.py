"""Answers of a shard whose appends are committed late. Each waits for what was appended before it, and comes in its
turn. The shard itself goes on meanwhile."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.group.offsets.commit import Committer, NewOffset, OffsetProducer, Tombstones
from coordinator.group.shard import GroupShard
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    OffsetFetchRequestTopics,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.waiting import Later
from tests.support.staged_offsets import staged
from tests.support.wishes import drive
from tests.unit.coordinator.group.consumer.consumers import Consumers
from tests.unit.coordinator.runtime import Groups, asker

CLIENT = asker(version=5)
OFFSET = NewOffset("t", bytes(16), 0, 7, -1, "")

Question = Callable[[GroupShard], Any]


def commit_to(group_id: str) -> Callable[[GroupShard], list[Error]]:
    """Return a commit by a client that isn't a member of the group."""
    return lambda shard: shard.commit_offsets(
        Committer(group_id), staged(shard, group_id, [OFFSET]), api_version=9
    )


class Scene:
    """A stable classic group "g" of one member, and a consumer group "new" of one. From here on commits lag."""

    def __init__(self) -> None:
        self.groups = Consumers()
        self.shard = self.groups.shard
        self.runtime = self.groups.runtime
        self.groups.enter("one", group="new")
        (self.me,) = self.groups.stable()
        self.answers: list[tuple[str, Any]] = []
        self.runtime.lags = True
        self.runtime.commit()

    def ask(self, name: str, question: Question) -> None:
        drive(self.shard.ask(question), lambda answer: self.answers.append((name, answer)))

    def commit_something(self, name: str = "commit") -> None:
        self.ask(name, commit_to("other"))

    def join(self, name: str, *, version: int = 3, member_id: str = "") -> None:
        request = JoinGroupRequest(
            group_id="g",
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"r")],
        )
        client = CLIENT._replace(api_version=version)
        self._ask_waiting(name, lambda shard: shard.join(client, request))

    def sync(self, name: str, member_id: str, generation: int, leads: bool = False) -> None:
        assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")] if leads else []
        request = SyncGroupRequest(
            group_id="g", member_id=member_id, generation_id=generation, assignments=assignments
        )
        self._ask_waiting(name, lambda shard: shard.sync(request))

    def _ask_waiting(self, name: str, ask: Question) -> None:
        async def question(shard: GroupShard) -> Any:
            answer = ask(shard)
            return await answer if isinstance(answer, Later) else answer

        drive(self.shard.ask_waiting(question), lambda answer: self.answers.append((name, answer)))

    def names(self) -> list[str]:
        return [name for name, _ in self.answers]

    def errors(self) -> list[Error]:
        """Return the error of each answer that is a KafkaError, and NONE for the others."""
        return [answer.error if isinstance(answer, KafkaError) else Error.NONE for _, answer in self.answers]


QUESTIONS: dict[str, Callable[[Scene], Question]] = {
    "heartbeat": lambda scene: (
        lambda shard: shard.classic_heartbeat(
            HeartbeatRequest(group_id="g", member_id=scene.me, generation_id=1)
        )
    ),
    "heartbeat of nobody": lambda scene: (
        lambda shard: shard.classic_heartbeat(HeartbeatRequest(group_id="g", member_id="?", generation_id=1))
    ),
    "leave": lambda scene: (
        lambda shard: shard.leave(
            LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=scene.me)])
        )
    ),
    "consumer heartbeat": lambda scene: (
        lambda shard: shard.consumer_heartbeat(
            CLIENT, ConsumerGroupHeartbeatRequest(group_id="new", member_id="one", member_epoch=2)
        )
    ),
    "consumer join": lambda scene: (
        lambda shard: shard.consumer_heartbeat(
            CLIENT,
            ConsumerGroupHeartbeatRequest(
                group_id="new",
                member_id="two",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            ),
        )
    ),
    "commit": lambda scene: commit_to("g2"),
    "refused commit": lambda scene: (
        lambda shard: shard.commit_offsets(
            Committer("g", "?", None, 1), staged(shard, "g", [OFFSET]), api_version=9
        )
    ),
    "commit in a transaction": lambda scene: (
        lambda shard: shard.commit_offsets_in_transaction(
            Committer("g2"), staged(shard, "g2", [OFFSET]), OffsetProducer(1, 0), api_version=5
        )
    ),
    "deletion of offsets": lambda scene: lambda shard: shard.delete_offsets("g", [("t", 0)], Tombstones()),
    "fetch": lambda scene: (
        lambda shard: shard.fetch_offsets(
            "other", [OffsetFetchRequestTopics(name="t", partition_indexes=[0])], require_stable=False
        )
    ),
    "fetch of all": lambda scene: lambda shard: shard.fetch_all_offsets("other", require_stable=True),
    "list": lambda scene: lambda shard: shard.list_groups((), ()),
    "description": lambda scene: lambda shard: shard.describe_group("g", api_version=6),
    "description of a consumer group": lambda scene: lambda shard: shard.describe_consumer_group("new"),
    "deletion of groups": lambda scene: lambda shard: shard.delete_groups(["g", "other"]),
}


def test_a_loaded_shards_contents_are_shown_once_they_are_committed() -> None:
    before = Groups()
    before.commit(("t", 0, 7), group="other")
    groups = Groups()
    groups.runtime.lags = True
    groups.runtime.log = [*before.runtime.log]
    for offset, ((key, value), producer_id) in enumerate(groups.runtime.log):
        groups.shard.replay(key, value, offset, producer_id)
    groups.shard.start(len(groups.runtime.log))
    answers: list[Any] = []
    asked = groups.shard.ask(
        lambda shard: shard.fetch_all_offsets("other", require_stable=False)[0].partitions[0].committed_offset
    )
    drive(asked, answers.append)
    assert answers == []
    groups.runtime.commit()
    assert answers == [7]


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_answer_waits_for_earlier_appends(name: str) -> None:
    scene = Scene()
    scene.commit_something("before")
    scene.ask(name, QUESTIONS[name](scene))
    assert scene.answers == []

    scene.runtime.commit()

    assert scene.names() == ["before", name]
    assert Error.NOT_COORDINATOR not in scene.errors()


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_answer_waits_if_everything_is_committed(name: str) -> None:
    scene = Scene()
    scene.runtime.lags = False
    scene.commit_something("before")
    scene.ask(name, QUESTIONS[name](scene))

    assert scene.names() == ["before", name]


@pytest.mark.parametrize("name", QUESTIONS)
def test_after_a_loss_of_leadership_every_request_is_sent_elsewhere(name: str) -> None:
    scene = Scene()
    scene.commit_something("before")
    scene.ask(name, QUESTIONS[name](scene))

    scene.runtime.fail_commits()
    scene.ask("after", QUESTIONS[name](scene))

    assert scene.names() == ["before", name, "after"]
    assert scene.errors() == [Error.NOT_COORDINATOR] * 3


def test_answers_leave_in_the_order_of_the_questions() -> None:
    scene = Scene()
    for name in QUESTIONS:
        scene.commit_something("before " + name)
        scene.ask(name, QUESTIONS[name](scene))
    expected = [each for name in QUESTIONS for each in ("before " + name, name)]

    for end_offset in range(len(scene.runtime.log) + 1):
        scene.runtime.commit(end_offset)
        assert scene.names() == expected[: len(scene.names())]

    assert scene.names() == expected


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_answer_waits_longer_than_a_commit_may_take(name: str) -> None:
    scene = Scene()
    scene.commit_something("before")
    scene.runtime.pass_ms(1_000)
    scene.ask(name, QUESTIONS[name](scene))

    scene.runtime.pass_ms(3_999)
    assert scene.answers == []
    scene.runtime.pass_ms(1)
    assert scene.names() == ["before"]
    scene.runtime.pass_ms(1_000)
    assert scene.names() == ["before", name]
    assert scene.errors() == [Error.COORDINATOR_NOT_AVAILABLE] * 2

    scene.runtime.commit()
    assert scene.names() == ["before", name]


def test_an_offset_whose_commit_took_too_long_counts_once_it_is_committed() -> None:
    scene = Scene()
    scene.commit_something()
    scene.runtime.pass_ms(5_000)
    assert scene.errors() == [Error.COORDINATOR_NOT_AVAILABLE]
    scene.runtime.commit()
    assert scene.groups.committed(group="other") == 7


@pytest.mark.limit("coordinator.commit_waiters.MANY_CANCELLED")
def test_few_of_the_timed_out_waiters_are_kept() -> None:
    """Clients ask again every five seconds as long as nothing is committed."""
    scene = Scene()
    scene.commit_something()
    kept = weakref.WeakSet[Answered]()
    for _ in range(500):
        answered = Answered()
        kept.add(answered)
        drive(scene.shard.ask(QUESTIONS["list"](scene)), answered)
        scene.runtime.pass_ms(5_000)
        assert answered.times == 1
    del answered
    assert len(kept) < 200
    scene.runtime.commit()
    scene.commit_something("after")
    scene.runtime.commit()
    assert scene.names() == ["commit", "after"]


class Answered:
    """A client that asks, and counts its answers."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, answer: object) -> None:
        self.times += 1


def test_a_request_answered_in_time_is_not_answered_again() -> None:
    scene = Scene()
    scene.commit_something()
    scene.runtime.commit()
    scene.runtime.pass_ms(60_000)
    assert scene.errors() == [Error.NONE]


def test_a_read_sees_appended_offsets_and_waits_for_their_commit() -> None:
    scene = Scene()
    scene.commit_something()
    scene.ask("fetch", QUESTIONS["fetch"](scene))
    assert scene.answers == []

    scene.runtime.commit()

    _, (topic,) = scene.answers[1]
    assert topic.partitions[0].committed_offset == 7


def test_an_append_that_fails_changes_nothing_and_its_refusal_waits_like_every_answer() -> None:
    scene = Scene()
    scene.commit_something("before")
    scene.runtime.failing = Error.NOT_COORDINATOR
    scene.ask("refused", QUESTIONS["commit"](scene))
    assert scene.groups.committed(group="g2") == -1
    assert scene.answers == []

    scene.runtime.commit()
    assert scene.errors() == [Error.NONE, Error.NOT_COORDINATOR]


def test_a_join_that_need_not_wait_for_members_waits_for_the_group_to_be_committed() -> None:
    scene = Scene()
    scene.shard.delete_groups(["g"])
    scene.groups.leave(scene.me)
    scene.shard.delete_groups(["g"])
    scene.runtime.commit()
    scene.join("join", version=4)
    assert scene.answers == [], "the group that it makes isn't committed yet"

    scene.runtime.commit()

    ((_, answer),) = scene.answers
    assert answer.error_code == Error.MEMBER_ID_REQUIRED


def test_assignments_go_out_once_they_are_committed() -> None:
    scene = Scene()
    scene.join("second")
    scene.join("first", member_id=scene.me)
    joined = dict(scene.answers)
    assert [joined[name].generation_id for name in ("first", "second")] == [2, 2]
    scene.answers.clear()

    scene.sync("follower", joined["second"].member_id, 2)
    scene.sync("leader", scene.me, 2, leads=True)
    assert scene.answers == []
    assert scene.shard.groups.classic["g"].state.value == "Stable", "the group itself goes on"
    scene.runtime.commit()

    assert sorted(scene.names()) == ["follower", "leader"]
    assert dict(scene.answers)["leader"].assignment == b"all"


def test_a_shard_that_is_given_up_sends_the_parked_and_the_waiting_elsewhere() -> None:
    scene = Scene()
    scene.join("parked")
    scene.commit_something("waiting")
    scene.ask("read", QUESTIONS["list"](scene))

    scene.shard.unload()

    assert sorted(scene.names()) == ["parked", "read", "waiting"]
    parked = dict(scene.answers).pop("parked")
    assert (parked.error if isinstance(parked, KafkaError) else parked.error_code) == Error.NOT_COORDINATOR
    assert [dict(scene.answers)[name].error for name in ("waiting", "read")] == [Error.NOT_COORDINATOR] * 2

    scene.runtime.commit()
    assert len(scene.answers) == 3, "nobody is answered twice"


def test_a_session_that_ends_while_its_heartbeat_waits_takes_the_member_out_all_the_same() -> None:
    scene = Scene()
    scene.commit_something("before")
    scene.ask("heartbeat", QUESTIONS["heartbeat"](scene))
    scene.ask("consumer heartbeat", QUESTIONS["consumer heartbeat"](scene))

    scene.runtime.pass_ms(60_000)
    assert "one" not in scene.shard.groups.consumer["new"].members
    assert scene.shard.groups.classic["g"].members.get(scene.me) is None
    assert scene.errors() == [Error.COORDINATOR_NOT_AVAILABLE] * 3
    scene.ask("late heartbeat", QUESTIONS["heartbeat"](scene))

    scene.runtime.commit()
    assert scene.names() == ["before", "heartbeat", "consumer heartbeat", "late heartbeat"]
    assert [answer for name, answer in scene.answers if name.endswith("e heartbeat")] == [
        Error.UNKNOWN_MEMBER_ID
    ]


def test_timers_that_fire_after_the_loss_change_nothing_that_anybody_sees() -> None:
    scene = Scene()
    scene.commit_something("before")
    scene.runtime.fail_commits()
    written = len(scene.runtime.log)

    scene.runtime.pass_ms(60_000)

    assert len(scene.runtime.log) == written
    assert scene.names() == ["before"]
