"""Consoles of each kind of Kafka, asked as a page asks them, and pages in a browser."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cli.conftest import ROOT, Kafka
from tests.cli.console.asking import Asking
from tests.support.ports import free_ports
from tests.support.requirements import need_program

ENDING_S = 20.0
BROWSER_TIMEOUT_MS = 60_000


@contextlib.contextmanager
def console_of(*arguments: object, host: str = "127.0.0.1", **environment: str) -> Iterator[Asking]:
    """Runs `barnabas …` with an address to listen on, and asks it over HTTP."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", *map(str, arguments), "--listen", f"{host}:{port}"],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found is not None, said
        yield Asking("127.0.0.1", port, found[0])
    finally:
        process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            process.stderr.close()


@pytest.fixture(scope="package")
def console(kafka: Kafka) -> Iterator[Asking]:
    """A console of this Kafka."""
    with console_of("console", "--bootstrap", kafka.bootstrap) as asking:
        yield asking


def chromium_path() -> str:
    """The path of the machine's browser. The test is skipped without a browser or a driver for it."""
    path = need_program("chromium")
    pytest.importorskip("playwright.sync_api", reason="needs playwright, which is not installed")
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python, which is not installed")
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser without a window. Its driver runs an event loop meanwhile, so tests of other modules can't have one."""
    path = chromium_path()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


OpenPage = Callable[..., Any]


@pytest.fixture
def open_page(chromium: Any) -> Iterator[OpenPage]:
    """Opens a new page. Errors in its scripts fail the test."""
    contexts = []
    wrong: list[str] = []

    def opened(url: str, **options: Any) -> Any:
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        context.set_default_timeout(BROWSER_TIMEOUT_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "console",
            lambda message: (
                wrong.append(message.text)
                if message.type == "error" and "Failed to load resource" not in message.text
                else None
            ),
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
