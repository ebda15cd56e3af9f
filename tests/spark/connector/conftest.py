from __future__ import annotations

import os
import re
import uuid

import pytest


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """barnabas; BARNABAS_CLIENTS_BOOTSTRAP names another broker, to judge these tests by Apache Kafka."""
    running = os.environ.get("BARNABAS_CLIENTS_BOOTSTRAP")
    return running or str(request.getfixturevalue("barnabas_bootstrap"))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses; the topic does not exist yet."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"
