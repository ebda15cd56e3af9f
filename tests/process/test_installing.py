"""What an installation prints while pip runs."""

from __future__ import annotations

import sys

import pytest

from tests.support import installing

OF_PIP = """\
Obtaining file:///checkout
Collecting uvloop>=0.19 (from barnabas==0.1.0)
  Downloading uvloop-0.21.0-cp311-manylinux.whl.metadata (4.9 kB)
Collecting pyspark[sql]<4.4,>=4.0 (from barnabas==0.1.0)
  Downloading pyspark-4.3.0.tar.gz (434.2 MB)
  Downloading https://files/numpy-2.0.whl (18 MB)
  Downloading uvloop-0.21.0-cp311-manylinux.whl (4.0 MB)
Building wheels for collected packages: pyspark
  Building wheel for pyspark (pyproject.toml): started
Installing collected packages: py4j, uvloop, pyspark
Successfully installed py4j-0.10 uvloop-0.21.0 pyspark-4.3.0
"""
TOLD = """\
pip: finding out which packages are needed
pip: downloading pyspark-4.3.0.tar.gz (434.2 MB)
pip: downloading numpy-2.0.whl (18 MB)
pip: building what comes as source
pip: installing 3 packages
pip: installed
"""


def pip(status: int) -> list[str]:
    return [sys.executable, "-c", f"import sys; print(sys.argv[1], end=''); sys.exit({status})"]


def test_each_stage_and_each_large_file_is_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert installing.install([OF_PIP], pip(0)) == 0
    assert capfd.readouterr() == (TOLD, "")


def test_a_failing_pip_is_shown_in_full(capfd: pytest.CaptureFixture[str]) -> None:
    assert installing.install(["ERROR: no such package\n"], pip(3)) == 3
    assert capfd.readouterr() == ("", "ERROR: no such package\n\n")


def test_a_terminal_is_shown_pips_own_progress(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert installing.install([OF_PIP], pip(0)) == 0
    assert capfd.readouterr() == (OF_PIP, "")
