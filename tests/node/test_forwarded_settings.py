"""Settings that are altered at a broker whose controller is another node: the broker does its own part, and forwards
the rest."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from broker.handlers import alter_configs, incremental_alter_configs
from broker.peers.forwarding import Forwarding
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS, decode_request_header
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import EnvelopeRequest, EnvelopeResponse
from protocol.messages.configs import AlterConfigsResourceResponse
from protocol.waiting import Later
from protocol.wire.codec import decode, encode
from tests.compare.plain import message_from
from tests.support.answers import answered
from tests.support.controller_channel import Channel
from tests.support.whole_server import handled, started

TOPIC, BROKER, LOGGER = 2, 4, 8
LEGACY = (alter_configs, 33, 2)
INCREMENTAL = (incremental_alter_configs, 44, 1)
LOGGER_NAME = "barnabas.of_a_test"
OWN = (LOGGER, "1", (LOGGER_NAME, "DEBUG"))
LEFT = (TOPIC, "t", ("retention.ms", "5"))
OTHERS = (BROKER, "2", ("log.retention.ms", "5"))
CORRELATION_ID = 7

Wanted = tuple[int, str, tuple[str, str]]
Told = tuple[int, str, Error, str | None]


@pytest.fixture(autouse=True)
def _logger() -> None:
    logging.getLogger(LOGGER_NAME).setLevel(logging.NOTSET)


class Joined:
    """A node that forwards requests by a channel to a controller elsewhere."""

    def __init__(self, node: Server) -> None:
        self.node, self.channel = node, Channel()
        cluster: Any = node.cluster
        cluster.forwarding = Forwarding(self.channel, node.scheduler)
        assert not any(cluster.forwarding.forwards(key) for _, key, _ in (LEGACY, INCREMENTAL))

    def ask(
        self, api: tuple[ModuleType, int, int], *wanted: Wanted, only: bool = False, client_id: Any = "c"
    ) -> Any:
        handler, key, version = api
        operation = {"config_operation": 0} if key == INCREMENTAL[1] else {}
        resources = [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": setting[0], "value": setting[1], **operation}],
            }
            for kind, name, setting in wanted
        ]
        request = message_from(APIS[key].request, {"resources": resources, "validate_only": only}, version)
        context = SimpleNamespace(
            api_key=key,
            api_version=version,
            correlation_id=CORRELATION_ID,
            client_id=client_id,
            principal=ANONYMOUS,
            peer_host="127.0.0.1",
            computed_s=0.0,
            sender="",
        )
        return handled(self.node, handler, context, request)

    async def forwarded(self, key: int) -> Any:
        """Wait for the forwarded request. Returns its header and the request."""
        while self.channel.request is None:
            await asyncio.sleep(0)
        asked = self.channel.request
        assert isinstance(asked, EnvelopeRequest)
        data = bytes(asked.request_data)
        header = decode_request_header(data, 0, len(data))
        assert (header.api_key, header.correlation_id) == (key, CORRELATION_ID)
        return header, decode(APIS[key].request, header.api_version, data, header.body_pos)

    def answer(self, key: int, version: int, *told: Told) -> None:
        responses = [
            AlterConfigsResourceResponse(
                resource_type=kind, resource_name=name, error_code=error, error_message=message
            )
            for kind, name, error, message in told
        ]
        header = CORRELATION_ID.to_bytes(4, "big") + b"\0"
        body = bytes(encode(APIS[key].response(responses=responses), version))
        self.channel.answer(EnvelopeResponse(response_data=header + body))


def codes(response: Any) -> list[tuple[int, str, int]]:
    return [(each.resource_type, each.resource_name, each.error_code) for each in response.responses]


async def test_the_brokers_own_loggers_are_its_own_to_set_and_the_rest_is_the_controllers(
    tmp_path: Path,
) -> None:
    joined = Joined(await started(tmp_path))
    answer = joined.ask(INCREMENTAL, OTHERS, LEFT, OWN, client_id=None)
    assert logging.getLogger(LOGGER_NAME).level == logging.DEBUG
    header, request = await joined.forwarded(44)
    assert header.client_id is None
    assert [(each.resource_type, each.resource_name) for each in request.resources] == [(TOPIC, "t")]
    assert not request.validate_only
    joined.answer(44, 1, (TOPIC, "t", Error.INVALID_CONFIG, "no"))
    response = await answered(answer)
    assert codes(response) == [
        (BROKER, "2", Error.INVALID_REQUEST),
        (TOPIC, "t", Error.INVALID_CONFIG),
        (LOGGER, "1", Error.NONE),
    ]
    assert response.responses[1].error_message == "no"


async def test_with_nothing_left_no_request_is_forwarded(tmp_path: Path) -> None:
    joined = Joined(await started(tmp_path))
    assert codes(joined.ask(INCREMENTAL, OWN, only=True)) == [(LOGGER, "1", Error.NONE)]
    assert logging.getLogger(LOGGER_NAME).level == logging.NOTSET
    assert codes(joined.ask(LEGACY, OWN)) == [(LOGGER, "1", Error.INVALID_REQUEST)]
    assert joined.channel.request is None


async def test_the_old_way_goes_to_the_controller_too(tmp_path: Path) -> None:
    joined = Joined(await started(tmp_path))
    answer = joined.ask(LEGACY, OTHERS, LEFT, only=True)
    _, request = await joined.forwarded(33)
    assert request.validate_only
    joined.answer(33, 2, (TOPIC, "t", Error.NONE, None))
    assert codes(await answered(answer)) == [(BROKER, "2", Error.INVALID_REQUEST), (TOPIC, "t", Error.NONE)]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        (KafkaError(Error.REQUEST_TIMED_OUT), Error.REQUEST_TIMED_OUT),
        (EnvelopeResponse(error_code=int(Error.CLUSTER_AUTHORIZATION_FAILED)), Error.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"nonsense"), Error.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_without_the_controllers_answer_the_brokers_own_results_are_still_returned(
    tmp_path: Path, told: Any, error: Error
) -> None:
    joined = Joined(await started(tmp_path))
    answer = joined.ask(INCREMENTAL, OWN, LEFT)
    await joined.forwarded(44)
    joined.channel.answer(told)
    assert codes(await answered(answer)) == [(LOGGER, "1", Error.NONE), (TOPIC, "t", error)]


async def test_an_entry_that_the_controller_omits_is_an_error(tmp_path: Path) -> None:
    joined = Joined(await started(tmp_path))
    answer = joined.ask(INCREMENTAL, LEFT)
    await joined.forwarded(44)
    joined.answer(44, 1)
    assert codes(await answered(answer)) == [(TOPIC, "t", Error.UNKNOWN_SERVER_ERROR)]


async def test_a_client_that_has_gone_asks_nothing_any_more(tmp_path: Path) -> None:
    joined = Joined(await started(tmp_path))
    joined.ask(INCREMENTAL, LEFT)
    await joined.forwarded(44)
    second = joined.ask(INCREMENTAL, LEFT)
    assert isinstance(second, Later)
    second.abandon(lambda error: None)
    joined.answer(44, 1)
    assert joined.channel.request is None
