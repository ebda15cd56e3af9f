"""The programs and tests of docs/security.md, as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "security.md").read_text("utf-8"), re.DOTALL)
PLUGIN = ("-p", "no:cacheprovider", "-p", "no:barnabas", "-p", "barnabas.pytest_plugin")


def program_with(text: str) -> str:
    (found,) = (each for each in PROGRAMS if text in each)
    return found


def test_the_first_program_prints_what_the_document_says(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="needs the extra security")
    program = tmp_path / "program.py"
    program.write_text(program_with("print(broker.explain_denial())"))
    command = [sys.executable, str(program)]
    printed = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120
    )
    told = re.sub(r"127.0.0.1:\d+", "127.0.0.1:41117", printed.stdout)
    assert told.strip(), printed.stderr
    assert told in (ROOT / "docs" / "security.md").read_text("utf-8")


@pytest.mark.parametrize("text", ["test_orders_are_sent", "test_alice_loses_her_right_amid_a_transaction"])
def test_the_tests_of_the_document_pass(tmp_path: Path, text: str) -> None:
    (tmp_path / "test_it.py").write_text(program_with(text))
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, "test_it.py"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stdout


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
