"""The tests of docs/testing.md, as they stand there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.test_security_document import PLUGIN, environment

pytest.importorskip("confluent_kafka", reason="needs confluent-kafka")

DOCUMENT = Path(__file__).parents[2] / "docs" / "testing.md"


PROGRAMS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_the_tests_of_the_document_pass(tmp_path: Path, number: int) -> None:
    (tmp_path / "test_it.py").write_text(PROGRAMS[number])
    command = [sys.executable, "-m", "pytest", "-q", *PLUGIN, "test_it.py"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 0, ended.stdout
