"""Transactions with Java's clients: the checks of `java/TransactionChecks.java`, in each of the protocol's versions.

Java's producer speaks the second version (KIP-890) where the cluster's transaction.version is 2, as it is by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.clients.java_programs import SOURCES, run_java
from tests.clients.transaction_readers import READERS
from tests.clients.transactions import (
    HISTORY,
    ISOLATION_LEVELS,
    VISIBLE,
    running_server,
    write_history,
    written_by,
)
from tests.support.apache_kafka import tool

CHECKS = re.findall(r"@Check\s+public void (\w+)\(", (SOURCES / "TransactionChecks.java").read_text())


# One worker of xdist gets all checks of a version, since each would start a JVM for them.
VERSIONS = [
    pytest.param(version, marks=pytest.mark.xdist_group(f"java_transactions_{version}")) for version in (1, 2)
]


@dataclass(frozen=True, slots=True)
class Run:
    """What each check came to, "ok" or what went wrong; and the topic that the program wrote HISTORY to."""

    bootstrap: str
    outcomes: dict[str, str]
    written: str


@pytest.fixture(scope="module")
def checked(
    request: pytest.FixtureRequest, needs_kafka: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    """A run of the program against a broker whose transaction.version is the parameter."""
    version = request.param
    with running_server(tmp_path_factory.mktemp("transactional")) as server:
        if version != 2:
            level = ("--feature", f"transaction.version={version}")
            tool("features", "--bootstrap-server", server.bootstrap, "downgrade", *level)
        written, by_another = written_by("java"), written_by("confluent-kafka")
        write_history(server.bootstrap, by_another)
        history = "\n".join(",".join(step) for step in HISTORY)
        printed = run_java(
            "TransactionChecks",
            *(server.bootstrap, str(version), history, written, by_another),
        )
        outcomes = dict(line.split("\t", 1) for line in printed.splitlines() if "\t" in line)
        yield Run(server.bootstrap, outcomes, written)


@pytest.mark.parametrize("checked", VERSIONS, indirect=True)
@pytest.mark.parametrize("check", CHECKS)
def test_with_javas_clients(check: str, checked: Run) -> None:
    assert checked.outcomes[check] == "ok"


@pytest.mark.parametrize("checked", VERSIONS, indirect=True)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_other_clients_read_javas_records_correctly(checked: Run, reader: str, isolation_level: str) -> None:
    assert checked.outcomes["itsHistoryOfOverlappingTransactionsIsReadAsItShould"] == "ok"
    assert READERS[reader](checked.bootstrap, checked.written, isolation_level) == VISIBLE[isolation_level]
