"""A line for each request at the level DEBUG, and none of it at another."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from broker.network import request_log
from broker.server import Server
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.straight import Straight
from tests.support.wire import Client

LOGGER, SET = 8, 0


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    yield
    request_log.log.setLevel(logging.NOTSET)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == request_log.log.name]


def client_of(node: Server) -> Client:
    return Client(Straight(node), client_id="me")


def test_a_line_names_the_client_the_request_and_the_outcome(
    node: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, request_log.log.name)
    names = [MetadataRequestTopic(name=name) for name in ("a", "b/c", "d", "e")]
    client_of(node).ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    [line] = lines(caplog)
    assert re.fullmatch(
        r"127\.0\.0\.1:1 client me: Metadata v9 "
        r"topics=\[\{name=a\}, \{name=b/c\}, \{name=d\}, and 1 more\] allow_auto_topic_creation=False: "
        r"UNKNOWN_TOPIC_OR_PARTITION \(3\), INVALID_TOPIC_EXCEPTION \(1\), \d+\.\d\d ms",
        line,
    )


async def test_an_answer_that_comes_later_has_its_line_when_it_comes(
    node: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, request_log.log.name)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"secret")]
    request = JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=protocols)
    await client_of(node).answer(request, 3)
    [line] = lines(caplog)
    assert "JoinGroup v3 group_id=g" in line
    assert "metadata=<6 bytes>" in line
    assert "secret" not in line


def test_values_of_settings_are_not_shown(node: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, request_log.log.name)
    config = IncrementalAlterableConfig(name="ssl.key.password", config_operation=SET, value="secret")
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name="a", configs=[config])
    client_of(node).ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    [line] = lines(caplog)
    assert "ssl.key.password" in line
    assert "secret" not in line


def test_a_handler_is_not_wrapped_while_nobody_wants_lines(node: Server) -> None:
    request_log.log.setLevel(logging.INFO)
    client = client_of(node)
    client.ask(MetadataRequest(topics=[]), 9)
    [route] = node.dispatcher._routes.values()
    assert route.handle.__module__ == "broker.network.turns"


def test_an_altered_level_applies_to_existing_connections(
    node: Server, caplog: pytest.LogCaptureFixture
) -> None:
    request_log.log.setLevel(logging.INFO)
    client = client_of(node)
    for level, more in (("DEBUG", 1), ("INFO", 0), ("DEBUG", 1)):
        config = IncrementalAlterableConfig(name=request_log.log.name, config_operation=SET, value=level)
        resource = IncrementalAlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=[config])
        client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        caplog.clear()
        client.ask(MetadataRequest(topics=[]), 9)
        assert len(lines(caplog)) == more
