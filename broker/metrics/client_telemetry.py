"""Clients' own metrics (KIP-714): the subscriptions, and the last pushed values.

A client asks for its subscription (GetTelemetrySubscriptions), and pushes the metrics in it at an interval
(PushTelemetry). Subscriptions are settings of the cluster, as `kafka-client-metrics` makes them. Pushed metrics are
shown beside the node's own ones while the client is connected. A node without a listener for metrics doesn't advertise
these requests, as Kafka doesn't without a plugin that receives pushes.
Source: `ClientMetricsManager`, `ClientMetricsInstance`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from broker.config.client_metrics_config import CLIENT_METRICS_ROWS
from broker.config.definitions import definition_of, parse_value
from broker.controller.image import CLIENT_METRICS_RESOURCE
from broker.metrics.otlp import OtlpError, Point, points_in
from coordinator.java.re2 import Pattern, compile_pattern
from protocol.errors import Error, KafkaError
from protocol.records.batch import crc32c
from protocol.records.compression import (
    CODEC_NAMES,
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    CodecUnavailableError,
    DecompressionError,
    decompress,
    is_available,
)
from protocol.records.validation_budget import Effort, TooMuchEffortError
from protocol.wire.primitives import uuid_to_text

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.environment.scheduler import Chance
    from broker.network.connection import Connection
    from broker.network.context import RequestContext
    from protocol.messages.configs import PushTelemetryRequest

DEFAULT_INTERVAL_MS = 300_000
MOST_CLIENTS = 16_384
"""As in Kafka (`CACHE_MAX_SIZE`). Beyond that the client that was seen the longest ago is forgotten."""
MOST_SERIES = 1_000
"""Series of one client that are kept."""
MOST_SERIES_OF_ALL = 100_000
"""Series of all clients. Beyond that the client that was seen the longest ago is forgotten."""
KAFKAS_NAMES = "org.apache.kafka."
"""The prefix of all of Kafka's names for clients' metrics."""
LEAST_KEPT_MS = 60_000
"""A silent client is kept for this long, or for three of its intervals if that is longer."""

_EVERYTHING = "*"
_PRINTABLE = frozenset(map(chr, range(0x20, 0x7F)))
"""The characters that patterns can match. A name with other ones matches only a pattern for any character."""
_ACCEPTED = (ZSTD, LZ4, GZIP, SNAPPY)
"""In Kafka's order of preference."""
_RESERVED = (bytes(16), bytes(15) + b"\x01")


class Subscription:
    """One of the cluster's subscriptions."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        values = {
            name: parse_value(definition_of(name, row), configs.get(name, row[1]))
            for name, row in CLIENT_METRICS_ROWS.items()
        }
        metrics, interval_ms, patterns = values["metrics"], values["interval.ms"], values["match"]
        assert isinstance(metrics, tuple)
        assert isinstance(interval_ms, int)
        assert isinstance(patterns, tuple)
        self.metrics = metrics
        self.interval_ms = interval_ms
        self._patterns: dict[str, Pattern] = {}
        for each in patterns:
            name, _, pattern = each.rstrip("=").partition("=")
            self._patterns[name.strip()] = compile_pattern(pattern.strip(), _PRINTABLE)

    def matches(self, client: Mapping[str, str]) -> bool:
        """True if every pattern matches the client's whole attribute. Without patterns all clients match."""
        return all(
            name in client and pattern.matches(client[name]) for name, pattern in self._patterns.items()
        )


class ClientMetricsInstance:
    """A client that has asked or pushed."""

    def __init__(self, connection: Connection, attributes: Mapping[str, str]) -> None:
        self.connection = connection
        self.attributes = attributes
        self.subscription_id = 0
        self.interval_ms = DEFAULT_INTERVAL_MS
        self.metrics: tuple[str, ...] = ()
        self.version = -1  # the version of the subscriptions that these come from
        self.seen_ms = 0
        self.got_ms = self.pushed_ms = -(1 << 62)
        self.taken_ms = -1
        """When its last push was taken; -1: none was. `pushed_ms` counts refused ones too: they count for the quota."""
        self.is_terminating = False
        self.last_error = Error.NONE
        self.series: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        """By name and attributes."""

    @property
    def is_gone(self) -> bool:
        return self.connection not in self.connection.listener.connections


