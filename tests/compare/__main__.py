"""Comparing by hand: `python -m tests.compare --help`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from broker.handlers import HANDLERS

from . import recordings
from .clusters import barnabas_for, kafka_for
from .diff import differences
from .known_differences import compared, expected_of_barnabas
from .play import Script, load_scripts, play
from .scene import Broker


class _Running:
    """A broker that somebody else started."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def data(self) -> Path:
        raise OSError("nobody says where its folder is")

    def restart(self, *, kill: bool) -> None:
        raise OSError("not ours to restart")


def _scripts(patterns: list[str]) -> list[Script]:
    found = load_scripts().values()
    return [s for s in found if not patterns or any(fnmatchcase(s.key, pattern) for pattern in patterns)]


def _show(args: argparse.Namespace) -> None:
    for script in _scripts(args.scripts):
        print(f"# {script.key}")
        for entry in play(script, _Running(args.port)):
            print(" ", json.dumps(entry, ensure_ascii=False))


def _compare(args: argparse.Namespace) -> None:
    for script in _scripts(args.scripts):
        found = differences(play(script, _Running(args.kafka)), play(script, _Running(args.barnabas)))
        print(f"# {script.key}: {len(found)} cases differ")
        print("\n".join(found), end="\n" if found else "")


def _with_brokers(
    scripts: list[Script], *starts: Callable[[Path, str], contextlib.AbstractContextManager[Broker]]
) -> Iterator[tuple[Script, list[Broker]]]:
    """Yield each script with its brokers. One set of properties comes after the other, because a cluster of Kafka's
    takes as much room as four brokers."""
    for properties, group in groupby(sorted(scripts, key=attrgetter("properties")), attrgetter("properties")):
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-")))
            brokers = []
            for number, start in enumerate(starts):
                place = folder / str(number)
                place.mkdir()
                brokers.append(stack.enter_context(start(place, properties)))
            for script in group:
                yield script, brokers


def _record(args: argparse.Namespace) -> None:
    transcripts = {}
    for script, (broker,) in _with_brokers(_scripts(args.scripts), kafka_for):
        transcripts[script.key] = play(script, broker)
        print(f"{len(transcripts[script.key]):4} cases  {script.key}")
    recordings.write(transcripts, keep_others=bool(args.scripts))


def _check(args: argparse.Namespace) -> int:
    different = 0
    scripts = _scripts(args.scripts)
    if not args.kafka:
        scripts = [script for script in scripts if script.served_by(HANDLERS)]
    for script, (broker,) in _with_brokers(scripts, kafka_for if args.kafka else barnabas_for):
        expected = recordings.read(script.key) or []
        if not args.kafka:
            expected = expected_of_barnabas(script.name, expected)
        found = differences(
            compared(script.name, expected),
            compared(script.name, play(script, broker)),
            names=("recorded", "Kafka" if args.kafka else "barnabas"),
        )
        if found:
            different += 1
            print(f"# {script.key}: {len(found)} cases differ", *found, sep="\n")
    return different


def _both(args: argparse.Namespace) -> int:
    different = 0
    for script, brokers in _with_brokers(_scripts(args.scripts), kafka_for, barnabas_for):
        theirs, ours = (play(script, broker) for broker in brokers)
        theirs = expected_of_barnabas(script.name, theirs)
        found = differences(compared(script.name, theirs), compared(script.name, ours))
        different += bool(found)
        print(f"# {script.key}: {len(theirs)} cases, {len(found)} differ", *found, sep="\n")
    return different


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compare", description=__doc__)
    commands = parser.add_subparsers(required=True)
    show = commands.add_parser("show", help="play scripts to a running broker and print the transcripts")
    show.add_argument("--port", type=int, required=True)
    show.add_argument("scripts", nargs="*", help="script names; * stands for anything")
    show.set_defaults(run=_show)
    compare = commands.add_parser(
        "compare", help="play scripts to two running brokers and print the differences"
    )
    compare.add_argument("--kafka", type=int, required=True, metavar="PORT")
    compare.add_argument("--barnabas", type=int, required=True, metavar="PORT")
    compare.add_argument("scripts", nargs="*")
    compare.set_defaults(run=_compare)
    both = commands.add_parser("both", help="start Kafka and barnabas, play scripts to both and compare")
    both.add_argument("scripts", nargs="*")
    both.set_defaults(run=_both)
    record = commands.add_parser("record", help="start Kafka, play scripts to it and keep what it answers")
    record.add_argument("scripts", nargs="*")
    record.set_defaults(run=_record)
    check = commands.add_parser(
        "check", help="start barnabas, play scripts to it and compare with the recordings"
    )
    check.add_argument(
        "--kafka", action="store_true", help="start Kafka instead: are they still its answers?"
    )
    check.add_argument("scripts", nargs="*")
    check.set_defaults(run=_check)
    args = parser.parse_args()
    return args.run(args) or 0


if __name__ == "__main__":
    sys.exit(main())
