from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator

import pytest

import barnabas


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """Where the clients connect: one broker for all of them, who keep to topics of their own."""
    running = os.environ.get("BARNABAS_CLIENTS_BOOTSTRAP")
    if running:
        yield running
    else:
        with barnabas.Broker() as broker:
            yield broker.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic does not exist yet."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"
