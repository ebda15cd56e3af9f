"""A share group's settings, as its records are handed out by them (Kafka: `ShareGroupConfigProvider`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.config.group_config import group_number, group_values
from coordinator.share_partition.ports import ShareSettings

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE | re.ASCII
)


def share_settings(config: BrokerConfig, overrides: Mapping[str, str]) -> ShareSettings:
    """The group's own, within the broker's bounds, or the broker's."""
    if not overrides:  # as most have, and each fetch asks several times
        return ShareSettings(
            record_lock_duration_ms=config.get_int("group.share.record.lock.duration.ms"),
            delivery_count_limit=config.get_int("group.share.delivery.count.limit"),
            partition_max_record_locks=config.get_int("group.share.partition.max.record.locks"),
        )
    values = group_values(config, overrides)
    return ShareSettings(
        record_lock_duration_ms=group_number(values, "share.record.lock.duration.ms"),
        delivery_count_limit=group_number(values, "share.delivery.count.limit"),
        partition_max_record_locks=group_number(values, "share.partition.max.record.locks"),
        renew_acknowledge_enable=bool(values["share.renew.acknowledge.enable"]),
        auto_offset_reset=str(values["share.auto.offset.reset"]),
        read_committed=values["share.isolation.level"] == "read_committed",
    )


def duration_ms(text: str) -> int:
    """Of PnDTnHnMn.nS, as Java's Duration; what is less than a millisecond is cut off."""
    found = _DURATION.fullmatch(text)
    assert found is not None, f"{text} is legal where it is set"
    days, hours, minutes, seconds = (int(group or 0) for group in found.groups()[:4])
    fraction = int((found.group(5) or "").ljust(9, "0")[:9])
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction // 1_000_000
