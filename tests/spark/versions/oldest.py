"""`python -m tests.spark.versions.oldest`: the oldest PySpark that is supported, beside the one that is installed.

It is only PySpark itself, in a folder that PYTHONPATH puts ahead: all else fits both.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.installing import install

OLDEST = "4.0.0"
FOLDER = Path(sys.prefix) / f"pyspark-{OLDEST}"


def is_fetched() -> bool:
    """Whether all of it is there."""
    return FOLDER.exists()


def environment() -> dict[str, str]:
    """What a process needs to run on it."""
    return {"PYTHONPATH": str(FOLDER)}


def main() -> int:
    """0 once it is there with its connector; else pip's status, or the connector's."""
    if not is_fetched():
        partly = FOLDER.with_suffix(".part")
        shutil.rmtree(partly, ignore_errors=True)
        print(f"Installing the oldest PySpark that is supported, {OLDEST}, into {FOLDER}, once.", flush=True)
        status = install(["--no-compile", "--no-deps", "--target", str(partly), f"pyspark=={OLDEST}"])
        if status:
            return status
        partly.rename(FOLDER)
    connector = [sys.executable, "-m", "barnabas.spark.connector"]
    return subprocess.run(connector, env={**os.environ, **environment()}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
