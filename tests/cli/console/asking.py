"""Asks a console over HTTP, as its page does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

TIMEOUT_S = 60.0


@dataclass
class Answer:
    """An answer's status, its headers by lower-case names, and its bytes."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        assert self.status == 200, (self.status, self.body)
        return json.loads(self.body)


@dataclass
class Asking:
    """Asks one console. `url` is the address that it printed."""

    host: str
    port: int
    url: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Headers are given with `_` for `-`."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, {**self.headers, **given})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def api(self, name: str, **params: object) -> Any:
        return self.get(f"/api/{name}?{urlencode(params, doseq=True)}").json()

    def post(self, name: str, body: object, **headers: str) -> Answer:
        """Send a POST request with the headers of the console's own page."""
        own = {"origin": self.address, "x_barnabas": "1", "content_type": "application/json"}
        return self.request("POST", f"/api/{name}", json.dumps(body).encode(), **{**own, **headers})

    @contextmanager
    def live(self, *wanted: str) -> Iterator[Events]:
        """Open the console's stream of live events."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", f"/api/live?want={','.join(wanted)}", headers=self.headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            yield Events(answer)
        finally:
            connection.close()


class Events:
    """Sections and lists after the events so far."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self.values: dict[str, Any] = {}
        self.lists: dict[str, dict[Any, dict[str, Any]]] = {}

    def until(self, condition: Callable[[Events], Any]) -> Any:
        """Listen until the condition holds, and return its result."""
        while not (found := condition(self)):
            self._next()
        return found

    def _next(self) -> None:
        kind, data = "", ""
        while True:
            line = self._answer.readline().decode()
            assert line, "the console ended the stream"
            if line == "\n":
                break
            name, _, value = line.rstrip("\n").partition(": ")
            kind, data = (value, data) if name == "event" else (kind, data + value)
        told = json.loads(data)
        if kind == "value":
            self.values[told["name"]] = told["value"]
        elif kind == "list":
            held = self.lists.setdefault(told["name"], {})
            held.update({each["key"]: each for each in told["documents"]})
