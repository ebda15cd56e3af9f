"""Heartbeats of streams groups that take long to decide are decided beside the loop, with a copy of the group."""

from __future__ import annotations

import pytest

from coordinator.group import shard_parts
from coordinator.group.ports import Deferred
from coordinator.group.streams import heartbeats as long_heartbeat
from coordinator.group.streams.heartbeats import StreamsAnswer
from coordinator.settings import StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages.groups_streams import KeyValue, StreamsGroupHeartbeatRequest, TopicInfo
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.streams.members import (
    StreamsMembers,
    statuses,
    subtopology,
    told,
    topology,
)
from tests.unit.coordinator.runtime import asker


def join(groups: StreamsMembers, member: str, process: str = "p") -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        rebalance_timeout_ms=60_000,
        topology=groups.of,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id=process,
    )


def begun(groups: StreamsMembers, request: StreamsGroupHeartbeatRequest) -> Deferred[StreamsAnswer]:
    answer = groups.shard.streams_heartbeat(asker(), request)
    assert isinstance(answer, Deferred)
    return answer


@pytest.fixture
def all_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_heartbeat, "MOST_DECIDED_IN_PASSING", -1)


@pytest.mark.limit("coordinator.group.streams.heartbeats.MOST_DECIDED_IN_PASSING")
@pytest.mark.parametrize("much", ["tasks", "topics", "members"])
def test_a_heartbeat_with_much_to_decide_waits_and_others_do_not(much: str) -> None:
    count = long_heartbeat.MOST_DECIDED_IN_PASSING // 10
    of = topology(
        subtopology("0", "t", sinks=[f"s{index}" for index in range(count if much == "topics" else 0)])
    )
    groups = StreamsMembers(FakeTopics(t=count if much == "tasks" else 1), of=of)
    if much == "members":
        for number in range(long_heartbeat.MOST_DECIDED_IN_PASSING // long_heartbeat._PER_MEMBER):
            groups.enter(f"m{number}")
    begun(groups, join(groups, "one"))
    little = StreamsMembers()
    assert isinstance(little.shard.streams_heartbeat(asker(), join(little, "one")), StreamsAnswer)


def test_a_member_that_has_all_and_says_nothing_new_never_waits() -> None:
    groups = StreamsMembers(FakeTopics(t=5_000))
    groups.enter("one")
    groups.report("one")
    beat = StreamsGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=2)
    assert isinstance(groups.shard.streams_heartbeat(asker(), beat), StreamsAnswer)
    beat.rack_id = "new"
    begun(groups, beat)


def test_a_setting_that_reassigns_the_group_takes_long_though_no_member_changes_anything() -> None:
    groups = StreamsMembers(FakeTopics(t=5_000))
    groups.enter("one")
    groups.report("one")
    groups.config = groups.config._replace(num_standby_replicas=1)
    begun(groups, StreamsGroupHeartbeatRequest(group_id="g", member_id="one", member_epoch=2))


@pytest.mark.parametrize(
    "tags",
    [
        [KeyValue(key=str(number), value="") for number in range(long_heartbeat.MOST_DECIDED_IN_PASSING)],
        [KeyValue(key=f"{number}".rjust(30_000), value="") for number in range(4)],
    ],
    ids=["many", "long"],
)
def test_tags_without_end_are_seen_to_beside_the_loop(tags: list[KeyValue]) -> None:
    groups = StreamsMembers()
    request = join(groups, "one")
    request.client_tags = tags
    deferred = begun(groups, request)
    deferred.decide()
    assert deferred.settle() is not None
    assert len(groups.group.members["one"].tags) == len(tags)
    request.member_id, request.client_tags = "two", [*tags, tags[0]]
    twice = begun(groups, request)
    twice.decide()
    with pytest.raises(KafkaError) as refused:
        twice.settle()
    assert refused.value.error is Error.UNKNOWN_SERVER_ERROR
    assert [*groups.group.members] == ["one"]


@pytest.mark.parametrize("kind", ["changelogs", "repartitions"])
def test_settings_of_a_topic_without_end_are_seen_to_beside_the_loop(kind: str) -> None:
    settings = [
        KeyValue(key=str(number), value="1") for number in range(long_heartbeat.MOST_DECIDED_IN_PASSING)
    ]
    groups = StreamsMembers()
    request = join(groups, "one")
    assert request.topology is not None
    (sent,) = request.topology.subtopologies
    topic = TopicInfo(name="c", topic_configs=settings)
    if kind == "changelogs":
        sent.state_changelog_topics = [topic]
    else:
        sent.repartition_source_topics = [topic]
    begun(groups, request)


