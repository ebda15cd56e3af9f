"""What can't be undone is asked for twice at a terminal."""

from __future__ import annotations

import sys

from broker.process.printable import printable
from cli.errors import CommandError, CommandUsageError


def confirm(question: str, *, yes: bool) -> None:
    """Returns where `--yes` was given, or the person at the terminal says so; raises CommandError otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandUsageError(f"{question} Nobody is at the terminal to say so: give --yes")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")


def confirm_at_terminal(question: str, *, yes: bool) -> None:
    """As `confirm`, of what says all of it already: a script, which nobody answers for, isn't asked."""
    if sys.stdin.isatty():
        confirm(question, yes=yes)
