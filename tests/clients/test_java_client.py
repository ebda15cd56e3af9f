"""Kafka's own Java clients: the checks of `java/ClientChecks.java`, all run in one JVM."""

from __future__ import annotations

import re

import pytest

from tests.clients.java_programs import SOURCES, run_java

# One worker of xdist gets all of these, since each would start a JVM for them.
pytestmark = pytest.mark.xdist_group("java_client")

CHECKS = re.findall(r"@Check\s+public void (\w+)\(", (SOURCES / "ClientChecks.java").read_text())


@pytest.fixture(scope="module")
def outcomes(needs_kafka: object, bootstrap: str) -> dict[str, str]:
    """What each check came to: "ok", or what went wrong."""
    printed = run_java("ClientChecks", bootstrap)
    return dict(line.split("\t", 1) for line in printed.splitlines() if "\t" in line)


@pytest.mark.parametrize("check", CHECKS)
def test_with_javas_clients(check: str, outcomes: dict[str, str]) -> None:
    assert outcomes[check] == "ok"
