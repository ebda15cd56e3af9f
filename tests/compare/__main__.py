"""Comparing by hand: `python -m tests.compare --help`."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path

from broker.handlers import HANDLERS

from . import recordings
from .clusters import barnabas_for, kafka_for
from .diff import differences
from .known_differences import compared, expected_of_barnabas
from .play import Script, load_scripts, play
from .scene import Broker


class _Running:
    """A broker that someone else started."""

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


def _record(args: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-"))
        brokers = {}
        transcripts = {}
        for script in _scripts(args.scripts):
            if script.properties not in brokers:
                place = Path(folder) / script.properties
                brokers[script.properties] = stack.enter_context(kafka_for(place, script.properties))
            transcripts[script.key] = play(script, brokers[script.properties])
            print(f"{len(transcripts[script.key]):4} cases  {script.key}")
    recordings.write(transcripts, keep_others=bool(args.scripts))


def _check(args: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-"))
        brokers = {}
        different = 0
        for script in _scripts(args.scripts):
            if not script.served_by(HANDLERS):
                continue
            if script.properties not in brokers:
                place = Path(folder) / script.properties
                place.mkdir()
                brokers[script.properties] = stack.enter_context(barnabas_for(place, script.properties))
            theirs = expected_of_barnabas(script.name, recordings.read(script.key) or [])
            ours = play(script, brokers[script.properties])
            found = differences(
                compared(script.name, theirs),
                compared(script.name, ours),
                names=("recorded", "barnabas"),
            )
            if found:
                different += 1
                print(f"# {script.key}: {len(found)} cases differ", *found, sep="\n")
    return different


def _both(args: argparse.Namespace) -> int:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-"))
        brokers: dict[str, tuple[Broker, Broker]] = {}
        different = 0
        for script in _scripts(args.scripts):
            if script.properties not in brokers:
                place = Path(folder) / script.properties
                place.mkdir()
                brokers[script.properties] = (
                    stack.enter_context(kafka_for(place / "kafka", script.properties)),
                    stack.enter_context(barnabas_for(place, script.properties)),
                )
            theirs, ours = (play(script, broker) for broker in brokers[script.properties])
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
    check.add_argument("scripts", nargs="*")
    check.set_defaults(run=_check)
    args = parser.parse_args()
    return args.run(args) or 0


if __name__ == "__main__":
    sys.exit(main())
