"""Workers tell of a test that passes by one report of three: a plugin of pytest's.

pytest-xdist sends each report from process to process, and that a test begins. Of ten thousand tests, most of which
take a millisecond, that is a tenth of what they cost. Who asks for more, such as how long each part took, is told all.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


def all_are_asked_for(config: pytest.Config) -> bool:
    """For a report in XML, for durations, for what passing tests printed."""
    option = config.option
    return bool(option.xmlpath or option.durations is not None or {*"AP"} & {*option.reportchars})


def is_told(report: pytest.TestReport) -> bool:
    """Nothing is said by a test's beginning and end that went well."""
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
