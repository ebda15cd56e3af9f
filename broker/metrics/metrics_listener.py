"""The listener for monitoring a node: `/metrics`, `/health` and `/ready`, and on a broker `/clients`.

`barnabas.metrics.listener=HOST:PORT` turns it on. Before the first scrape nothing reads the node's state, and
prometheus-client isn't imported; requests are counted from the start. The answer is OpenMetrics if the client accepts
that, otherwise Prometheus' text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from broker.http.http_server import HttpAnswer, HttpRequest, HttpServer, Route
from broker.metrics.clients_page import ClientsPage
from broker.metrics.request_metrics import RequestMetrics
from protocol.waiting import compute

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.environment.scheduler import Clock, Scheduler
    from broker.fault_handler import FaultHandler
    from broker.metrics.client_telemetry import ClientTelemetry
    from broker.network.dispatch import Dispatcher
    from broker.network.endpoints import BoundEndpoint
    from broker.network.turns import Turns
    from protocol.waiting import Waiting

Collect = Callable[[RequestMetrics], "Waiting[Sequence[Any]]"]
"""Makes the families of one scrape."""


class Observed(Protocol):
    """The parts of a node that its listener for metrics uses."""

    clock: Clock
    metadata: MetadataLog
    turns: Turns
    scheduler: Scheduler
    faults: FaultHandler


class MetricsListener:
    """The listener for metrics of one node."""

    def __init__(
        self,
        endpoint: BoundEndpoint,
        node: Observed,
        dispatchers: Sequence[Dispatcher],
        collect: Collect,
        is_ready: Callable[[], str],
        telemetry: ClientTelemetry | None = None,
    ) -> None:
        """`dispatchers`: their requests are counted. `is_ready` returns what the node still waits for, or an empty
        text. `telemetry`: the metrics that clients push, if they push them here."""
        self._requests = RequestMetrics(node.clock.monotonic_s, node.metadata.image)
        for dispatcher in dispatchers:
            dispatcher.count(self._requests.counted)
        self._collect = collect
        self._is_ready = is_ready
        self._faults = node.faults
        self.address = endpoint.text if endpoint.host else f"0.0.0.0:{endpoint.port}"
        """The address, as in a URL."""
        routes: dict[str, Route] = {
            "/metrics": self._metrics,
            "/health": self._health,
            "/ready": self._ready,
        }
        if telemetry is not None:
            routes["/clients"] = ClientsPage(telemetry, node.clock.now_ms).answer
        self._server = HttpServer(
            endpoint.bound,
            routes,
            node.turns,
            node.scheduler,
            node.faults.stop_on_failure,
        )

    @property
    def port(self) -> int:
        """The bound port."""
        return self._server.port

    async def listen(self) -> None:
        """Begin to serve. Raises OSError."""
        await self._server.listen()

    def close(self) -> None:
        """Serve nothing any more."""
        self._server.close()

    async def _metrics(self, request: HttpRequest) -> HttpAnswer:
        from prometheus_client.exposition import choose_encoder

        from broker.metrics.exposition import exposition

        families = await self._collect(self._requests)
        _, content_type = choose_encoder(request.headers.get("accept", ""))
        is_openmetrics = content_type.startswith("application/openmetrics-text")
        body = await compute(lambda: exposition(families, is_openmetrics=is_openmetrics))
        return HttpAnswer(body, content_type)

    async def _health(self, request: HttpRequest) -> HttpAnswer:
        failure = self._faults.failure
        if failure is None:
            return HttpAnswer(b"ok\n")
        return HttpAnswer(f"stopping: {failure}\n".encode(), status=503)

    async def _ready(self, request: HttpRequest) -> HttpAnswer:
        awaited = self._is_ready()
        return (
            HttpAnswer(f"waiting for {awaited}\n".encode(), status=503) if awaited else HttpAnswer(b"ready\n")
        )
