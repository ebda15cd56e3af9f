"""Workers send one report instead of three for a passed test: a pytest plugin.

pytest-xdist sends each report from process to process, and the beginning of each test. For ten thousand tests, most of
which take a millisecond, that is a tenth of their cost. If more is asked for, such as the duration of each part, all
reports are sent.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


def all_are_asked_for(config: pytest.Config) -> bool:
    """Return True for a report in XML, for durations, or for the output of passed tests."""
    option = config.option
    return bool(option.xmlpath or option.durations is not None or {*"AP"} & {*option.reportchars})


def is_told(report: pytest.TestReport) -> bool:
    """Return False for the setup and teardown of a test if they went well."""
    return report.when == "call" or not report.passed


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if not hasattr(item.config, "workerinput") or all_are_asked_for(item.config):
        return None  # as always
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if is_told(report):
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
