"""What a worker reports about a test."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from tests.support import fewer_reports

LITTLE = {"xmlpath": None, "durations": None, "reportchars": "a"}


@pytest.mark.parametrize("asked", [{"xmlpath": "of.xml"}, {"durations": 0}, {"reportchars": "fA"}])
def test_a_user_who_asks_for_more_than_failures_gets_every_report(asked: dict[str, Any]) -> None:
    few, many = (SimpleNamespace(option=argparse.Namespace(**option)) for option in (LITTLE, LITTLE | asked))
    assert not fewer_reports.all_are_asked_for(few)  # type: ignore[arg-type]
    assert fewer_reports.all_are_asked_for(many)  # type: ignore[arg-type]


@pytest.mark.parametrize("outcome", ["passed", "failed", "skipped"])
@pytest.mark.parametrize("when", ["setup", "call", "teardown"])
def test_only_a_successful_setup_and_teardown_are_not_reported(
    when: Literal["setup", "call", "teardown"], outcome: Literal["passed", "failed", "skipped"]
) -> None:
    report = pytest.TestReport("a test", ("a file", 1, "a test"), {}, outcome, None, when)
    assert fewer_reports.is_told(report) is (when == "call" or outcome != "passed")


@pytest.mark.parametrize(
    ("fails", "told"), [(None, ["call"]), ("setup", ["setup"]), ("teardown", ["call", "teardown"])]
)
def test_a_worker_runs_a_test_whole_and_sends_the_reports_that_matter(
    fails: str | None, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whens = ["setup"] if fails == "setup" else ["setup", "call", "teardown"]
    reports = [SimpleNamespace(when=when, passed=when != fails) for when in whens]
    ran: list[object] = []

    def run(item: object, *, log: bool, nextitem: object) -> list[Any]:
        ran.append((item, log, nextitem))
        return reports

    monkeypatch.setattr(fewer_reports, "runtestprotocol", run)
    heard: list[str] = []
    hook = SimpleNamespace(
        pytest_runtest_logreport=lambda report: heard.append(report.when),
        pytest_runtest_logfinish=lambda nodeid, location: heard.append(nodeid),
    )
    config = SimpleNamespace(option=argparse.Namespace(**LITTLE), workerinput={})
    item: Any = SimpleNamespace(config=config, ihook=hook, nodeid="a test", location=())
    assert fewer_reports.pytest_runtest_protocol(item, None)
    assert (heard, ran) == ([*told, "a test"], [(item, False, None)])
    del config.workerinput
    assert fewer_reports.pytest_runtest_protocol(item, None) is None
