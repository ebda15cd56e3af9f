"""Quotas on replication: what is measured, and which partitions they apply to."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.alterations import set_dynamic
from broker.controller.image import TOPIC_RESOURCE, ClusterImage
from broker.quotas import (
    ALTER_LOG_DIRS_RATE,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ReplicationQuota,
    ReplicationQuotas,
    SimpleRate,
    Windows,
)
from protocol.messages.metadata_records import ConfigRecord, RemoveTopicRecord, TopicRecord
from protocol.waiting import at_once
from tests.support.manual_clock import ManualClock
from tests.support.replication_quota import AdjustableQuota
from tests.support.whole_server import configured
from tests.support.wishes import pauses

ME = 1
TOPIC_ID = b"T" * 16

HISTORY = (
    *((0, None), (700, None), (300, 5000), (10, 3000), (900, None), (400, 2500), (2600, None), (3000, 800)),
    *((100, None), (5000, None), (999, 1), (1, None), (6000, None), (11000, None), (1, 70), (20000, None)),
    *((500, 90), (400, None), (2000, 10), (1500, 20), (1000, 30), (1000, 40), (3, None)),
)
"""(milliseconds that pass, bytes that are recorded then). With None the rate is measured."""


@pytest.mark.parametrize(
    ("windows", "of_kafka"),
    [
        (
            Windows(11, 1_000),
            [
                *(0.0, 0.0, 4188.481675392671, 2138.492871690428, 1410.7365792759051, 308.41121495327104),
                *(131.31147540983608, 0.14285714285714285, 0.0, 0.0, 90.0, 29.67359050445104),
            ],
        ),
        (
            Windows(2, 3_000),
            [
                *(0.0, 0.0, 2666.6666666666665, 2138.492871690428, 1410.7365792759051, 156.86274509803923),
                *(0.3333333333333333, 0.0, 0.0, 0.0, 30.0, 29.67359050445104),
            ],
        ),
    ],
)
def test_a_simple_rate_equals_that_of_kafkas_class(windows: Windows, of_kafka: list[float]) -> None:
    rate, now_ms, measured = SimpleRate(windows), 0, []
    for later_ms, value in HISTORY:
        now_ms += later_ms
        if value is None:
            measured.append(rate.per_second(now_ms))
        else:
            rate.record(value, now_ms)
    assert measured == of_kafka


def test_a_quota_is_exceeded_until_enough_time_has_passed_for_the_usage() -> None:
    clock = ManualClock()
    quota = AdjustableQuota(clock)
    quota.limit = 1_000
    assert not quota.is_exceeded()
    quota.record(1_000)
    assert not quota.is_exceeded(), "it has a second for them"
    quota.record(2_000)
    assert quota.is_exceeded()
    clock.advance_ms(2_999)
    assert quota.is_exceeded()
    clock.advance_ms(1)
    assert not quota.is_exceeded()


def test_a_quota_without_a_limit_is_never_exceeded() -> None:
    quota = AdjustableQuota(ManualClock())
    quota.record(2**62)
    assert not quota.is_exceeded()
    quota.limit = 0
    assert quota.is_exceeded()


# --- which partitions ---------------------------------------------------------------------------------------


@pytest.fixture
def image() -> ClusterImage:
    image = ClusterImage()
    image.apply(TopicRecord(name="t", topic_id=TOPIC_ID))
    return image


@pytest.fixture
def quotas(tmp_path: Path) -> ReplicationQuotas:
    return ReplicationQuotas(ME, configured(tmp_path), ManualClock())


def throttle(
    image: ClusterImage, quotas: ReplicationQuotas, text: str | None, setting: str = LEADER_REPLICAS
) -> None:
    image.apply(ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t", name=setting, value=text))
    at_once(quotas.follow(image, image.take_changes()))


def throttled(quota: ReplicationQuota) -> list[int]:
    return [index for index in range(5) if quota.is_throttled("t", index)]


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("0:1,1:2,3:1", [0, 3]),
        (" 0:1 , 2:1", [0, 2]),
        ("0:2", []),
        ("0:11,11:1", []),
        ("*", [0, 1, 2, 3, 4]),
        (" * ", [0, 1, 2, 3, 4]),
        ("", []),
        (None, []),
        ("0:1,,2:1", [0, 2]),
        ("0:1,2-1", []),
        ("0:1:1", []),
    ],
)
def test_throttled_are_the_partitions_that_are_listed_with_this_broker(
    image: ClusterImage, quotas: ReplicationQuotas, text: str | None, partitions: list[int]
) -> None:
    throttle(image, quotas, "4:1")
    throttle(image, quotas, text)
    assert throttled(quotas.leader) == partitions
    assert not quotas.leader.is_throttled("other", 0)


def test_leaders_and_followers_have_a_list_each(image: ClusterImage, quotas: ReplicationQuotas) -> None:
    throttle(image, quotas, "0:1")
    throttle(image, quotas, "1:1", FOLLOWER_REPLICAS)
    assert (throttled(quotas.leader), throttled(quotas.follower)) == ([0], [1])
    throttle(image, quotas, None)
    assert (throttled(quotas.leader), throttled(quotas.follower)) == ([], [1])
    assert not quotas.leader.throttled


def test_a_topic_that_is_deleted_takes_its_list_along(image: ClusterImage, quotas: ReplicationQuotas) -> None:
    throttle(image, quotas, "*")
    image.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    at_once(quotas.follow(image, image.take_changes()))
    assert not quotas.leader.throttled


def test_a_recreated_topic_has_the_new_list(image: ClusterImage, quotas: ReplicationQuotas) -> None:
    throttle(image, quotas, "*")
    image.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    image.apply(TopicRecord(name="t", topic_id=b"N" * 16))
    throttle(image, quotas, "2:1")
    assert throttled(quotas.leader) == [2]


def test_many_topics_are_followed_in_steps(quotas: ReplicationQuotas) -> None:
    image = ClusterImage()
    for number in range(1_200):
        image.apply(TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big")))
    assert pauses(quotas.follow(image, image.take_changes())) == 2


# --- settings -----------------------------------------------------------------------------------------------


def test_the_rates_are_those_of_the_brokers_settings_at_any_time(tmp_path: Path) -> None:
    config = configured(tmp_path)
    quotas = ReplicationQuotas(ME, config, ManualClock())
    of_rates = {
        LEADER_RATE: quotas.leader,
        FOLLOWER_RATE: quotas.follower,
        ALTER_LOG_DIRS_RATE: quotas.alter_log_dirs,
    }
    for quota in of_rates.values():
        quota.record(5_000)
    for name in of_rates:
        assert set_dynamic(config, cluster={name: "10000"}, broker={name: "4999"}) == []
        assert {each for each in of_rates if of_rates[each].is_exceeded()} == {name}
    set_dynamic(config, cluster={LEADER_RATE: "4999"}, broker={})
    assert quotas.leader.is_exceeded()
    set_dynamic(config, cluster={})
    assert not quotas.leader.is_exceeded()


def test_the_windows_are_those_of_the_start(tmp_path: Path) -> None:
    clock = ManualClock()
    config = configured(
        tmp_path,
        "replication.quota.window.num=1",
        "replication.quota.window.size.seconds=5",
        "alter.log.dirs.replication.quota.window.num=2",
        "alter.log.dirs.replication.quota.window.size.seconds=3",
    )
    quotas = ReplicationQuotas(ME, config, clock)
    set_dynamic(config, cluster={LEADER_RATE: "10", FOLLOWER_RATE: "10", ALTER_LOG_DIRS_RATE: "10"})
    for quota, seconds, window_s in (
        (quotas.leader, 5, 5),
        (quotas.follower, 5, 5),
        (quotas.alter_log_dirs, 6, 3),
    ):
        quota.record(window_s * 10)
        assert not quota.is_exceeded()
        quota.record(10_000)
        clock.advance_ms(1_000 * seconds - 1)
        assert quota.is_exceeded()
        clock.advance_ms(1)
        assert not quota.is_exceeded(), "nothing came for all windows"
