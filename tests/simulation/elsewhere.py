"""Seeds that another process plays, with another seed for the hashes of strings."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence


def digests_elsewhere(module: str, seeds: Sequence[int]) -> list[str]:
    """Return the digests of the histories that the module's `simulate` makes of the seeds. This process has its own
    seed for hashes, or the one that it was given."""
    program = f"from {module} import simulate\nfor seed in {[*seeds]}: print(simulate(seed).history.digest)"
    hash_seed = "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2"
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
