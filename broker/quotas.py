"""Measures for quotas: a rate over sliding windows, and a token bucket.

Both tell how long a client has to wait until its average is within the quota again. Source: Kafka's
`SampledStat`, `Rate`, `SimpleRate`, `TokenBucket`, `QuotaUtils`.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from broker.network.endpoints import Addresses, HostNames
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import ClientQuotaRecord
from protocol.waiting import Pause, carry_on, turn
from storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.environment.scheduler import Clock
    from broker.network.context import RequestContext


MAX_THROTTLE_MS = 2**31 - 1  # an answer has no room for more; Kafka's number would turn negative


@dataclass(frozen=True, slots=True)
class Windows:
    """The number and the length of windows (`quota.window.num`, `quota.window.size.seconds`)."""

    samples: int
    window_ms: int


class _Sample:
    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.start_ms = now_ms
        self.last_event_ms = now_ms


class Rate:
    """A rate per second, over the windows."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Record a value. A negative one takes back what was recorded."""
        windows = self._windows
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= windows.window_ms:
            # One more than there are windows: the oldest may reach into the time that counts.
            self._current = (self._current + 1) % (windows.samples + 1)
            if self._current == len(self._samples):
                self._samples.append(_Sample(now_ms))
            sample = self._samples[self._current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may come until the rate is down to `limit` (per second). 0 if it isn't above."""
        rate = self.per_second(now_ms)
        window_ms = self._elapsed_ms(now_ms)
        if not rate > limit:  # nor if the limit is NaN
            return 0
        return _milliseconds((rate - limit) / limit * window_ms if limit else math.inf)

    def per_second(self, now_ms: int) -> float:
        """The recorded sum divided by the elapsed time."""
        self._purge(now_ms)
        return sum(sample.value for sample in self._samples) / (self._elapsed_ms(now_ms) / 1000)

    def _purge(self, now_ms: int) -> None:
        expiry_ms = self._windows.samples * self._windows.window_ms
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= expiry_ms:
                sample.reset(now_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time since the oldest sample, but at least all windows except one, so that a burst at the
        beginning isn't a high rate yet."""
        windows = self._windows
        elapsed_ms = now_ms - min((sample.start_ms for sample in self._samples), default=now_ms)
        missing = windows.samples - 1 - elapsed_ms // windows.window_ms
        if missing > 0:
            elapsed_ms += missing * windows.window_ms
        return max(elapsed_ms, 1)


class SimpleRate(Rate):
    """A rate over the time that has passed, but at least one window, so that the first bytes may be a high
    rate. Asking before anything came starts that time."""

    __slots__ = ()

    def _elapsed_ms(self, now_ms: int) -> int:
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        return max(now_ms - min(sample.start_ms for sample in self._samples), self._windows.window_ms)


class TokenBucket:
    """Tokens that come back at the quota's rate, up to the total for all windows. Below zero, the bucket is
    exhausted."""

    __slots__ = ("_last_update_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._last_update_ms = 0  # the epoch, so it begins full

    def record(self, value: float, limit: float, now_ms: int) -> None:
        self._refill(limit, now_ms)
        self._tokens = min(self._burst(limit), self._tokens - value)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until no token is owed. `limit` is in tokens per second."""
        self._refill(limit, now_ms)
        return _milliseconds(-self._tokens / limit * 1000) if self._tokens < 0 else 0

    def _refill(self, limit: float, now_ms: int) -> None:
        earned = limit * (now_ms - self._last_update_ms) / 1000
        self._tokens = min(self._burst(limit), self._tokens + earned)
        self._last_update_ms = now_ms

    def _burst(self, limit: float) -> float:
        return self._windows.samples * self._windows.window_ms / 1000 * limit


def _milliseconds(value: float) -> int:
    return min(int(min(value, MAX_THROTTLE_MS) + 0.5), MAX_THROTTLE_MS)


# --- Each client's recent usage, and how long it is kept ----------------------------------------------------

IDLE_MS = 3_600_000  # ClientQuotaManager.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS
MOST_MEASURED = 5_000
"""The most clients to measure for one quota. With more, the one that was idle longest is forgotten."""

M = TypeVar("M", Rate, TokenBucket)


class Measures(Generic[M]):
    """Each client's recent usage."""

    __slots__ = ("_by_client", "_make")

    def __init__(self, make: Callable[[], M]) -> None:
        self._make: Callable[[], M] = make
        self._by_client: OrderedDict[Hashable, tuple[M, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_client)

    def of(self, client: Hashable, now_ms: int) -> M:
        """The measure of a client. Measures that weren't used for an hour are forgotten over time."""
        clients = self._by_client
        found = clients.get(client)
        measure = self._make() if found is None else found[0]
        clients[client] = measure, now_ms
        clients.move_to_end(client)
        idle = next(iter(clients))  # idle longest
        if now_ms - clients[idle][1] >= IDLE_MS or len(clients) > MOST_MEASURED:
            del clients[idle]
        return measure


# --------------------------------------------------------------------------------------------------------------
# Client quotas, enforced: bytes produced and fetched, request time, changes of topics, new connections.
#
# A client above its quota gets its answer at once, and the answer says how long its connection won't be read
# (KIP-219). Without quotas nothing is measured. Of several, the most specific one counts
# (`DefaultQuotaCallback`). Source: `ClientQuotaManager` and its kin, `ConnectionQuotas`; KIP-13, KIP-124,
# KIP-599, KIP-612.

log = logging.getLogger("barnabas.quotas")


class _Missing:
    """The entity if a quota doesn't name one. None is the default entity."""

    __slots__ = ()


MISSING = _Missing()

Name = str | None | _Missing


class Found(NamedTuple):
    """A quota, and who shares it: (user, client id), with "" where either doesn't matter."""

    limit: float
    sharers: tuple[str, str]


class Limits:
    """The quotas of one kind, by (user, client id)."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[tuple[Name, Name], float] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def set(self, user: Name, client_id: Name, limit: float) -> None:
        self._limits[user, client_id] = limit

    def find(self, user: str, client_id: str) -> Found | None:
        """Find the first quota in Kafka's order: for a user and a client id, for a user, for a client id. In
        each case, the named entity comes before the default."""
        limits = self._limits
        both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
        wanted: tuple[tuple[tuple[Name, Name], tuple[str, str]], ...] = (
            ((user, client_id), both),
            ((user, None), both),
            ((user, MISSING), of_user),
            ((None, client_id), both),
            ((None, None), both),
            ((None, MISSING), of_user),
            ((MISSING, client_id), of_client),
            ((MISSING, None), of_client),
        )
        for entity, sharers in wanted:
            limit = limits.get(entity)
            if limit is not None:
                return Found(limit, sharers)
        return None


# --- Addresses that connect too often -----------------------------------------------------------------------


class ConnectionRates:
    """How many connections per second an address may make (KIP-612)."""

    __slots__ = ("_measures", "_window_ms", "default", "limits")

    def __init__(self, windows: Windows) -> None:
        self.limits: dict[str, float] = {}
        self.default: float | None = None
        self._window_ms = windows.window_ms
        self._measures = Measures(lambda: Rate(windows))

    def charge(self, address: str, now_ms: int) -> int:
        """How long to hold a new connection of this address before closing it. 0 lets it in."""
        limit = self.limits.get(address, self.default)
        if limit is None:
            return 0
        rate = self._measures.of(address, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._window_ms)
        if throttle_ms > 0:
            rate.record(-1, now_ms)  # it isn't let in
        return throttle_ms


# --- All quotas ---------------------------------------------------------------------------------------------


PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"


class RateQuota:
    """Quotas on a rate per second."""

    __slots__ = ("_measures", "_windows", "limits")

    def __init__(self, windows: Windows) -> None:
        self.limits = Limits()
        self._windows = windows
        self._measures = Measures(lambda: Rate(windows))

    def charge(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Record a client's usage. Returns how long to throttle it, in ms. `user` is its principal's name."""
        found = self.limits.find(user, client_id)
        if found is None:
            return 0
        rate = self._measures.of(found.sharers, now_ms)
        rate.record(value, now_ms)
        return rate.throttle_ms(found.limit, now_ms)

    def most_at_once(self, user: str, client_id: str) -> float | None:
        """The most usage at once that isn't throttled if nothing else was used. None without a quota."""
        found = self.limits.find(user, client_id)
        if found is None:
            return None
        return found.limit * (self._windows.samples - 1) * self._windows.window_ms / 1000


class MutationQuota:
    """Quotas on created and deleted partitions (KIP-599). The request that exceeds the quota still succeeds;
    later ones don't."""

    __slots__ = ("_buckets", "limits")

    def __init__(self, windows: Windows) -> None:
        self.limits = Limits()
        self._buckets = Measures(lambda: TokenBucket(windows))

    def of_request(self, user: str, client_id: str, *, strict: bool, now_ms: int) -> Mutations:
        """The quota for one request. If it is exhausted, `strict` refuses a change, otherwise the change is
        only delayed."""
        found = self.limits.find(user, client_id)
        if found is None:
            return UNLIMITED
        return LimitedMutations(self._buckets.of(found.sharers, now_ms), found.limit, strict, now_ms)


class Mutations:
    """What one request takes from a quota on changes (`ControllerMutationQuota`). This class has no limit."""

    __slots__ = ("throttle_ms",)

    def __init__(self) -> None:
        self.throttle_ms = 0

    def take(self, partitions: int) -> None:
        """Take partitions from the quota. Raises KafkaError: THROTTLING_QUOTA_EXCEEDED."""


UNLIMITED = Mutations()


class LimitedMutations(Mutations):
    """Takes from a client's bucket."""

    __slots__ = ("_bucket", "_limit", "_now_ms", "_strict")

    def __init__(self, bucket: TokenBucket, limit: float, strict: bool, now_ms: int) -> None:
        super().__init__()
        self._bucket = bucket
        self._limit = limit
        self._strict = strict
        self._now_ms = now_ms

    def take(self, partitions: int) -> None:
        if self._strict:
            exhausted_ms = self._bucket.throttle_ms(self._limit, self._now_ms)
            if exhausted_ms > 0:
                self.throttle_ms = exhausted_ms
                raise KafkaError(Error.THROTTLING_QUOTA_EXCEEDED)
        self._bucket.record(partitions, self._limit, self._now_ms)
        if not self._strict:
            self.throttle_ms = self._bucket.throttle_ms(self._limit, self._now_ms)


class ClientQuotas:
    """All quotas in the cluster's metadata."""

    def __init__(self, config: BrokerConfig, names: HostNames) -> None:
        """`names` resolves hosts that a request named before this run."""
        self._names = names
        self._windows = Windows(
            config.get_int("quota.window.num"), config.get_int("quota.window.size.seconds") * 1000
        )
        self._controller_windows = Windows(
            config.get_int("controller.quota.window.num"),
            config.get_int("controller.quota.window.size.seconds") * 1000,
        )
        self.produce = RateQuota(self._windows)
        self.fetch = RateQuota(self._windows)
        self.request = RateQuota(self._windows)
        self.mutation = MutationQuota(self._controller_windows)
        self.connections = ConnectionRates(self._windows)
        self.enforced = False
        """True if there is any quota on requests. Without one, nothing needs to be measured."""
        self._limits_by_host: dict[str, int] = {}
        self._addresses: dict[str, str | None] = {}
        """The addresses of these hosts, from when their quotas came."""
        self._awaited: set[str] = set()
        self._looked_up: list[Addresses] = []

    @property
    def max_request_throttle_ms(self) -> int:
        return self._windows.window_ms

    def mutations_of(self, context: RequestContext, *, strict_since: int, now_ms: int) -> Mutations:
        """The quota for a request's changes. From a version on, clients know that changes can be refused."""
        strict = context.api_version >= strict_since
        return self.mutation.of_request(
            context.principal.name, context.client_id or "", strict=strict, now_ms=now_ms
        )

    def expect(self, hosts: Addresses) -> Callable[[], None]:
        """Note that a request for quotas of hosts has resolved them, so `follow` needn't. The returned
        function ends that."""
        self._looked_up.append(hosts)

        def forget() -> None:
            self._looked_up = [each for each in self._looked_up if each is not hosts]

        return forget

    async def follow(self, image: ClusterImage) -> None:
        """Apply the quotas in the metadata. The clients' usage so far stays."""
        by_key: dict[str, Limits] = {
            PRODUCER_BYTE_RATE: Limits(),
            CONSUMER_BYTE_RATE: Limits(),
            REQUEST_PERCENTAGE: Limits(),
            CONTROLLER_MUTATION_RATE: Limits(),
        }
        by_host: dict[str | None, int] = {}
        pause = Pause()
        for record in [*image.kept.of_type(ClientQuotaRecord)]:
            if pause.is_due():
                await turn()
            assert isinstance(record, ClientQuotaRecord)
            entity = {part.entity_type: part.entity_name for part in record.entity}
            if "ip" in entity:
                if record.key == CONNECTION_CREATION_RATE:
                    by_host[entity["ip"]] = _whole(record.value)
            elif record.key in by_key:
                user: Name = entity.get("user", MISSING)
                client_id: Name = entity.get("client-id", MISSING)
                by_key[record.key].set(user, client_id, record.value)
        self.connections.default = by_host.get(None)
        self._limits_by_host = {host: limit for host, limit in by_host.items() if host is not None}
        self._find_addresses()
        self.produce.limits = by_key[PRODUCER_BYTE_RATE]
        self.fetch.limits = by_key[CONSUMER_BYTE_RATE]
        self.request.limits = by_key[REQUEST_PERCENTAGE]
        self.mutation.limits = by_key[CONTROLLER_MUTATION_RATE]
        self.enforced = any(map(len, by_key.values()))

    def _find_addresses(self) -> None:
        """Limit the known addresses. Others are resolved beside the loop, and limited afterwards."""
        # A refused request's host may already have a quota; that keeps its address.
        known = self._addresses | {
            host: address
            for found in self._looked_up
            for host, address in found.items()
            if address is not None
        }
        self._addresses = {host: known[host] for host in self._limits_by_host if host in known}
        unknown = [host for host in self._limits_by_host if host not in known and host not in self._awaited]
        self._limit_addresses()
        if unknown:
            self._awaited.update(unknown)
            carry_on(self._look_up(unknown))

    async def _look_up(self, unknown: Sequence[str]) -> None:
        addresses = await self._names.look_up(unknown)
        self._awaited.difference_update(addresses)
        for host, address in addresses.items():
            if host in self._limits_by_host and host not in self._addresses:
                self._addresses[host] = address
                if address is None:
                    log.warning("the quota of %s is not in force: can't resolve the host", host)
        self._limit_addresses()

    def _limit_addresses(self) -> None:
        self.connections.limits = {
            address: self._limits_by_host[host]
            for host, address in self._addresses.items()
            if address is not None
        }


def _whole(value: float) -> int:
    """Convert like Java's narrowing of a double to an int."""
    return 0 if math.isnan(value) else int(min(max(value, -(2**31)), 2**31 - 1))


# --- Charging a handled request, and how long its connection waits then -------------------------------------

_PRODUCE_KEY = 0
_EXEMPT = frozenset({17, 27, 36, 56, 59})
"""WriteTxnMarkers, AlterPartition, FetchSnapshot: only nodes send these, and are never throttled (Kafka:
`RequestHandlerHelper.sendResponseExemptThrottle`). For Fetch, the handler decides. SaslHandshake and
SaslAuthenticate come before there is a user to charge."""

FULL_TIME_PERCENT = 100.0


def charge(
    quotas: ClientQuotas,
    context: RequestContext,
    response: Any,
    request_bytes: int,
    handling_s: float,
    now_ms: int,
) -> None:
    """Write into the response how long the client is throttled, and mute its connection for as long.

    `response` is None if nothing is answered (acks=0): such a Produce is charged for its bytes only. A
    throttle time that the handler has set (a Fetch above its quota, a change of too many partitions) counts,
    too.
    """
    user, client_id = context.principal.name, context.client_id or ""
    throttle_ms = 0
    if context.api_key == _PRODUCE_KEY:
        throttle_ms = quotas.produce.charge(user, client_id, request_bytes, now_ms)
    if response is not None and not context.is_between_nodes and context.api_key not in _EXEMPT:
        used = handling_s * FULL_TIME_PERCENT
        request_ms = min(quotas.request.charge(user, client_id, used, now_ms), quotas.max_request_throttle_ms)
        throttle_ms = max(throttle_ms, request_ms)
    told_ms = getattr(response, "throttle_time_ms", None)
    if told_ms is not None:
        throttle_ms = max(throttle_ms, told_ms)
        response.throttle_time_ms = throttle_ms
    if throttle_ms > 0:
        context.mute(throttle_ms)


# --------------------------------------------------------------------------------------------------------------
# Replication quotas: how much a node sends to followers, fetches from leaders, and copies between its own log
# directories (KIP-73, KIP-113).
#
# Topics name the throttled replicas (`leader.` and `follower.replication.throttled.replicas`). Brokers set
# the rate for all of them together. While the rate is exceeded, nothing is sent or fetched, except for
# replicas in sync, which would otherwise leave the ISR: their bytes count, but aren't held back.
#
# Source: `ReplicationQuotaManager`, `TopicConfigHandler`, `BrokerConfigHandler`, `QuotaConfig`.


LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
ALTER_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
ALL_REPLICAS = "*"


class ReplicationQuota:
    """One of the three quotas. `throttled` names the partitions: topic → their numbers, None for all."""

    __slots__ = ("_clock", "_limit", "_rate", "throttled")

    def __init__(self, windows: Windows, clock: Clock, limit: Callable[[], int]) -> None:
        """`limit` returns bytes per second, LONG_MAX without a limit."""
        self.throttled: dict[str, Collection[int] | None] = {}
        self._clock = clock
        self._limit = limit
        self._rate = SimpleRate(windows)

    def is_throttled(self, topic: str, partition: int) -> bool:
        """True if the quota applies to the partition."""
        if topic not in self.throttled:
            return False
        partitions = self.throttled[topic]
        return partitions is None or partition in partitions

    def is_exceeded(self) -> bool:
        """True if nothing may be transferred now. While the quota isn't exceeded, any amount may be, and
        counts fully."""
        limit = self._limit()
        return limit != LONG_MAX and self._rate.per_second(self._now_ms()) > limit

    def record(self, size: int) -> None:
        """Count bytes that were transferred, even over the limit."""
        self._rate.record(size, self._now_ms())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


class ReplicationQuotas:
    """The quotas of one node: what it sends as a `leader`, what it fetches as a `follower`, and what it
    copies between its directories (`alter_log_dirs`, for all partitions)."""

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
        """Apply which replicas are throttled. Changes of rates need no notification."""
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
        """The partitions listed with this broker, as `partition:broker`."""
        try:
            replicas = [each.split(":") for each in text.split(",") if each.strip()]
            return frozenset(int(index) for index, broker in replicas if int(broker) == self._node_id)
        except ValueError:  # clients can't set it, but an old log may have it
            log.warning("%s of topic %s is invalid and throttles nothing: %s", setting, topic, text)
            return frozenset()


def _windows(config: BrokerConfig, name: str) -> Windows:
    return Windows(config.get_int(f"{name}.window.num"), config.get_int(f"{name}.window.size.seconds") * 1000)
