"""The types and values that the front accepts as settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import barnabas
from tests.process.test_front import STAND_IN


@pytest.mark.parametrize("value", [None, object(), {"a": 1}, [1, 2], b"x"])
def test_a_setting_that_kafka_could_not_read_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match=r"num\.partitions="):
        barnabas.Broker(config={"num.partitions": value})


def test_settings_of_several_types_are_well_typed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import barnabas\n"
        "mixed = {'num.partitions': 3, 'log.dirs': 'y'}\n"
        "lists = {'a': ['x', 'y'], 'b': True, 'c': 0.5}\n"
        "barnabas.Broker(config=mixed)\n"
        "barnabas.Broker(config=lists)\n"
        "barnabas.Broker(config={'a': 3, 'b': 'y'})\n"
        "version: str = barnabas.__version__\n"
    )
    arguments = ["--strict", "--follow-imports=silent", "--cache-dir", tmp_path / "cache", program]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments],
        env={**os.environ, "MYPYPATH": str(STAND_IN.parents[2])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", barnabas.__version__)
    settings = tomllib.loads((STAND_IN.parents[2] / "pyproject.toml").read_text())
    assert settings["tool"]["hatch"]["version"]["path"] == "barnabas/__init__.py"
