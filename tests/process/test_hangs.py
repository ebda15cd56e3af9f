"""If a test runs out of time, the end of the output says where each thread was."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

@pytest.fixture
def never_ends():
    yield
    working = threading.Barrier(3)
    done = threading.Event()
    with ThreadPoolExecutor(2, thread_name_prefix="flushing") as lane:
        for _ in range(2):
            lane.submit(work, working, done)
        working.wait()
        try:
            wait_for_what_never_comes()
        finally:
            done.set()

def work(working, done):
    working.wait()
    done.wait()

def wait_for_what_never_comes():
    signal.raise_signal(signal.SIGALRM)

def test_one(never_ends):
    pass
"""


@pytest.mark.parametrize("workers", ["0", "1"])
def test_the_threads_places_are_printed_last(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(TESTS)
    plugins = ("-p", "pytest_timeout", "-p", "xdist", "-p", "tests.support.hangs")
    outcome = pytester.runpytest_subprocess(*plugins, "--timeout", "100", "-n", workers)
    outcome.assert_outcomes(passed=1, errors=1)
    outcome.stdout.fnmatch_lines(
        [
            "* short test summary info *",
            "ERROR *::test_one*",
            "*where the threads were when the time ran out: teardown of *::test_one*",
            "flushing_*:",
            "*, in work",
            "MainThread:",
            "*wait_for_what_never_comes()",
            "*= 1 passed, 1 error in *",
        ]
    )
