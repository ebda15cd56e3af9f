"""The quotas on replication: how much a node gives its followers, takes from its leaders, and copies between its own
log directories (KIP-73, KIP-113).

Which replicas are throttled, topics say (`leader.` and `follower.replication.throttled.replicas`); how much a second
all of them together may have, brokers do. While a rate is above that, nothing is given or asked for, but for replicas
in sync, which would leave the ISR: their bytes only count.

Source: `ReplicationQuotaManager`, `TopicConfigHandler`, `BrokerConfigHandler`, `QuotaConfig`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from broker.controller.controller_result import Pause
from broker.quotas.rates import SimpleRate, Windows
from protocol.waiting import turn
from storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.environment.scheduler import Clock

log = logging.getLogger("barnabas.quotas")

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
ALTER_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL_REPLICAS = "*"


class ReplicationQuota:
    """What one of the three may take. `throttled` says of which partitions: topic → their numbers, None for all."""

    __slots__ = ("_clock", "_limit", "_rate", "throttled")

    def __init__(self, windows: Windows, clock: Clock, limit: Callable[[], int]) -> None:
        """`limit` in bytes a second, LONG_MAX where there is none."""
        self.throttled: dict[str, Collection[int] | None] = {}
        self._clock = clock
        self._limit = limit
        self._rate = SimpleRate(windows)

    def is_throttled(self, topic: str, partition: int) -> bool:
        """Whether the partition is one of those that the quota is for."""
        if topic not in self.throttled:
            return False
        partitions = self.throttled[topic]
        return partitions is None or partition in partitions

    def is_exceeded(self) -> bool:
        """Whether nothing may be taken now. While it isn't exceeded, whatever is taken may be: it counts whole."""
        limit = self._limit()
        return limit != LONG_MAX and self._rate.per_second(self._now_ms()) > limit

    def record(self, size: int) -> None:
        """So many bytes were taken, be it over the limit."""
        self._rate.record(size, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


class ReplicationQuotas:
    """Of one node: what it says to others as a `leader`, what it fetches as a `follower`, and what goes from one of its
    directories to another (`alter_log_dirs`, whatever the partition)."""

    def __init__(self, node_id: int, config: BrokerConfig, clock: Clock) -> None:
        replication = _windows(config, "replication.quota")
        self._node_id = node_id
        self.leader = ReplicationQuota(replication, clock, partial(config.get_int, LEADER_RATE))
        self.follower = ReplicationQuota(replication, clock, partial(config.get_int, FOLLOWER_RATE))
        self.alter_log_dirs = ReplicationQuota(
            _windows(config, "alter.log.dirs.replication.quota"),
            clock,
            partial(config.get_int, ALTER_LOG_DIRS_RATE),
        )

    async def follow(self, image: ClusterImage, changes: TopicChanges) -> None:
        """Take over which replicas are throttled. A change of a rate needs nobody to be told of it."""
        pause = Pause()
        for topic in changes.removed:
            if topic.name not in image.topics:
                self._take(topic.name, {})
        for name in changes.touched:
            if pause.is_due():
                await turn()
            self._take(name, image.config_of_topic(name))

    def _take(self, topic: str, config: Mapping[str, str]) -> None:
        for quota, setting in ((self.leader, LEADER_REPLICAS), (self.follower, FOLLOWER_REPLICAS)):
            text = config.get(setting, "").strip()
            if text == ALL_REPLICAS:
                quota.throttled[topic] = None
            elif text:
                quota.throttled[topic] = self._own_partitions(topic, setting, text)
            else:
                quota.throttled.pop(topic, None)

    def _own_partitions(self, topic: str, setting: str, text: str) -> frozenset[int]:
        """Those that are listed with this broker, as `partition:broker`."""
        try:
            replicas = [each.split(":") for each in text.split(",") if each.strip()]
            return frozenset(int(index) for index, broker in replicas if int(broker) == self._node_id)
        except ValueError:  # no client can set it, but a log of another time may have it
            log.warning("%s of topic %s makes no sense, and throttles nothing: %s", setting, topic, text)
            return frozenset()


def _windows(config: BrokerConfig, name: str) -> Windows:
    return Windows(config.get_int(f"{name}.window.num"), config.get_int(f"{name}.window.size.seconds") * 1000)