@pytest.mark.usefixtures("all_is_much")
def test_nothing_is_done_before_it_is_settled() -> None:
    groups = StreamsMembers()
    deferred = begun(groups, join(groups, "one"))
    deferred.decide()
    assert (groups.runtime.log, groups.shard.groups.streams) == ([], {})
    answer = deferred.settle()
    assert answer is not None
    assert told(answer.response.active_tasks) == {"0": [0, 1, 2, 3, 4, 5]}
    assert groups.keys() == [19, 23, 17, 21, 20, 22]
    assert groups.state == "Stable"


@pytest.mark.usefixtures("all_is_much")
def test_a_decision_begins_again_if_the_group_has_changed_meanwhile() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p")
    deferred = begun(groups, join(groups, "two", "q"))
    deferred.decide()
    groups.beat("one", -1)
    before = len(groups.runtime.log)
    assert deferred.settle() is None
    assert len(groups.runtime.log) == before


@pytest.mark.usefixtures("all_is_much")
def test_a_refused_heartbeat_changes_nothing() -> None:
    groups = StreamsMembers()
    groups.enter("one")
    groups.of = topology(subtopology("9", "t"))
    deferred = begun(groups, join(groups, "two"))
    deferred.decide()
    before = len(groups.runtime.log)
    with pytest.raises(KafkaError) as refused:
        deferred.settle()
    assert refused.value.error is Error.INVALID_REQUEST
    assert len(groups.runtime.log) == before
    assert [*groups.group.members] == ["one"]


@pytest.mark.usefixtures("all_is_much")
def test_volatile_state_outlives_the_copy() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p", port=1)
    groups.beat("one", 2, shutdown=True)
    groups.enter("two", "q")
    assert statuses(groups.report("one")) == [4]
    assert groups.group.endpoint_epoch == 1
    assert groups.group.configured is not None
    assert groups.group.holders.active["0"] == dict.fromkeys(range(6), "p")
    assert not groups.group.needs_refresh(groups.runtime.now_ms())


@pytest.mark.usefixtures("all_is_much")
def test_a_shutdown_requested_meanwhile_is_not_forgotten() -> None:
    groups = StreamsMembers()
    groups.enter("one", "p")
    groups.beat("one", 2)
    deferred = begun(groups, join(groups, "two", "q"))
    deferred.decide()
    groups.beat("one", 2, shutdown=True)
    assert deferred.settle() is not None
    assert groups.group.shutdown_requested_by == "one"


@pytest.mark.usefixtures("all_is_much")
def test_topics_that_changed_meanwhile_are_examined_once_more() -> None:
    groups = StreamsMembers(of=topology(subtopology("0", "t", changelogs=["c"])))
    groups.enter("one")
    groups.beat("one", 2)
    deferred = begun(groups, join(groups, "two", "q"))
    deferred.decide()
    groups.topics.create("c", 6)
    groups.shard._hashes.forget({"c"})
    assert deferred.settle() is not None
    assert groups.group.needs_refresh(groups.runtime.now_ms())


@pytest.mark.usefixtures("all_is_much")
def test_a_life_is_the_same_beside_the_loop() -> None:
    groups = StreamsMembers(config=StreamsConfig(initial_rebalance_delay_ms=3_000, assignment_interval_ms=0))
    groups.enter("one", "p")
    groups.beat("one", 1)
    groups.enter("two", "q")
    groups.runtime.pass_ms(3_000)
    groups.settle()
    assert (groups.holds("one"), groups.holds("two")) == ({"0": [0, 2, 4]}, {"0": [1, 3, 5]})
    again = groups.restarted()
    assert again.group.members["one"] == groups.group.members["one"]
    groups.beat("two", -1)
    groups.settle()
    assert groups.holds("one") == {"0": [0, 1, 2, 3, 4, 5]}


def test_a_delayed_assignment_is_computed_once_more_where_the_group_has_changed() -> None:
    groups = StreamsMembers(config=StreamsConfig(initial_rebalance_delay_ms=3_000))
    groups.enter("one", "p")
    groups.beat("one", 1)
    groups.runtime.holds = True
    groups.runtime.pass_ms(3_000)
    (steps,) = groups.runtime.held
    compute = steps.send(None)
    compute()
    groups.beat("one", -1)
    with pytest.raises(StopIteration):
        steps.send(None)
    assert groups.group.assignment_timestamp_ms == 0


def test_a_delayed_assignment_is_ready_to_be_written_where_it_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = StreamsMembers(config=StreamsConfig(initial_rebalance_delay_ms=3_000))
    groups.enter("one", "p")
    groups.beat("one", 1)
    groups.runtime.holds = True
    groups.runtime.pass_ms(3_000)
    (steps,) = groups.runtime.held
    compute = steps.send(None)
    compute()
    monkeypatch.setattr(shard_parts, "encode_record", None)  # encoding, which takes long, is already done
    with pytest.raises(StopIteration):
        steps.send(None)
    assert groups.group.assignment_epoch == 2
    assert groups.target("one") == {"0": [0, 1, 2, 3, 4, 5]}
