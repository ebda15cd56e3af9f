"""A broker that ends by SIGKILL while it buries dead letters: `python -m tests.crash.doomed_burial PLAN ARGS...`.

The plan is that of `doomed_broker`, but its points are of the share coordinator's log and of the queue alone, and say
which: `append dlq.t-0/*.log`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from tests.crash.burials import QUEUE
from tests.crash.doomed_broker import ask_before_each_operation, killer, recorder
from tests.crash.doomed_coordinator import LOOKING, PASSED_OVER

STATES = "__share_group_state-0"
WATCHED = (STATES, f"{QUEUE}-0")


def point_of(operation: str, path: str) -> str:
    """PASSED_OVER for all other folders, and for who just looks."""
    folder, name = os.path.split(path)
    if operation in LOOKING or os.path.basename(folder) not in WATCHED:
        return PASSED_OVER
    return f"{operation} {os.path.basename(folder)}/{re.sub(r'[0-9]{6,}', '*', name)}"


def main() -> int:
    plan = json.loads(sys.argv[1])
    sys.argv[1:2] = []
    if "record" in plan:
        ask_before_each_operation(recorder(plan["record"], point_of))
    elif "point" in plan:
        ask_before_each_operation(killer(plan["point"], plan["count"], plan["torn"], point_of))
    from broker.__main__ import main as run_broker

    run: Callable[[], int] = run_broker
    return run()


if __name__ == "__main__":
    assert Path.cwd().joinpath("storage").is_dir()
    sys.exit(main())
