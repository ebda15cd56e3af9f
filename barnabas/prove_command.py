"""`barnabas prove`: tries a program that consumes, transforms and produces at each step of the protocol."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.child import BrokerError
from barnabas.proving.hazards import Thoroughness
from barnabas.proving.reports import junit, line, page, summary
from barnabas.proving.trials import MOST_HAZARDS, CannotProveError, Trial, prove

if TYPE_CHECKING:
    from barnabas.broker import Broker
    from barnabas.cluster import Cluster

_EPILOG = """
barnabas prove --input orders=orders.txt --output bills -- python billing.py
barnabas prove --quick --input orders=orders.jsonl --output bills --junit report.xml -- java -jar billing.jar

The program finds the broker's address in BARNABAS_BOOTSTRAP, and in place of {bootstrap} in its arguments. It ends with
status 0 once it has done everything, or is stopped once it is idle. If it ends with another status, it is restarted.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit status: 0 if the outcome was the same in every run, 1 if it wasn't or nothing
    could be tried, 2 for wrong use."""
    parser = _parser()
    own, command = _split(arguments)
    options = parser.parse_args(own)
    if not command:
        parser.error("the program to try goes after --")
    if options.brokers < 1:
        parser.error("--brokers: at least one")
    try:
        inputs = [_input(said) for said in options.input]
        for report in filter(None, (options.html, options.junit)):
            report.touch()  # now, and not only after all runs, it turns out whether it can be written
    except OSError as error:
        parser.error(str(error))

    def seed(kafka: Broker | Cluster) -> None:
        for topic, file in inputs:
            _written(kafka.bootstrap, topic, file)

    def told(trial: Trial) -> None:
        print(line(trial), flush=True)

    how = (
        Thoroughness.QUICK
        if options.quick
        else Thoroughness.THOROUGH
        if options.thorough
        else Thoroughness.NORMAL
    )
    try:
        proof = prove(
            command,
            outputs=options.output,
            inputs=[topic for topic, _ in inputs],
            seed=seed,
            brokers=options.brokers,
            how=how,
            most=options.most,
            idle_s=options.idle,
            timeout_s=options.timeout,
            told=told,
        )
    except (CannotProveError, BrokerError, OSError) as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return 1
    print(summary(proof))
    if options.html:
        options.html.write_text(page(proof), "utf-8")
    if options.junit:
        options.junit.write_text(junit(proof), "utf-8")
    return 0 if proof.holds else 1


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return our own arguments, and the program's command."""
    given = [*arguments]
    at = given.index("--") if "--" in given else len(given)
    return given[:at], given[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas prove",
        usage="barnabas prove [options] --output TOPIC -- COMMAND...",
        description="Tests whether a program is exactly once: runs it undisturbed, then with each hazard at each step.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--input",
        metavar="TOPIC=FILE",
        action="append",
        default=[],
        help="file of its records, one per line; .jsonl as `barnabas consume --json` writes it; may be repeated",
    )
    parser.add_argument(
        "--output",
        metavar="TOPIC",
        action="append",
        required=True,
        help="a topic whose records are compared; may be repeated",
    )
    parser.add_argument(
        "--brokers",
        type=int,
        default=1,
        metavar="N",
        help="try it on a cluster of N brokers (default: one broker)",
    )
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="only the hazards that find the most mistakes")
    extent.add_argument(
        "--thorough", action="store_true", help="hazards at each request, not only at one of each kind"
    )
    parser.add_argument("--most", type=int, default=MOST_HAZARDS, metavar="N", help="try N hazards at most")
    parser.add_argument(
        "--idle",
        type=float,
        default=8.0,
        metavar="S",
        help="stop the program after S idle seconds (default: 8)",
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="time limit of one run (default: 60 s)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as an HTML page")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write the report as JUnit XML")
    return parser


def _input(said: str) -> tuple[str, Path]:
    """Split TOPIC=FILE. Raises OSError if the file can't be read."""
    topic, _, name = said.partition("=")
    file = Path(name or f"{topic}.txt")
    file.open().close()
    return topic, file


def _written(bootstrap: str, topic: str, file: Path) -> None:
    """Write the file's records to the topic with `barnabas produce`. Raises CannotProveError."""
    form = ["--json", "--any-partition"] if file.suffix == ".jsonl" else []
    command = [sys.executable, "-m", "barnabas", "produce", topic, str(file), "--bootstrap", bootstrap, *form]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotProveError(done.stderr.strip())
