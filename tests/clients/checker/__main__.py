"""`python -m tests.clients.checker`: rounds of the workload, each with its own faults, and the anomalies found in them.

Ends with status 1 at the first round with an anomaly. It leaves the history in a file, and beside it the output of a
cluster's nodes. With a cluster, it also compares the replicas' files at the end of each round.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import barnabas
from tests.clients.checker import share_round
from tests.clients.checker.anomalies import Found, find
from tests.clients.checker.cluster import CLUSTER_FAULTS, PATIENCE_S, SETTINGS, CheckedCluster
from tests.clients.checker.history import History
from tests.clients.checker.plan import FAULTS, OF_CLIENTS, Plan
from tests.clients.checker.roles import mixed
from tests.clients.checker.workload import ONE_BROKER, OneBroker, Served, Workload
from tests.clients.java_programs import java_classes
from tests.clients.transactions import running_server
from tests.support.apache_kafka import tool, why_unavailable
from tests.support.waiting import until


def main() -> int:
    options = _options()
    if options.kafka:
        os.environ["BARNABAS_CLIENTS_KAFKA"] = "1"
    if options.shares:
        return _shares(options)
    with tempfile.TemporaryDirectory() as folder:
        java = _java()
        faults = [*CLUSTER_FAULTS, *OF_CLIENTS] if options.cluster else FAULTS
        for number in range(options.rounds):
            seed = options.seed + number
            # Java speaks the second version of transactions where the cluster has it, librdkafka always the first.
            version = options.version or 2 - seed % 2
            chance = random.Random(seed)
            plan = Plan(
                seed=seed,
                operations=options.operations,
                roles=mixed(options.clients, chance, java=java is not None),
                java=java,
                faults=tuple(chance.choices(faults, k=options.faults)),
                waits=True,
            )
            for role in plan.roles:
                print(f"  {role}")
            print(f"seed {seed}, transaction.version {version}: {', '.join(plan.faults)}", flush=True)
            place = Path(folder, str(number))
            serving = _cluster(place) if options.cluster else _one_broker(place)
            if not _round(plan, version, serving, options.history):
                return 1
    print("No anomaly.")
    return 0


def _shares(options: argparse.Namespace) -> int:
    for number in range(options.rounds):
        plan = share_round.Plan(options.seed + number, options.faults)
        print(f"seed {plan.seed}", flush=True)
        with (
            tempfile.TemporaryDirectory() as folder,
            running_server(Path(folder), **share_round.SHARE_SETTINGS) as server,
        ):
            played = share_round.ShareRound(OneBroker(server), plan, say=print)
            found = played.run()
        print(played.summary)
        if found:
            options.history.write_text("\n".join(found) + "\n")
            print(f"{found[0]}\n{len(found)} anomalies, in {options.history}.")
            return 1
    print("No anomaly.")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.checker", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the first round; the next has the next"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--operations", type=int, default=3_000, help="transactions in a round")
    parser.add_argument(
        "--clients",
        type=int,
        default=6,
        help="that do transactions, of all libraries by turns; others are beside",
    )
    parser.add_argument("--faults", type=int, default=20, help="in a round")
    parser.add_argument(
        "--version", type=int, choices=(1, 2), help="of transactions; by turns where not given"
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="three brokers and their controller, which are killed, stopped, paused and cut off",
    )
    parser.add_argument(
        "--shares",
        action="store_true",
        help="share consumers instead, of one broker; --faults: how often it is killed in a round",
    )
    parser.add_argument("--kafka", action="store_true", help="with Apache Kafka, to judge the judge")
    parser.add_argument(
        "--history", type=Path, default=Path("checked-history.txt"), help="what to leave behind"
    )
    return parser.parse_args()


def _java() -> str | None:
    reason = why_unavailable()
    if reason:
        print(f"Kafka's Java clients can't be had ({reason}): they are left out.")
        return None
    return str(java_classes())


@contextlib.contextmanager
def _cluster(folder: Path) -> Iterator[CheckedCluster]:
    with barnabas.Cluster(brokers=3, config=SETTINGS, data=folder) as cluster:
        yield CheckedCluster(cluster)


@contextlib.contextmanager
def _one_broker(folder: Path) -> Iterator[OneBroker]:
    with running_server(folder, **ONE_BROKER) as server:
        yield OneBroker(server)


def _round(
    plan: Plan,
    version: int,
    serving: contextlib.AbstractContextManager[Served],
    left_behind: Path,
) -> bool:
    """Run one round. Return whether all went well."""
    began_s = time.monotonic()
    with serving as server:
        if version != 2:
            tool(
                "features",
                "--bootstrap-server",
                server.bootstrap,
                "downgrade",
                "--feature",
                f"transaction.version={version}",
            )
        workload = Workload(
            server, plan, say=lambda what: print(f"{time.monotonic() - began_s:7.1f} s  {what}", flush=True)
        )
        try:
            found = find(workload.run())
            if isinstance(server, CheckedCluster):
                until(
                    lambda: not server.differing(workload.keys), "the replicas' files are equal", PATIENCE_S
                )
        except (AssertionError, subprocess.SubprocessError) as error:
            found = {"stuck": [str(error)], **find(workload.history)}
        if found and isinstance(server, CheckedCluster):
            left_behind.with_suffix(".log").write_text(server.log)
    for role, (clients, outcomes) in sorted(workload.outcomes().items()):
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items()))
        print(f"  {role}: {counts}, by {clients} clients")
    print(f"{time.monotonic() - began_s:7.1f} s  {_summary(found)}", flush=True)
    if found:
        left_behind.write_text(_told(workload.history, found))
        print(f"The history is in {left_behind}.")
    return not found


def _summary(found: Found) -> str:
    return ", ".join(f"{len(sentences):,} × {name}" for name, sentences in found.items()) or "no anomaly"


def _told(history: History, found: Found) -> str:
    lines = [f"{name}: {sentence}" for name, sentences in found.items() for sentence in sentences]
    return "\n".join([*lines, "", *map(str, history)]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
