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
    from broker.environment.network import Bound
    from broker.http.http_server import HttpAnswer, HttpRequest, HttpServer, Route
    from broker.process.control import Control

BACKLOG = 16
OWN_HOST = "127.0.0.1"


def control_listener_of(config: BrokerConfig, control: Control, environment: Environment) -> HttpServer:
    """Bound, and not serving yet. Raises StartError."""
    from importlib.util import find_spec

    if find_spec("h11") is None:
        raise StartError(
            f"{CONTROL_LISTENER} needs the package h11, which isn't there: pip install 'barnabas[metrics]'",
            exit_status=2,
        )
    from broker.network.endpoints import bind_all

    (endpoint,) = bind_all(config.control_listener, environment.network, BACKLOG)
    return _server_at(endpoint.bound, control, config.get_string(CONTROL_TOKEN), environment)


def own_control_listener(token: str, control: Control, environment: Environment) -> HttpServer:
    """As `control_listener_of`, on a free port of loopback, for who knows the token. Raises QuestionError."""
    from importlib.util import find_spec

    if find_spec("h11") is None:
        raise QuestionError("it needs the package h11, which isn't there: pip install 'barnabas[metrics]'")
    try:
        bound = environment.network.bind(OWN_HOST, 0, BACKLOG)
    except OSError as error:
        raise QuestionError(f"no port of {OWN_HOST} is to be had: {error}") from error
    return _server_at(bound, control, token, environment)


def _server_at(bound: Bound, control: Control, token: str | None, environment: Environment) -> HttpServer:
    from broker.http.http_server import HttpServer
    from broker.process.openapi import ASKED

    door = _Door(control, token)
    routes: dict[str, Route] = {
        f"/v1/{name}": partial(door.asked, each.asks or name) for name, each in ASKED.items()
    }
    routes["/v1"] = door.told
    turns = Turns(environment.scheduler)
    return HttpServer(
        bound, routes, turns, environment.scheduler, door.failed, methods=("GET", "HEAD", "POST")
    )


class _Door:
    def __init__(self, control: Control, token: str | None) -> None:
        self._control = control
        self._token = token

    async def told(self, request: HttpRequest) -> HttpAnswer:
        """What there is to ask, in the form of OpenAPI."""
        from broker.process.openapi import described

        refusal = self._refusal(request)
        return refusal if refusal is not None else _json(described(all_questions()))

    async def asked(self, name: str, request: HttpRequest) -> HttpAnswer:
        """`{"answer": ...}`, or with status 400 `{"error": "why"}`."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            said = json.loads(request.body or b"null")
        except ValueError as error:
            return _json({"error": f"the body isn't JSON: {error}"}, 400)
        if said is None or name == "begin_anew":  # which takes no folder from here
            said = {}
        if not isinstance(said, dict):
            return _json({"error": "the body is an object"}, 400)
        try:
            return _json({"answer": await self._control.answered({**said, "ask": name})})
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
