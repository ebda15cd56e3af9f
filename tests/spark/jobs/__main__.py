"""`python -m tests.spark.jobs`: runs each of five jobs once undisturbed, and then with random kills on either broker.

The victims are Python workers, executors, the driver and the broker. Each job's output topics are also deleted and
created again while it runs. The exit status is 1 if the sink lost or doubled a record.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import traceback
from pathlib import Path

from tests.spark.jobs.queries import KINDS
from tests.spark.jobs.trial import Trial, Written
from tests.spark.kills import brokers, plan
from tests.spark.kills.outputs import difference
from tests.spark.kills.plan import Kill
from tests.spark.kills.saying import print_table, say
from tests.spark.kills.supervisor import Run

VICTIMS = {"worker": 6, "executor": 5, "driver": 2, "broker": 7, "topic": 1}
"""How often each is killed in each job. A driver costs most, since its JVM has to start. With `topic` the driver is
killed, too, and the job's output topics are made again before it starts."""
LAST = 4
CLUSTER = "local-cluster[2,1,512]"
HEADER = [
    "job",
    "broker",
    "batches",
    *(f"{victim}s" for victim in VICTIMS),
    "amid",
    "writing",
    "restarts",
    "more tries",
    "records",
    "doubled",
    "lost",
    "took",
]


def main() -> int:
    options = _options()
    if options.folder:
        return _run_all(options, options.folder)
    with tempfile.TemporaryDirectory(prefix="jobs-") as name:
        return _run_all(options, Path(name))


def _run_all(options: argparse.Namespace, folder: Path) -> int:
    rows = [HEADER]
    sums: dict[str, Run] = {}
    good = True
    there = brokers.those_there_are(options.brokers)
    for kind in options.jobs:
        say(f"{kind}, undisturbed, on barnabas")
        run, expected = _trial(kind, "barnabas", options, folder / f"{kind}-undisturbed", [])
        say(f"{expected.total():,} records in {run.batches[kind]} batches, {run.took_s:.0f} s")
        for broker in there:
            kills = _kills(kind, options)
            say(f"{kind}, with {len(kills)} kills, on {broker}, seed {options.seed}")
            try:
                run, found = _trial(kind, broker, options, folder / f"{kind}-{broker}", kills)
            except Exception as error:  # one of ten runs failed, and the others are still worth making
                traceback.print_exc()
                good = False
                rows.append([kind, broker, f"{type(error).__name__}", *[""] * (len(HEADER) - 3)])
                continue
            doubled, lost = difference(found, expected)
            rows.append(_row(kind, broker, run, found.total(), doubled, lost))
            say("; ".join(f"{name} {cell}" for name, cell in zip(HEADER, rows[-1], strict=True)))
            _show(found - expected, "doubled")
            _show(expected - found, "lost")
            good &= (doubled, lost) == (0, 0) and bool(expected)
            sums.setdefault(broker, Run()).add(run)
    print()
    print_table(rows)
    for broker, run in sums.items():
        killed = ", ".join(f"{victim} {run.kills.get(victim, 0)}x" for victim in VICTIMS)
        print(f"{broker}: {sum(run.batches.values())} batches, {sum(run.kills.values())} kills ({killed})")
    print(f"\nThe output {'is equal, record for record' if good else 'differs'}.")
    return 0 if good else 1


def _kills(kind: str, options: argparse.Namespace) -> list[Kill]:
    """Leave out the last batches, so that each kill finds a batch to strike in."""
    counts = {**VICTIMS, **dict(options.kills)}
    seed = random.Random(f"{options.seed} {kind}").randrange(1 << 30)
    return plan.draw(seed, options.chunks - LAST * KINDS[kind].generations, counts)


def _trial(
    kind: str, broker: str, options: argparse.Namespace, folder: Path, kills: list[Kill]
) -> tuple[Run, Written]:
    count = KINDS[kind].generations
    generations = [
        KINDS[kind].make(options.seed + number, options.chunks // count, options.size)
        for number in range(count)
    ]
    # The undisturbed run has larger batches: the output must not depend on how the input is cut into batches.
    max_offsets = options.size if kills else 5 * options.size
    master = options.master if kills else "local[2]"
    folder.mkdir(parents=True)
    with brokers.running(broker, folder / "broker") as server:
        return Trial(kind, server, folder, generations, max_offsets, master, say).run(kills, options.seed)


def _row(kind: str, broker: str, run: Run, records: int, doubled: int, lost: int) -> list[str]:
    kills = [run.kills.get(victim, 0) for victim in VICTIMS]
    counts = [
        run.batches[kind],
        *kills,
        run.amid,
        run.writing,
        run.restarts,
        run.tries,
        records,
        doubled,
        lost,
    ]
    return [kind, broker, *(f"{count:,}" for count in counts), f"{run.took_s:.0f} s"]


def _show(records: Written, what: str) -> None:
    for record, count in list(records.items())[:5]:
        say(f"{what} {count}x: {record}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.jobs", description=__doc__)
    told = " ".join(f"{victim}={count}" for victim, count in VICTIMS.items())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", nargs="+", type=_count, default=[], help=f"in each job, instead of {told}")
    parser.add_argument(
        "--chunks", type=int, default=40, help="of a job's input, each of a batch (%(default)s)"
    )
    parser.add_argument("--size", type=int, default=60, help="records in a chunk (%(default)s)")
    parser.add_argument("--jobs", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--brokers", nargs="+", choices=list(brokers.MAKE), default=["barnabas", "kafka"])
    parser.add_argument("--master", default=CLUSTER, help="of Spark (%(default)s)")
    parser.add_argument("--folder", type=Path, help="keeps topics, checkpoints and logs; new, or empty")
    return parser.parse_args()


def _count(text: str) -> tuple[str, int]:
    victim, _, count = text.partition("=")
    if victim not in VICTIMS:
        raise ValueError(f"{victim} is none of {', '.join(VICTIMS)}")
    return victim, int(count)


if __name__ == "__main__":
    sys.exit(main())