class ClientTelemetry:
    """The telemetry of one node's clients."""

    def __init__(
        self, image: ClusterImage, max_bytes: int, now_ms: Callable[[], int], chance: Chance
    ) -> None:
        self._image = image
        self._max_bytes = max_bytes
        self._now_ms = now_ms
        self._chance = chance
        self._clients: OrderedDict[bytes, ClientMetricsInstance] = (
            OrderedDict()
        )  # the one that was seen last comes last
        self._series = 0
        self._known: dict[str, Mapping[str, str]] = {}
        self._subscriptions: list[Subscription] = []
        self._version = 0
        self._followed = -1
        """The number of changes of the image's subscriptions that these include."""

    # --- requests -------------------------------------------------------------------------------------------

    def subscribe(self, context: RequestContext, client_id: bytes) -> tuple[bytes, ClientMetricsInstance]:
        """The client's id, drawn if it is 0, and its subscription. Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if it
        asks too soon."""
        now_ms = self._now_ms()
        if client_id == bytes(16):
            client_id = self._chance.uuid()
        client = self._client(client_id, context, now_ms)
        is_due = now_ms - max(client.got_ms, client.pushed_ms) >= client.interval_ms
        if is_due:
            client.got_ms = now_ms
        elif client.last_error not in (Error.UNKNOWN_SUBSCRIPTION_ID, Error.UNSUPPORTED_COMPRESSION_TYPE):
            raise _too_soon()
        client.last_error = Error.NONE
        return client_id, client

    @property
    def accepted(self) -> list[int]:
        """The available codecs, the best one first."""
        return [codec for codec in _ACCEPTED if is_available(codec)]

    def push(self, context: RequestContext, request: PushTelemetryRequest) -> None:
        """Take a push. Raises KafkaError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
        UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD."""
        client_id = bytes(request.client_instance_id)
        if client_id in _RESERVED:
            raise KafkaError(Error.INVALID_REQUEST)
        now_ms = self._now_ms()
        client = self._client(client_id, context, now_ms)
        try:
            self._check(client, request, now_ms)
            if request.metrics:
                self._take(client, request)
        except KafkaError as error:
            client.last_error = error.error
            raise
        finally:
            client.is_terminating = request.terminating
        client.taken_ms = now_ms
        client.last_error = Error.NONE

    def _check(self, client: ClientMetricsInstance, request: PushTelemetryRequest, now_ms: int) -> None:
        if client.is_terminating:
            raise KafkaError(Error.INVALID_REQUEST)
        if client.got_ms > client.pushed_ms or now_ms - client.pushed_ms >= client.interval_ms:
            client.pushed_ms = now_ms
        elif not request.terminating:
            raise _too_soon()
        if request.subscription_id != client.subscription_id:
            raise KafkaError(Error.UNKNOWN_SUBSCRIPTION_ID)
        if not 0 <= request.compression_type < len(CODEC_NAMES):
            raise KafkaError(Error.UNSUPPORTED_COMPRESSION_TYPE)
        if len(request.metrics) > self._max_bytes:
            raise KafkaError(Error.TELEMETRY_TOO_LARGE)

    def _take(self, client: ClientMetricsInstance, request: PushTelemetryRequest) -> None:
        most = Effort(self._max_bytes, self._max_bytes, 10_000, 0, 0, 0)
        try:
            data: bytes | memoryview = request.metrics
            if request.compression_type != NONE:
                data = decompress(request.compression_type, request.metrics, most)
            for point in points_in(data):
                self._keep(client, point)
        except (OtlpError, DecompressionError, TooMuchEffortError, CodecUnavailableError) as error:
            raise KafkaError(Error.INVALID_RECORD, str(error)) from None

    def _keep(self, client: ClientMetricsInstance, point: Point) -> None:
        key = point.name, point.attributes
        if key not in client.series:
            if len(client.series) >= MOST_SERIES:
                return
            while self._series >= MOST_SERIES_OF_ALL:
                self._forget(next(iter(self._clients)))
            self._series += 1
        before = client.series.get(key, 0.0) if point.is_delta else 0.0
        client.series[key] = before + point.value

    # --- clients and their subscriptions --------------------------------------------------------------------

    def _client(self, client_id: bytes, context: RequestContext, now_ms: int) -> ClientMetricsInstance:
        self._expire(now_ms)
        self._follow()
        client = self._clients.get(client_id)
        if client is not None and client.is_gone:  # Kafka, too, forgets a client when its connection ends
            self._forget(client_id)
            client = None
        if client is None:
            if len(self._clients) >= MOST_CLIENTS:
                self._forget(next(iter(self._clients)))
            client = self._clients[client_id] = ClientMetricsInstance(
                context.connection, _attributes(client_id, context)
            )
        if client.version != self._version:
            self._subscribe_anew(client_id, client)
        self._clients.move_to_end(client_id)
        client.seen_ms = now_ms
        return client

    def _subscribe_anew(self, client_id: bytes, client: ClientMetricsInstance) -> None:
        """Give the client its subscription, and forget its past, as if it came for the first time."""
        wanted: set[str] = set()
        client.interval_ms = DEFAULT_INTERVAL_MS
        for each in self._subscriptions:
            if each.matches(client.attributes):
                wanted.update(each.metrics)
                client.interval_ms = min(client.interval_ms, each.interval_ms)
        client.metrics = (_EVERYTHING,) if _EVERYTHING in wanted else tuple(sorted(wanted))
        said = f"{client.metrics}{client.interval_ms}".encode()
        client.subscription_id = _signed32(crc32c(said) ^ crc32c(client_id))
        client.version = self._version
        client.got_ms = client.pushed_ms = -(1 << 62)
        client.is_terminating = False
        client.last_error = Error.NONE

    def _follow(self) -> None:
        changes = self._image.client_metrics_changes
        if changes == self._followed:
            return
        self._followed = changes
        known = {
            name: configs
            for (kind, name), configs in self._image.configs.items()
            if kind == CLIENT_METRICS_RESOURCE and configs
        }
        if known != self._known:
            self._known = known
            self._subscriptions = [Subscription(configs) for configs in known.values()]
            self._version += 1

    def _expire(self, now_ms: int) -> None:
        """Forget clients that have been silent for long, beginning with the one that was seen the longest ago."""
        while self._clients:
            client_id, client = next(iter(self._clients.items()))
            if now_ms - client.seen_ms <= max(LEAST_KEPT_MS, 3 * client.interval_ms):
                break
            self._forget(client_id)

    def _forget(self, client_id: bytes) -> None:
        self._series -= len(self._clients.pop(client_id).series)

    # --- showing --------------------------------------------------------------------------------------------

    @property
    def max_bytes(self) -> int:
        """The largest push."""
        return self._max_bytes

    def pushed(self) -> Iterator[ClientMetricsInstance]:
        """Yield the connected clients, beginning with the one that was seen last."""
        for client in [*self._clients.values()][::-1]:
            if not client.is_gone:
                yield client


def _attributes(client_id: bytes, context: RequestContext) -> dict[str, str]:
    """The client's attributes, by the names that subscriptions match (`ClientMetricsInstanceMetadata`)."""
    name, version = context.connection.client_software or ("unknown", "unknown")
    return {
        "client_instance_id": uuid_to_text(client_id),
        "client_id": context.client_id or "",
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.peer_host,
        "client_source_port": str(context.connection.peer_port),
    }


def _too_soon() -> KafkaError:
    return KafkaError(Error.THROTTLING_QUOTA_EXCEEDED)


def _signed32(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number
