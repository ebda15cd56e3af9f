"""The programs of `examples/control` run as tests would run them. They are in Java, Go and JavaScript, and arm a
broker's faults over HTTP."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import barnabas
from tests.support.requirements import need_program

EXAMPLES = Path(__file__).parents[2] / "examples" / "control"
PATIENCE_S = 240.0


def run(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] = os.environ) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def played(command: Sequence[str | Path], folder: Path) -> str:
    """Run the command with a broker of its own, and return what it prints."""
    with barnabas.Broker() as broker:
        told = {
            "BARNABAS_BOOTSTRAP": broker.bootstrap,
            "BARNABAS_URL": broker.control_url,
            "BARNABAS_TOKEN": broker.control_token,
        }
        return run(command, folder, {**os.environ, **told})


def test_in_java(tmp_path: Path) -> None:
    mvn = need_program("mvn")
    need_program("javac")
    command = [mvn, "--batch-mode", "-f", EXAMPLES / "java", f"-DbuildDirectory={tmp_path}", "test"]
    assert "Tests run: 3, Failures: 0, Errors: 0, Skipped: 0" in played(command, tmp_path)


def test_in_go(tmp_path: Path) -> None:
    go = need_program("go")
    folder = shutil.copytree(EXAMPLES / "go", tmp_path / "go")
    run([go, "vet", "./..."], folder)
    told = played([go, "test", "-count=1", "-v", "./..."], folder)
    assert told.count("--- PASS") == 3


def test_in_javascript(tmp_path: Path) -> None:
    node, npm = need_program("node"), need_program("npm")
    folder = shutil.copytree(EXAMPLES / "javascript", tmp_path / "javascript")
    run([npm, "install", "--no-audit", "--no-fund", "--silent"], folder)
    told = played([node, "--test", "--test-reporter=tap"], folder)
    assert "# pass 2" in told


pytestmark = pytest.mark.timeout(PATIENCE_S + 60)
