"""`python -m tests.spark.versions`: the three jobs on all versions, and a table of what came of them.

Ends with status 1 where an output differs from the input.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import barnabas
from tests.spark.versions.environments import Combination, interpreter, make
from tests.spark.versions.jobs import KINDS
from tests.spark.versions.oldest import OLDEST
from tests.spark.versions.trial import Trial, attempt

PYSPARKS = (OLDEST, "4.0.5", "4.1.0", "4.1.4", "4.2.0", "4.2.1", "4.3.0")
PYTHONS = ("3.11", "3.12", "3.13")
KAFKA_PYTHONS = ("3.0.0", "3.0.6", "3.0.12")


def main() -> int:
    options = _options()
    rows = [["PySpark", "Python", "kafka-python", *KINDS]]
    good = True
    with tempfile.TemporaryDirectory(prefix="versions-") as name, barnabas.Broker() as broker:
        for number, combination in enumerate(_combinations(options.pysparks, options.pythons)):
            _say(f"PySpark {combination.pyspark}, Python {combination.python}, {combination.kafka_python}")
            found = interpreter(combination.python)
            if found is None:
                rows.append([*combination, *["not on this machine"] * len(KINDS)])
                continue
            trial = _tried(found, combination, broker.bootstrap, Path(name), number)
            good &= trial.is_good
            rows.append([*(trial.versions or combination), *(trial.outcomes[kind] for kind in KINDS)])
            print(_row(rows[-1]), flush=True)
    print("\n".join([_row(rows[0]), _row(["---"] * len(rows[0])), *map(_row, rows[1:])]))
    return 0 if good else 1


def _tried(found: str, combination: Combination, bootstrap: str, folder: Path, number: int) -> Trial:
    jobs = folder / f"jobs-{number}"
    jobs.mkdir()
    try:
        python = make(found, combination, folder / combination.python)
    except subprocess.CalledProcessError as error:
        said = str(error.stderr or error).strip().splitlines()
        return Trial((), dict.fromkeys(KINDS, f"can't be installed: {said[-1]}"))
    return attempt(python, bootstrap, jobs, f"versions-{number}", {"PYTHONPATH": ""})


def _combinations(pysparks: list[str], pythons: list[str]) -> list[Combination]:
    """Each PySpark on the first Python, oldest and newest on the others; and the newest with other kafka-pythons."""
    newest = KAFKA_PYTHONS[-1]
    found = [Combination(pyspark, pythons[0], newest) for pyspark in pysparks]
    ends = dict.fromkeys((pysparks[0], pysparks[-1]))
    found += [Combination(pyspark, python, newest) for python in pythons[1:] for pyspark in ends]
    found += [Combination(pysparks[-1], pythons[0], release) for release in KAFKA_PYTHONS[:-1]]
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.versions", description=__doc__)
    parser.add_argument("--pysparks", nargs="+", default=list(PYSPARKS), help="from the oldest (%(default)s)")
    parser.add_argument("--pythons", nargs="+", default=list(PYTHONS), help="(%(default)s)")
    return parser.parse_args()


_began_s = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _began_s:7.1f} s  {what}", flush=True)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
