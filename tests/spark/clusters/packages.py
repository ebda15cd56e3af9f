"""How packages come to the executors' Python, each way as Spark's documents have it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PATIENCE_S = 1200.0
# What is compiled, and so can't come as an archive that Python imports from.
COMPILED = ["numpy", "pandas<3", "pyarrow", "crc32c"]


class Way(NamedTuple):
    """environment: of the driver, where PYSPARK_PYTHON names the executors' Python. settings: Spark's."""

    name: str
    environment: dict[str, str]
    settings: dict[str, str]


class Node:
    """A Python environment as a node of a cluster has one, with neither barnabas nor kafka-python at first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._home = folder / "node"
        subprocess.run(
            [sys.executable, "-m", "venv", "--copies", str(self._home)], check=True, timeout=PATIENCE_S
        )
        self._pip(self._home, "install", *COMPILED)
        wheels = folder / "wheels"
        self._pip(self._home, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(ROOT), "kafka-python<3.1")
        self._wheels = sorted(wheels.iterdir())

    def by_py_files(self) -> Way:
        """`--py-files`: wheels of pure Python are archives that Python imports from, by the name of .zip."""
        zips = [shutil.copy(wheel, wheel.with_suffix(".zip")) for wheel in self._wheels]
        python = str(self._home / "bin" / "python")
        settings = {"spark.submit.pyFiles": ",".join(map(str, zips))}
        return Way("--py-files", {"PYSPARK_PYTHON": python}, settings)

    def by_wheels(self) -> Way:
        """The wheels installed on the nodes."""
        self._pip(self._home, "install", "--no-deps", *map(str, self._wheels))
        return Way("wheel on the nodes", {"PYSPARK_PYTHON": str(self._home / "bin" / "python")}, {})

    def by_archive(self) -> Way:
        """`--archives`: the whole environment, which each executor unpacks. After `by_wheels`.

        Of a plain `.tar` Spark loses the right to execute Python. It refuses entries of the name `./` there, and links
        to what lies outside, as a virtual environment's Python is.
        """
        archive = self._folder / "environment.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as file:
            for path in sorted(self._home.iterdir()):
                file.add(path, path.name)
        settings = {"spark.archives": f"{archive}#environment"}
        return Way("--archives", {"PYSPARK_PYTHON": "./environment/bin/python"}, settings)

    def _pip(self, home: Path, *arguments: str) -> None:
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, *arguments], check=True, timeout=PATIENCE_S)
