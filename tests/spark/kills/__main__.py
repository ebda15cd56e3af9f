"""`python -m tests.spark.kills`: the pipeline over the whole year, undisturbed once and then killed, with either sink.

Ends with status 1 where the exactly-once sink lost or doubled a record, or the audit finds a gap in what it wrote.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from examples.flights_pipeline import data, feeder
from tests.spark.kills import brokers, flights, outputs, plan
from tests.spark.kills.outputs import PARTITIONS, Outputs, difference
from tests.spark.kills.saying import print_table, say
from tests.spark.kills.supervisor import ROOT, Run

PREFIX = "flights"
SINKS = {"exactly-once": ("barnabas.spark", []), "at-least-once": ("Spark's own", ["--at-least-once"])}


def main() -> int:
    options = _options()
    there = brokers.those_there_are(options.brokers)

    # 1. as it should be, in larger batches: how the input is cut up is not to be seen in the output
    say("undisturbed, on barnabas")
    run, expected, _ = _pipeline("barnabas", ["--max-offsets", "60000"], options, None)
    say(
        f"undisturbed: {expected.enriched.total():,} flights, {expected.delays.total():,} days in {run.took_s:.0f} s"
    )
    assert expected.enriched.total() >= data.FLIGHTS // options.every

    # 2. killed, with either sink on either broker
    first = expected.enriched.total() // options.max_offsets
    rows = [
        [
            "broker",
            "sink",
            "killed",
            "job restarts",
            "more tries",
            "flights doubled",
            "lost",
            "days doubled",
            "lost",
            "took",
        ]
    ]
    good = True
    for broker in there:
        for sink, arguments in (SINKS[name] for name in options.sinks):
            # In Spark's own sink Python has no part: its workers run the first query's function alone.
            with_workers = first if arguments else 2 * first
            kills = plan.draw(
                options.seed, 2 * first, dict.fromkeys(plan.VICTIMS, options.kills), with_workers
            )
            say(f"{len(kills)} kills, {sink} sink on {broker}, seed {options.seed}")
            run, found, is_sound = _pipeline(broker, arguments, options, (kills, first))
            enriched = difference(found.enriched, expected.enriched)
            days = difference(found.delays, expected.delays)
            killed = ", ".join(f"{victim} {run.kills.get(victim, 0)}×" for victim in plan.VICTIMS)
            rows.append([broker, sink, killed, f"{run.restarts}", f"{run.tries}"])
            rows[-1] += [f"{count:,}" for count in (*enriched, *days)] + [f"{run.took_s:.0f} s"]
            say(f"{sink} sink on {broker}: flights {enriched}, days {days}")
            good &= bool(arguments) or (enriched.is_none and days.is_none and is_sound)
    print()
    print_table(rows)
    if "exactly-once" in options.sinks:
        print(f"\nThe exactly-once sink's output {'is equal, record for record' if good else 'differs'}.")
    return 0 if good else 1


def _pipeline(
    broker: str, arguments: list[str], options: argparse.Namespace, kills: tuple[list[plan.Kill], int] | None
) -> tuple[Run, Outputs, bool]:
    """Feed the flights, run the job to its end, and read what it wrote. True if the audit has nothing against it."""
    with (
        tempfile.TemporaryDirectory(prefix="kills-") as name,
        brokers.running(broker, Path(name) / "broker") as server,
    ):
        folder = data.tables(Path(name) / "job")
        feeder.create_topics(server.bootstrap, [PREFIX, f"{PREFIX}-enriched", f"{PREFIX}-delays"], PARTITIONS)
        feeder.feed(server.bootstrap, PREFIX, data.flights(options.every), PARTITIONS)
        arguments = ["--prefix", PREFIX, "--max-offsets", str(options.max_offsets), *arguments]
        planned, first = kills or ([], 0)
        run = flights.supervisor(server, folder, arguments, first, say).run_through(planned, options.seed)
        is_sound = kills is None or _audit(server.bootstrap)
        return run, outputs.read(server.bootstrap, PREFIX), is_sound


def _audit(bootstrap: str) -> bool:
    """Print the audit's table; False with duplicates or gaps without a reason, or where there is no table."""
    command = [
        sys.executable,
        "-m",
        "barnabas.spark.audit",
        bootstrap,
        f"{PREFIX}-enriched",
        f"{PREFIX}-delays",
    ]
    audit = subprocess.run(
        [*command, "--key", "value"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    print(audit.stdout or audit.stderr[-2000:], flush=True)
    return audit.returncode == 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=15, help="of each: worker, driver, broker (%(default)s)")
    parser.add_argument("--every", type=int, default=1, help="take only every so many flights")
    parser.add_argument("--max-offsets", type=int, default=5_000, help="in a micro-batch (%(default)s)")
    parser.add_argument("--brokers", nargs="+", choices=list(brokers.MAKE), default=["barnabas", "kafka"])
    parser.add_argument("--sinks", nargs="+", choices=list(SINKS), default=list(SINKS))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
