"""How many examples a property is tried with: few in each run of the tests, and many on request.

`EXAMPLES=40` tries forty times as many (`make property`). The examples are the same in each run.
"""

from __future__ import annotations

import os

TIMES = int(os.environ.get("EXAMPLES", "1"))


def examples(count: int) -> int:
    """Return this count, times the requested factor."""
    return count * TIMES
