"""Prints where every thread was when a test's time ran out, at the very end of a run: a pytest plugin.

pytest-timeout prints this in the middle of the output, where readers of a log's end don't find it. Here the main thread
comes last. Threads in the same place, such as idle ones of a pool, are listed together.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Generator
from types import FrameType

import pytest

SECTION = "where the threads were when the time ran out"
INNERMOST_FRAMES = 12

_stacks = pytest.StashKey[str]()


class Hangs:
    """The hangs of a run, in the process that prints its end."""

    def __init__(self) -> None:
        self._found: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._found += [
            (f"{report.when} of {report.nodeid}", text) for name, text in report.sections if name == SECTION
        ]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        yield  # the other plugins print first
        for where, text in self._found:
            terminalreporter.section(f"{SECTION}: {where}", sep="-")
            terminalreporter.write_line(text)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Hangs())


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Generator[None, object, object]:
    is_set = yield
    told = signal.getsignal(signal.SIGALRM)
    if callable(told):

        def time_is_up(number: int, frame: FrameType | None) -> None:
            __tracebackhide__ = True
            item.stash[_stacks] = stacks(frame)
            told(number, frame)

        signal.signal(signal.SIGALRM, time_is_up)
    return is_set


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _stacks in item.stash:
        report.sections.append((SECTION, item.stash[_stacks]))
        del item.stash[_stacks]
    return report


def stacks(of_main: FrameType | None) -> str:
    """Return the innermost frames of all threads. `of_main` is the main thread's interrupted frame."""
    main = threading.main_thread()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    by_place: dict[str, list[str]] = {}
    for ident, frame in sys._current_frames().items():
        if ident != main.ident:
            by_place.setdefault(_place(frame), []).append(names.get(ident, f"thread {ident}"))
    found = [f"{', '.join(sorted(threads))}:\n{place}" for place, threads in by_place.items()]
    if of_main is not None:
        found.append(f"{main.name}:\n{_place(of_main)}")
    return "\n".join(found)


def _place(frame: FrameType) -> str:
    return "".join(traceback.format_list(traceback.extract_stack(frame)[-INNERMOST_FRAMES:]))
