"""The listener at which a test in any language can arm faults, move the clock, or reset the broker.

    curl -d '{"fault": {"api": "EndTxn", "do": "drop", "at": "answer"}}' localhost:9095/v1/arm_fault
    {"answer": 1}

`barnabas.control.listener=HOST:PORT` turns it on. It belongs to the process, whichever node runs in it. It takes some
of the questions that a program asks which has started the broker (`broker.process.control`): none that reads or writes
other files. `GET /v1` lists them.
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
    """The listener, bound but not serving yet. Raises StartError."""
    from importlib.util import find_spec

    if find_spec("h11") is None:
        raise StartError(
            f"{CONTROL_LISTENER} needs the package h11, which isn't installed: pip install 'barnabas[metrics]'",
            exit_status=2,
        )
    from broker.network.endpoints import bind_all

    (endpoint,) = bind_all(config.control_listener, environment.network, BACKLOG)
    return _server_at(endpoint.bound, control, config.get_string(CONTROL_TOKEN), environment)


def own_control_listener(token: str, control: Control, environment: Environment) -> HttpServer:
    """As `control_listener_of`, on a free port of loopback, for clients that know the token. Raises QuestionError."""
    from importlib.util import find_spec

    if find_spec("h11") is None:
        raise QuestionError(
            "it needs the package h11, which isn't installed: pip install 'barnabas[metrics]'"
        )
    try:
        bound = environment.network.bind(OWN_HOST, 0, BACKLOG)
    except OSError as error:
        raise QuestionError(f"no port of {OWN_HOST} can be bound: {error}") from error
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
        """All questions, as an OpenAPI document."""
        from broker.process.openapi import described

        refusal = self._refusal(request)
        return refusal if refusal is not None else _json(described(all_questions()))

    async def asked(self, name: str, request: HttpRequest) -> HttpAnswer:
        """Answer a question with `{"answer": ...}`, or with status 400 and `{"error": "why"}`."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        try:
            said = json.loads(request.body or b"null")
        except ValueError as error:
            return _json({"error": f"the body isn't JSON: {error}"}, 400)
        if said is None or name == "begin_anew":  # a folder can't be given over HTTP
            said = {}
        if not isinstance(said, dict):
            return _json({"error": "the body has to be an object"}, 400)
        try:
            return _json({"answer": await self._control.answered({**said, "ask": name})})
        except QuestionError as error:
            return _json({"error": str(error)}, 400)

    def _refusal(self, request: HttpRequest) -> HttpAnswer | None:
        """The refusal of a request without the token or, if there is none, of a page in a browser. Such a page can
        reach this machine's loopback; its headers tell its origin, and the host name that it used."""
        if self._token is not None:
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(given.encode(), self._token.encode()):
                return _json(
                    {"error": f"the header Authorization: Bearer with {CONTROL_TOKEN} is missing or wrong"},
                    401,
                )
        elif "origin" in request.headers or host_name(request.headers.get("host", "")) not in LOOPBACK_NAMES:
            return _json({"error": f"pages of a browser need {CONTROL_TOKEN}"}, 403)
        return None

    def failed(self, error: BaseException) -> None:
        """Stop the node after a broken invariant."""
        if self._control.node is not None:
            self._control.node.faults.stop_on_failure(error)


def _json(said: Any, status: int = 200) -> HttpAnswer:
    from broker.http.http_server import HttpAnswer

    return HttpAnswer(json.dumps(said).encode() + b"\n", "application/json", status)
