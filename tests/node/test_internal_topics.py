"""The broker creates topics for streams applications. Nobody waits for them, none is asked for twice, and refusals are
told later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.internal_topics import (
    MOST_REFUSALS,
    MOST_SHOWN,
    MOST_UNDER_WAY,
    InternalTopics,
)
from broker.server import Server
from coordinator.settings import StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages.groups_streams import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.topics import CreatableTopic
from protocol.waiting import Later
from tests.node.admin_requests import GROUP, alter, create
from tests.support.manual_clock import ManualClock
from tests.support.straight import Straight
from tests.support.submitting import drive
from tests.support.whole_server import clock_of, started
from tests.support.wire import Client, Outcome

NOT_YET = KafkaError(Error.INVALID_REPLICATION_FACTOR, "too few brokers")


class Controller:
    """A controller whose requests wait until the test answers them."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.replies: list[Callable[[Any], None]] = []
        self.failures: list[Callable[[BaseException], None]] = []
        self.clock = ManualClock()
        self.broken: list[BaseException] = []
        self.topics = InternalTopics(self.create, self.clock, partial(drive, failed=self.broken.append))

    async def create(self, topics: Sequence[CreatableTopic]) -> Any:
        self.asked.append([topic.name for topic in topics])
        answer: Later[Any] = Later()
        self.replies.append(answer.reply)
        self.failures.append(answer.fail)
        return await answer

    def want(self, *names: str, remember_ms: int = 1_000) -> None:
        self.topics.create({name: CreatableTopic(name=name) for name in names}, remember_ms)

    def refuse(self, *names: str, error: KafkaError = NOT_YET) -> None:
        self.replies.pop(0)([(CreatableTopic(name=name), error) for name in names])


def test_a_creation_under_way_is_not_requested_again() -> None:
    controller = Controller()
    controller.want("a")
    controller.want("a", "b")
    assert controller.asked == [["a"], ["b"]]
    controller.replies.pop(0)([(CreatableTopic(name="a"), b"i" * 16)])
    controller.want("a", "b")
    assert controller.asked == [["a"], ["b"], ["a"]]


def test_a_refusal_is_reported_for_a_while_and_not_requested_again_meanwhile() -> None:
    controller = Controller()
    controller.want("a", "b")
    controller.refuse("a")
    assert controller.topics.refusals_of(["a", "b"]) == [("a", "too few brokers")]
    controller.want("a")
    controller.clock.advance_ms(1_000)
    assert controller.topics.refusals_of(["a"]) == []
    controller.want("a")
    assert controller.asked == [["a", "b"], ["a"]]


def test_a_request_that_is_refused_as_a_whole_is_so_for_each_topic() -> None:
    controller = Controller()
    controller.want("a", "b")
    controller.replies.pop(0)(KafkaError(Error.NOT_CONTROLLER))
    assert controller.topics.refusals_of(["a", "b"]) == [("a", "NOT_CONTROLLER"), ("b", "NOT_CONTROLLER")]


def test_an_error_of_ours_is_handed_on_and_nothing_stays_under_way() -> None:
    controller = Controller()
    controller.want("a")
    error = RuntimeError()
    controller.failures.pop(0)(error)
    assert controller.broken == [error]
    controller.want("a")
    assert controller.asked == [["a"], ["a"]]


@pytest.mark.limit("broker.coordination.internal_topics.MOST_UNDER_WAY")
def test_creations_under_way_are_bounded() -> None:
    controller = Controller()
    controller.want(*(f"t{index}" for index in range(MOST_UNDER_WAY + 1)))
    assert len(controller.asked[0]) == MOST_UNDER_WAY
    controller.want("another")
    assert len(controller.asked) == 1


@pytest.mark.limit("broker.coordination.internal_topics.MOST_REFUSALS")
def test_remembered_refusals_are_bounded() -> None:
    controller = Controller()
    names = [f"t{index}" for index in range(MOST_REFUSALS + 5)]
    for name in names:
        controller.want(name)
        controller.refuse(name)
        controller.clock.advance_ms(1)
    assert len(controller.topics.refusals_of(names)) <= MOST_REFUSALS
    assert controller.topics.refusals_of(names[-1:])


class GoneOver(dict[str, Any]):
    """A dict that counts how often it is iterated over."""

    times = 0

    def __iter__(self) -> Iterator[str]:
        self.times += 1
        return super().__iter__()

    def items(self) -> Any:
        self.times += 1
        return super().items()


def test_thousands_that_are_refused_together_are_gone_over_once() -> None:
    controller = Controller()
    refusals = controller.topics._refusals = GoneOver()
    names = [f"t{index}" for index in range(MOST_UNDER_WAY)]
    controller.want(*names)
    controller.refuse(*names)
    assert refusals.times <= 1
    assert len(controller.topics.refusals_of(names)) == MOST_REFUSALS


