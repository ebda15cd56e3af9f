"""Short rounds of the workload in `checker/`; `make checker` runs longer ones."""

from __future__ import annotations

from pathlib import Path

from tests.clients.checker.anomalies import find
from tests.clients.checker.history import Outcome
from tests.clients.checker.plan import (
    CRASH_A_CLIENT,
    KILL_A_CLIENT,
    KILL_THE_BROKER,
    PAUSE_A_CLIENT,
    STOP_A_CLIENT,
    Plan,
)
from tests.clients.checker.roles import CONSUMER, JAVA, copying, transacting
from tests.clients.checker.workload import ONE_BROKER, OneBroker, Workload
from tests.clients.java_programs import java_classes
from tests.clients.transactions import running_server

FAULTS = (CRASH_A_CLIENT, PAUSE_A_CLIENT, KILL_A_CLIENT, KILL_THE_BROKER, CRASH_A_CLIENT, STOP_A_CLIENT)


def test_clients_see_no_anomaly_though_they_and_the_broker_crash(tmp_path: Path) -> None:
    check(Plan(seed=1, operations=250, faults=FAULTS), tmp_path)


def test_neither_do_javas_in_the_second_version_of_transactions(needs_kafka: object, tmp_path: Path) -> None:
    """One that writes and reads, and one that copies: a JVM each, and one for whoever takes over."""
    faults = (PAUSE_A_CLIENT, KILL_THE_BROKER, CRASH_A_CLIENT)
    roles = (*transacting(1, [JAVA]), copying(JAVA, CONSUMER))
    check(Plan(seed=2, operations=120, roles=roles, java=str(java_classes()), faults=faults), tmp_path)


def check(plan: Plan, folder: Path) -> None:
    with running_server(folder / "server", **ONE_BROKER) as server:
        history = Workload(OneBroker(server), plan).run()

    assert find(history) == {}
    done = [operation for operation in history if operation.outcome is Outcome.OK]
    assert len(done) > plan.operations / 2
    assert sum(1 for operation in done for _record in operation.records) > plan.operations / 2
