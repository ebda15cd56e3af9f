"""The page's files: small, our own or with their licences, and without code that turns text into markup."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from cli.console.app import STATIC, TYPES
from tests.cli.conftest import ROOT

MOST_BYTES = 300 * 1024
FROM_NPM = {
    "htm-preact-standalone-3.1.1.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    "uplot-1.6.32.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot-1.6.32.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""As they are in the packages htm 3.1.1 (preact/standalone.module.js) and uplot 1.6.32 (dist/uPlot.iife.min.js and
dist/uPlot.min.css), by SHA-256."""


def own_files() -> list[Path]:
    return [path for path in STATIC.iterdir() if path.is_file()]


def test_the_page_is_under_300_kilobytes() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) < MOST_BYTES


def test_libraries_are_as_their_packages_have_them_with_their_licences() -> None:
    vendor = STATIC / "vendor"
    for name, digest in FROM_NPM.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name
    there = {path.name for path in vendor.iterdir()}
    assert there == {*FROM_NPM, "htm.LICENSE", "preact.LICENSE", "uplot.LICENSE"}


def test_nothing_makes_markup_of_text_or_runs_it() -> None:
    dangerous = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\b|new Function"
    )
    for path in own_files():
        assert not dangerous.search(path.read_text("utf-8")), path.name
    page = (STATIC / "index.html").read_text("utf-8")
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page)


def test_nothing_is_asked_of_another_place() -> None:
    for path in own_files():
        addresses = re.findall(r"https?://[^\s\"'`)]+", path.read_text("utf-8"))
        assert [each for each in addresses if not each.startswith("http://www.w3.org/")] == [], path.name


def test_every_file_is_served_by_its_kind() -> None:
    kinds = {path.suffix for path in STATIC.rglob("*") if path.is_file()} - {".LICENSE"}
    assert kinds <= {*TYPES}


def test_nothing_of_it_is_imported_unless_requested() -> None:
    program = """
import sys
import cli.main, cli.inspect, cli.topics, cli.groups, cli.transactions
import broker.process.run, broker.starting, broker.server
wrong = {"starlette", "uvicorn", "cli.console.serving", "cli.console.app", "broker.process.console_process"}
assert not wrong & {*sys.modules}, wrong & {*sys.modules}
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