# --- a whole node -------------------------------------------------------------------------------------------


def heartbeat(epoch: int, *changelogs: TopicInfo) -> StreamsGroupHeartbeatRequest:
    of = Topology(
        subtopologies=[
            Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=[*changelogs])
        ]
    )
    return StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=1_000,
        topology=of if epoch == 0 else None,
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )


async def beat(node: Server, request: StreamsGroupHeartbeatRequest) -> Any:
    answer = await Client(Straight(node)).answer(request, 0)
    assert not isinstance(answer, Outcome)
    return answer


@pytest.fixture
async def groups(node: Server) -> Server:
    create(node, ("t", 3))
    await Client(Straight(node)).answer(FindCoordinatorRequest(key="g"), 3)
    return node


async def test_the_broker_makes_them_and_gives_tasks_then(groups: Server) -> None:
    node = groups
    changelog = TopicInfo(name="c", topic_configs=[KeyValue(key="cleanup.policy", value="compact")])
    first = await beat(node, heartbeat(0, changelog))
    assert [each.status_detail for each in first.status] == ["Internal topics are missing: c"]
    assert len(node.metadata.image.topics["c"].partitions) == 3
    assert node.metadata.image.config_of_topic("c")["cleanup.policy"] == "compact"
    clock_of(node).advance_ms(1_000)  # of the interval between assignments
    later = await beat(node, heartbeat(2))
    assert (later.status, [each.partitions for each in later.active_tasks]) == ([], [[0, 1, 2]])


@pytest.mark.parametrize("what", ["the feature", "the setting"])
async def test_streams_groups_are_served_where_feature_and_setting_say_so(what: str, tmp_path: Path) -> None:
    settings = ["group.coordinator.rebalance.protocols=classic,consumer"] if what == "the setting" else []
    node = await started(tmp_path, *settings)
    if what == "the feature":
        del node.metadata.image.features["streams.version"]
    answer = await beat(node, heartbeat(0))
    assert answer.error_code == Error.UNSUPPORTED_VERSION


async def test_a_group_has_its_own_settings(groups: Server) -> None:
    node = groups
    own = {
        "streams.heartbeat.interval.ms": "7000",
        "streams.session.timeout.ms": "50000",
        "streams.assignment.interval.ms": "3000",
        "streams.initial.rebalance.delay.ms": "100",
        "streams.num.standby.replicas": "2",
    }
    assert alter(node, (GROUP, "g", own)) == [Error.NONE]
    assert node.groups.streams_config_of("g") == StreamsConfig(50_000, 7_000, 3_000, 100, 2)
    assert node.groups.streams_config_of("other") == StreamsConfig(initial_rebalance_delay_ms=0)
    assert (await beat(node, heartbeat(0))).heartbeat_interval_ms == 7_000


async def test_a_group_has_its_own_settings_of_kafka_4_4(groups: Server) -> None:
    """These settings are read apart from the others: see `newer_streams_settings`."""
    own = {
        "streams.rack.aware.assignment.tags": " rack, zone,",
        "streams.num.warmup.replicas": "0",
        "streams.task.offset.interval.ms": "20000",
        "streams.acceptable.recovery.lag": "7",
    }
    groups.metadata.image.configs[GROUP, "g"] = own
    config = groups.groups.streams_config_of("g")
    assert config == StreamsConfig(
        initial_rebalance_delay_ms=0,
        rack_tags=("rack", "zone"),
        num_warmup_replicas=0,
        task_offset_interval_ms=20_000,
        acceptable_recovery_lag=7,
    )


async def test_the_next_heartbeats_report_the_reason_against_a_topic(groups: Server) -> None:
    node = groups
    await beat(
        node, heartbeat(0, TopicInfo(name="c", topic_configs=[KeyValue(key="cleanup.policy", value="?")]))
    )
    assert "c" not in node.metadata.image.topics
    (status,) = (await beat(node, heartbeat(2))).status
    assert status.status_detail.startswith("Internal topics are missing: c; Creation failed: c (")
    clock_of(node).advance_ms(10_000)
    (status,) = (await beat(node, heartbeat(2))).status
    assert status.status_detail == "Internal topics are missing: c"


@pytest.mark.limit("broker.coordination.internal_topics.MOST_SHOWN")
def test_the_log_names_a_few_of_many_topics(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.topics")
    controller = Controller()
    for count in (MOST_SHOWN, MOST_SHOWN + 1):
        names = [f"t{number}" for number in range(count)]
        for outcome in (NOT_YET, None):
            controller.want(*names, remember_ms=0)
            controller.replies.pop(0)([(CreatableTopic(name=name), outcome) for name in names])
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 4
    assert ["and 1 more" in line for line in lines] == [False, False, True, True]
    assert all(line.count("t0") == line.count(f"t{MOST_SHOWN - 1}") == 1 for line in lines)
    assert not any(f"t{MOST_SHOWN}" in line for line in lines)
