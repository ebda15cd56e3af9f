"""`python -m tests.spark.clusters`: the three jobs on clusters, packages coming each way, and a table of the outcomes.

Ends with status 1 where an output differs from the input.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import barnabas
from tests.spark.clusters import standalone
from tests.spark.clusters.packages import Node, Way
from tests.spark.versions.jobs import KINDS
from tests.spark.versions.trial import Trial, attempt

EXECUTORS = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
LOCAL = "local-cluster[2,1,1024]"


def main() -> int:
    trials: dict[tuple[str, str], Trial] = {}
    with tempfile.TemporaryDirectory(prefix="clusters-") as name, barnabas.Broker() as broker:
        folder = Path(name)

        def take(cluster: str, master: str, way: Way, **settings: str) -> None:
            _say(f"{cluster}, {way.name}")
            jobs = folder / f"jobs-{len(trials)}"
            jobs.mkdir()
            given = [f"{key}={value}" for key, value in {**way.settings, **settings}.items()]
            environment = {"PYTHONPATH": "", **way.environment}
            prefix = f"clusters-{len(trials)}"
            trial = attempt(sys.executable, broker.bootstrap, jobs, prefix, environment, master, *given)
            trials[cluster, way.name] = trial
            print(_row(cluster, way.name, trial), flush=True)

        _say("making a node's environment")
        node = Node(folder)
        with standalone.running(folder) as master:
            for make in (node.by_py_files, node.by_wheels, node.by_archive):
                take("standalone, 2 workers", master, make(), **EXECUTORS)
        take(LOCAL, LOCAL, Way("this Python", {"PYSPARK_PYTHON": sys.executable}, {}))
    print("\n".join([f"| cluster | packages | {' | '.join(KINDS)} |", "| --- " * (2 + len(KINDS)) + "|"]))
    print("\n".join(_row(*way, trial) for way, trial in trials.items()))
    return 0 if all(trial.is_good for trial in trials.values()) else 1


_began_s = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _began_s:7.1f} s  {what}", flush=True)


def _row(cluster: str, way: str, trial: Trial) -> str:
    return f"| {cluster} | {way} | {' | '.join(trial.outcomes[kind] for kind in KINDS)} |"


if __name__ == "__main__":
    sys.exit(main())
