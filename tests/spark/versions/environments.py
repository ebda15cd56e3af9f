"""A Python of each version with the project's wheel and its extra `spark` alone, as somebody who installs it has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PATIENCE_S = 1200.0


class Combination(NamedTuple):
    """What is tried together: releases, and of Python the line, such as 3.11."""

    pyspark: str
    python: str
    kafka_python: str


def interpreter(line: str) -> str | None:
    """The path of a Python of this line on this machine."""
    candidates = [shutil.which(f"python{line}")]
    candidates += sorted(map(str, Path.home().glob(f".pyenv/versions/{line}.*/bin/python{line}")))
    for candidate in filter(None, candidates):
        # A shim of pyenv's may be there for a version that isn't chosen.
        tried = subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True, check=False)
        if tried.returncode == 0:
            return candidate
    return None


def make(interpreter: str, combination: Combination, folder: Path) -> Path:
    """The environment's Python. One that is there is changed to these releases.

    Raises subprocess.CalledProcessError, with what pip said.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", str(folder)], check=True, timeout=PATIENCE_S)
    wanted = [f"pyspark=={combination.pyspark}", f"kafka-python=={combination.kafka_python}"]
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--no-compile"]
    subprocess.run(
        [*install, f"{ROOT}[spark]", *wanted], check=True, capture_output=True, text=True, timeout=PATIENCE_S
    )
    return python
