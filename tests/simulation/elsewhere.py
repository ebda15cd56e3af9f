"""Seeds that another process plays, with another seed for the hashes of strings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def digests_elsewhere(module: str, seeds: Sequence[int]) -> list[str]:
    """Of the histories that the module's `simulate` makes of them. This process has a seed of its own for hashes, or
    the one that it was told."""
    program = f"from {module} import simulate\nfor seed in {[*seeds]}: print(simulate(seed).history.digest)"
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
