"""Comparing by hand: `python -m tests.compare --help`."""

from __future__ import annotations

import argparse
import json
from fnmatch import fnmatchcase

from .diff import differences
from .play import Script, load_scripts, play


class _Running:
    """A broker that someone else started."""

    def __init__(self, port: int) -> None:
        self.port = port

    def restart(self, *, kill: bool) -> None:
        raise OSError("not ours to restart")


def _scripts(patterns: list[str]) -> list[Script]:
    found = load_scripts().values()
    return [s for s in found if not patterns or any(fnmatchcase(s.name, pattern) for pattern in patterns)]


def _show(args: argparse.Namespace) -> None:
    for script in _scripts(args.scripts):
        print(f"# {script.name}")
        for entry in play(script, _Running(args.port)):
            print(" ", json.dumps(entry, ensure_ascii=False))


def _compare(args: argparse.Namespace) -> None:
    for script in _scripts(args.scripts):
        found = differences(play(script, _Running(args.kafka)), play(script, _Running(args.barnabas)))
        print(f"# {script.name}: {len(found)} cases differ")
        print("\n".join(found), end="\n" if found else "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compare", description=__doc__)
    commands = parser.add_subparsers(required=True)
    show = commands.add_parser("show", help="play scripts to a running broker and print the transcripts")
    show.add_argument("--port", type=int, required=True)
    show.add_argument("scripts", nargs="*", help="script names; * stands for anything")
    show.set_defaults(run=_show)
    compare = commands.add_parser("compare", help="play scripts to two running brokers and print the differences")
    compare.add_argument("--kafka", type=int, required=True, metavar="PORT")
    compare.add_argument("--barnabas", type=int, required=True, metavar="PORT")
    compare.add_argument("scripts", nargs="*")
    compare.set_defaults(run=_compare)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
