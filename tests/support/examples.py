"""How many examples a property is tried with: few with each run of the tests, and as many times more as one likes.

`EXAMPLES=40` tries forty times as many (`make property`). Which ones these are does not change from run to run.
"""

from __future__ import annotations

import os

TIMES = int(os.environ.get("EXAMPLES", "1"))


def examples(count: int) -> int:
    """So many, times what was asked for."""
    return count * TIMES
