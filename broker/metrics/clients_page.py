"""The metrics that clients have pushed (KIP-714), client by client, as JSON: `/clients`. The console shows them.

`?name=NAME`, which may be repeated, selects metrics. `?client=ID` selects clients. Names are the clients' own, without
the prefix `org.apache.kafka.`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from broker.http.http_server import HttpAnswer, HttpRequest
from broker.metrics.client_telemetry import KAFKAS_NAMES
from protocol.waiting import Pause, compute, turn

if TYPE_CHECKING:
    from broker.metrics.client_telemetry import ClientMetricsInstance, ClientTelemetry

MOST_CLIENTS_SHOWN: Final = 1_000
"""Clients in one answer: those that were seen last. The answer has the count of all."""
_MOST_PARAMETERS: Final = 100


class ClientsPage:
    """The page of one node."""

    def __init__(self, telemetry: ClientTelemetry, now_ms: Callable[[], int]) -> None:
        self._telemetry = telemetry
        self._now_ms = now_ms

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """As a `Route`."""
        try:
            asked = parse_qs(request.query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError as error:
            return HttpAnswer(f"{error}\n".encode(), status=400)
        names, wanted = frozenset(asked.get("name", ())), asked.get("client")
        pause, found, count = Pause(), [], 0
        for client in self._telemetry.pushed():
            if wanted is not None and client.attributes["client_instance_id"] not in wanted:
                continue
            count += 1
            if count > MOST_CLIENTS_SHOWN:
                continue
            found.append(self._document(client, names))
            if pause.is_due(1 + len(client.series)):
                await turn()
        document = {"count": count, "clients": found}
        return HttpAnswer(await compute(lambda: json.dumps(document).encode()), "application/json")

    def _document(self, client: ClientMetricsInstance, names: frozenset[str]) -> dict[str, Any]:
        metrics = [
            [short, dict(attributes), value if math.isfinite(value) else None]
            for (name, attributes), value in client.series.items()
            if (short := name.removeprefix(KAFKAS_NAMES)) in names or not names
        ]
        return {
            **client.attributes,
            "interval_ms": client.interval_ms,
            "pushed_ms_ago": None if client.taken_ms < 0 else self._now_ms() - client.taken_ms,
            "metrics": metrics,
        }
