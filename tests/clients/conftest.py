from __future__ import annotations

import os
import re
import uuid
from collections.abc import Generator, Iterator

import pytest

import barnabas
from tests.clients.transactions import running_server
from tests.support.kafka_server import Server
from tests.support.unclosed import collect_unclosed_sockets


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    yield
    collect_unclosed_sockets()


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """The clients' broker. All of them share it, and each keeps to its own topics."""
    running = os.environ.get("BARNABAS_CLIENTS_BOOTSTRAP")
    if running:
        yield running
    else:
        with barnabas.Broker() as broker:
            yield broker.bootstrap


@pytest.fixture(scope="session")
def transactional_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker that soon ends transactions whose time is up (`clients.transactions`)."""
    with running_server(tmp_path_factory.mktemp("transactional")) as server:
        yield server


@pytest.fixture(scope="session")
def transactional(request: pytest.FixtureRequest) -> str:
    """The broker of clients with transactions: `transactional_server`."""
    running = os.environ.get("BARNABAS_CLIENTS_BOOTSTRAP")
    return running or request.getfixturevalue("transactional_server").bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic does not exist yet."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"
