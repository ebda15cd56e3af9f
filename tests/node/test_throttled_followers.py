"""A follower that is throttled: what it asks its leader for, what counts, and when it asks again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.image import TOPIC_RESOURCE
from broker.peers.replica_fetcher_manager import ReplicaFetching
from broker.quotas import FOLLOWER_REPLICAS
from broker.replicas.replica import Follower
from broker.replicas.replica_fetcher import FetchSettings
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata_records import ConfigRecord
from protocol.waiting import Later, at_once
from tests.node.followers import FETCHING, PAUSED, TOPIC, Following, Leading
from tests.node.replicated import replicated
from tests.support.partition_logs import open_log
from tests.support.replication_quota import AdjustableQuota
from tests.support.whole_server import crash, started

OF_ANOTHER = b"U" * 16
BACKOFF_S = FetchSettings().backoff_ms / 1000


@pytest.fixture
def leader(tmp_path: Path) -> Leading:
    leader = Leading(open_log(tmp_path / "leader"), 0)
    for text in "abc":
        leader.append(text)
    leader.log.update_high_watermark(3)
    return leader


@pytest.fixture
def following(tmp_path: Path) -> Following:
    following = Following(open_log(tmp_path / "follower"))
    following.quota.limit = 100
    following.quota.throttled["t"] = {0}
    return following


def exhaust(following: Following) -> None:
    """Use up the quota, so that nothing more may be fetched for as long as all its windows last."""
    following.quota.record(10_000_000)


def rate(quota: AdjustableQuota) -> float:
    return quota._rate.per_second(quota._now_ms())


def test_throttled_partitions_are_not_fetched_until_the_rate_is_back(
    leader: Leading, following: Following
) -> None:
    exhaust(following)
    assert following.fetcher.request() is None
    assert following.fetcher.wait_s() == BACKOFF_S
    assert following.state is FETCHING
    following.clock.advance_ms(10_999)
    assert following.fetcher.request() is None
    following.clock.advance_ms(1)
    assert following.fetcher.wait_s() == 0
    following.until_level(leader)


@pytest.mark.parametrize("throttled", [{"t": {1}}, {"u": None}, {}], ids=str)
def test_unthrottled_partitions_are_fetched_and_do_not_count(
    leader: Leading, following: Following, throttled: dict[str, Any]
) -> None:
    following.quota.throttled = throttled
    exhaust(following)
    before = rate(following.quota)
    assert following.fetcher.wait_s() == 0
    following.until_level(leader)
    assert rate(following.quota) == before


def test_all_partitions_of_a_topic_may_be_throttled(following: Following) -> None:
    following.quota.throttled["t"] = None
    exhaust(following)
    assert following.fetcher.request() is None


def test_the_bytes_that_are_appended_count(leader: Leading, following: Following) -> None:
    following.quota.limit = 1_000_000
    following.step(leader)
    assert rate(following.quota) == following.log.size == leader.log.size


def test_bytes_that_make_no_sense_do_not_count(leader: Leading, following: Following) -> None:
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    [data] = answer.responses[0].partitions
    changed = bytearray(data.records)  # type: ignore[arg-type]
    changed[20] ^= 1
    data.records = bytes(changed)
    at_once(following.fetcher.answered(request, answer))
    assert following.state is PAUSED
    assert rate(following.quota) == 0


def test_a_follower_with_all_committed_records_is_not_throttled_and_counts(
    leader: Leading, following: Following
) -> None:
    following.until_level(leader)
    exhaust(following)
    before = rate(following.quota)
    leader.append("more")
    following.step(leader)
    assert following.log.log_end_offset == 4
    assert rate(following.quota) > before


def test_a_follower_behind_the_committed_records_is_throttled(leader: Leading, following: Following) -> None:
    following.until_level(leader)
    exhaust(following)
    leader.append("more")
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    answer.responses[0].partitions[0].high_watermark = 5
    at_once(following.fetcher.answered(request, answer))
    assert following.log.log_end_offset == 4
    assert following.fetcher.request() is None


def test_in_another_epoch_no_follower_is_level_yet(leader: Leading, following: Following) -> None:
    following.until_level(leader)
    exhaust(following)
    assert following.fetcher.request() is not None
    following.follow(1)
    assert following.fetcher.request() is None


def test_a_level_follower_stays_level_when_the_isr_changes(leader: Leading, following: Following) -> None:
    following.until_level(leader)
    exhaust(following)
    following.follow(0)  # the same epoch, by another role
    assert following.fetcher.request() is not None


def test_other_partitions_are_fetched_meanwhile(tmp_path: Path, following: Following) -> None:
    other = Follower(open_log(tmp_path / "other"), following.fetches, 1, 0)
    following.fetcher.follow(OF_ANOTHER, "u", 0, other)
    exhaust(following)
    request = following.request()
    assert isinstance(request, FetchRequest)
    assert [topic.topic_id for topic in request.topics] == [OF_ANOTHER]
    assert following.fetcher.wait_s() == 0
    following.clock.advance_ms(11_000)
    request = following.request()
    assert isinstance(request, FetchRequest)
    assert [topic.topic_id for topic in request.topics] == [TOPIC, OF_ANOTHER]


def test_the_driver_asks_again_after_the_backoff(following: Following) -> None:
    asked: list[object] = []
    timers: list[tuple[float, Callable[[], None]]] = []
    peer: Any = SimpleNamespace(ask=lambda request, version: asked.append(request) or Later())
    scheduler: Any = SimpleNamespace(call_later=lambda delay_s, then: timers.append((delay_s, then)))
    exhaust(following)
    fetching = ReplicaFetching(following.fetcher, peer, scheduler, pytest.fail)
    fetching.wake()
    [(delay_s, wake)] = timers
    assert delay_s == BACKOFF_S
    following.clock.advance_ms(1_000)
    wake()
    assert (len(timers), asked) == (2, [])
    following.clock.advance_ms(10_000)
    wake()
    assert len(asked) == 1


async def test_a_node_takes_over_its_list_before_it_fetches(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    seen: list[bool] = []
    node.publisher._subscribers = node.publisher._subscribers._replace(
        follow_leaders=lambda changes: seen.append(node.replication_quotas.follower.is_throttled("t", 0))
    )
    for text in ("0:1", None):
        node.metadata.append(
            [
                ConfigRecord(
                    resource_type=TOPIC_RESOURCE, resource_name="t", name=FOLLOWER_REPLICAS, value=text
                )
            ]
        )
    assert seen == [True, False]
    crash(node)


async def test_a_start_knows_the_list(tmp_path: Path) -> None:
    node = await replicated(tmp_path)
    config = ConfigRecord(
        resource_type=TOPIC_RESOURCE, resource_name="t", name=FOLLOWER_REPLICAS, value="0:1"
    )
    node.metadata.append([config])
    crash(node)
    again = await started(tmp_path)
    assert again.replication_quotas.follower.is_throttled("t", 0)
    crash(again)
