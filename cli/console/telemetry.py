"""The metrics that clients have pushed to the brokers (KIP-714), from the brokers' metrics listeners.

The metrics listener is barnabas's own. Apache Kafka has nothing like it: there a plugin takes what clients push.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlencode

from cli.errors import UNREACHABLE, CommandError
from cli.options import host_and_port

PATIENCE_S: Final = 3.0
MOST_BYTES: Final = 8 * 1024 * 1024
"""The most bytes of a broker's answer."""
MOST_AT_ONCE: Final = 8
"""The most brokers that are asked at the same time."""
_OF_A_CLIENT: Final = {"client_id": str, "client_instance_id": str, "metrics": list}
TABLE: Final = (
    "producer.request.latency.avg",
    "producer.record.send.total",
    "producer.record.error.total",
    "producer.txn.commit.time.ns.total",
    "producer.txn.abort.time.ns.total",
    "consumer.coordinator.commit.latency.avg",
    "consumer.coordinator.commit.latency.max",
    "consumer.fetch.manager.records.lag",
    "consumer.fetch.manager.records.lag.max",
)
"""The fields that the list of clients shows."""


class ClientTelemetry:
    """Asks the metrics listeners of the brokers."""

    def __init__(self, listeners: Sequence[str] = ()) -> None:
        """Raises CommandUsageError for a wrong address."""
        self._listeners = {text: host_and_port(text, "--metrics") for text in listeners}

    def all(self) -> dict[str, Any]:
        """Return every client with the fields of `TABLE`. A broker that doesn't answer is among the problems."""
        clients: list[dict[str, Any]] = []
        problems = []
        count = 0
        with ThreadPoolExecutor(MOST_AT_ONCE) as asking:
            for listener, told in zip(
                self._listeners, asking.map(self._table_or_error, self._listeners), strict=True
            ):
                if isinstance(told, CommandError):
                    problems.append(str(told))
                else:
                    clients += [{**each, "listener": listener} for each in told["clients"]]
                    count += told["count"]
        return {
            "listeners": [*self._listeners],
            "count": count,
            "clients": sorted(clients, key=lambda each: str(each["client_id"])),
            "problems": problems,
        }

    def one(self, client: str, listener: str) -> dict[str, Any]:
        """Return a client with everything that it has pushed there. Raises CommandError."""
        if listener not in self._listeners:
            raise CommandError(f"{listener} isn't one of the listeners in --metrics")
        for each in self._told(listener, [("client", client)])["clients"]:
            return {**each, "listener": listener}
        raise CommandError(f"no client with the id {client} is connected to {listener} any more")

    def _table_or_error(self, listener: str) -> dict[str, Any] | CommandError:
        try:
            return self._told(listener, [("name", name) for name in TABLE])
        except CommandError as error:
            return error

    def _told(self, listener: str, query: Sequence[tuple[str, str]]) -> dict[str, Any]:
        connection = http.client.HTTPConnection(*self._listeners[listener], timeout=PATIENCE_S)
        try:
            connection.request("GET", f"/clients?{urlencode(query)}", headers={"connection": "close"})
            answer = connection.getresponse()
            data = answer.read(MOST_BYTES + 1)
            if answer.status != 200:
                raise CommandError(f"{listener} has no list of clients: it answers {answer.status}")
            if len(data) > MOST_BYTES:
                raise CommandError(f"{listener} lists more clients than can be shown")
            told: dict[str, Any] = json.loads(data)
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise CommandError(f"{listener} (from --metrics) doesn't answer: {error}", UNREACHABLE) from None
        finally:
            connection.close()
        if not _is_list_of_clients(told):
            raise CommandError(f"{listener} isn't a metrics listener of barnabas")
        return told


def _is_list_of_clients(told: Any) -> bool:
    return (
        isinstance(told, dict)
        and isinstance(told.get("count"), int)
        and isinstance(told.get("clients"), list)
        and all(
            isinstance(each, dict)
            and all(isinstance(each.get(name), kind) for name, kind in _OF_A_CLIENT.items())
            for each in told["clients"]
        )
    )
