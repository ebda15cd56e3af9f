"""The listener at which a test in whatever language asks for faults, another time, an empty broker.

    curl -d '{"fault": {"api": "EndTxn", "do": "drop", "at": "answer"}}' localhost:9095/v1/arm_fault
    {"answer": 1}

`barnabas.control.listener=HOST:PORT` turns it on. It is the process's, whatever node runs in it. What there is to ask
is a part of what a program asks that has started the broker (`broker.process.control`): nothing that reads or writes
files elsewhere. `GET /v1` tells what there is.
"""

from __future__ import annotations

import hmac
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.config.broker_definitions import CONTROL_LISTENER, CONTROL_TOKEN
from broker.config.definitions import StartError
from broker.http.host_names import LOOPBACK_NAMES, host_name
from broker.network.turns import Turns
from broker.process.control import all_questions
from broker.process.questions import QuestionError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.environment.environment import Environment
    from broker.http.http_server import HttpAnswer, HttpRequest, HttpServer, Route
    from broker.process.control import Control

BACKLOG = 16

ASKED = (
    "arm_fault",
    "brokers",
    "clock",
    "coordinator",
    "denials",
    "disarm_fault",
    "fault",
    "faults",
    "journal",
    "out_of_sync",
    "partition",
    "release_fault",
    "reset",
)
"""Each is a path, and what it takes the fields of the body. `reset` is `begin_anew` with an empty folder."""

_BEGIN_ANEW = {"reset": "begin_anew"}


def control_listener_of(config: BrokerConfig, control: Control, environment: Environment) -> HttpServer:
    """Bound, and not serving yet. Raises StartError."""
    from importlib.util import find_spec

    if find_spec("h11") is None:
        raise StartError(
            f"{CONTROL_LISTENER} needs the package h11, which isn't there: pip install 'barnabas[metrics]'",
            exit_status=2,
        )
    from broker.http.http_server import HttpServer
    from broker.network.endpoints import bind_all

    (endpoint,) = bind_all(config.control_listener, environment.network, BACKLOG)
    door = _Door(control, config.get_string(CONTROL_TOKEN))
    routes: dict[str, Route] = {f"/v1/{name}": partial(door.asked, name) for name in ASKED}
    routes["/v1"] = door.told
    turns = Turns(environment.scheduler)
    return HttpServer(
        endpoint.bound, routes, turns, environment.scheduler, door.failed, methods=("GET", "HEAD", "POST")
    )


class _Door:
    def __init__(self, control: Control, token: str | None) -> None:
        self._control = control
        self._token = token

    async def told(self, request: HttpRequest) -> HttpAnswer:
        """What there is to ask, in the form of OpenAPI."""
        refusal = self._refusal(request)
        return refusal if refusal is not None else _json(_described())

    async def asked(self, name: str, request: HttpRequest) -> HttpAnswer:
        """`{"answer": ...}`, or with status 400 `{"error": "why"}`."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            said = json.loads(request.body or b"{}")
        except ValueError as error:
            return _json({"error": f"the body isn't JSON: {error}"}, 400)
        if not isinstance(said, dict):
            return _json({"error": "the body is an object"}, 400)
        if name in _BEGIN_ANEW:
            said = {}
        try:
            return _json(
                {"answer": await self._control.answered({**said, "ask": _BEGIN_ANEW.get(name, name)})}
            )
        except QuestionError as error:
            return _json({"error": str(error)}, 400)

    def _refusal(self, request: HttpRequest) -> HttpAnswer | None:
        """A page in a browser may reach this machine's loopback, and isn't served: it says its origin, and by which
        name it has come."""
        if self._token is not None:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                return _json(
                    {"error": f"Authorization: Bearer with what {CONTROL_TOKEN} says is missing"}, 401
                )
        elif "origin" in request.headers or host_name(request.headers.get("host", "")) not in LOOPBACK_NAMES:
            return _json({"error": f"pages of a browser need {CONTROL_TOKEN}"}, 403)
        return None

    def failed(self, error: BaseException) -> None:
        """A broken invariant of the node that was asked."""
        if self._control.node is not None:
            self._control.node.faults.stop_on_failure(error)


def _json(said: Any, status: int = 200) -> HttpAnswer:
    from broker.http.http_server import HttpAnswer

    return HttpAnswer(json.dumps(said).encode() + b"\n", "application/json", status)


def _described() -> dict[str, Any]:
    paths = {}
    questions = all_questions()
    for name in ASKED:
        ask = questions[_BEGIN_ANEW.get(name, name)]
        summary = " ".join((ask.__doc__ or "").split())
        paths[f"/v1/{name}"] = {
            "post": {
                "operationId": name,
                "summary": summary,
                "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
                "responses": {
                    "200": {"description": '{"answer": ...}'},
                    "400": {"description": '{"error": "why"}'},
                },
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "barnabas, the control of a broker in a test", "version": "1"},
        "paths": paths,
    }
