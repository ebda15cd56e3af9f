"""A share group's settings: its own if the broker's bounds allow, otherwise the broker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.controller.broker_records import has_dead_letter_queues
from broker.controller.image import ClusterImage
from broker.shares.share_partition_manager import duration_ms, share_settings
from coordinator.share_partition.ports import ShareSettings
from tests.support.whole_server import configured


def test_a_group_without_settings_has_the_brokers(tmp_path: Path) -> None:
    assert share_settings(configured(tmp_path), {}) == ShareSettings()
    config = configured(
        tmp_path,
        "group.share.record.lock.duration.ms=20000",
        "group.share.delivery.count.limit=7",
        "group.share.partition.max.record.locks=300",
    )
    assert share_settings(config, {}) == ShareSettings(20_000, 7, 300)
    assert share_settings(config, {"share.heartbeat.interval.ms": "6000"}) == ShareSettings(20_000, 7, 300)


def test_a_group_has_its_own_settings(tmp_path: Path) -> None:
    overrides = {
        "share.record.lock.duration.ms": "1000",  # this is less than allowed
        "share.delivery.count.limit": "9",
        "share.partition.max.record.locks": "500",
        "share.auto.offset.reset": "by_duration:PT1H",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
    }
    assert share_settings(configured(tmp_path), overrides) == ShareSettings(
        record_lock_duration_ms=15_000,
        delivery_count_limit=9,
        partition_max_record_locks=500,
        renew_acknowledge_enable=False,
        auto_offset_reset="by_duration:PT1H",
        read_committed=True,
    )


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H2M3S", 3_723_000),
        ("p2dt4h", 187_200_000),
        ("PT0.5S", 500),
        ("PT1,25S", 1_250),
        ("PT0.0009S", 0),
        ("PT7.S", 7_000),
    ],
)
def test_a_duration(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize(("level", "topic"), [(0, ""), (1, ""), (2, "dlq.t")])
def test_a_dead_letter_queue_is_of_share_version_two(tmp_path: Path, level: int, topic: str) -> None:
    image = ClusterImage()
    image.features["share.version"] = level
    overrides = {"errors.deadletterqueue.topic.name": "dlq.t"}
    settings = share_settings(configured(tmp_path), overrides, has_dead_letters=has_dead_letter_queues(image))
    assert settings.dead_letter_topic == topic
