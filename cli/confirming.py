"""Confirming irreversible actions at a terminal."""

from __future__ import annotations

import sys

from broker.process.printable import printable
from cli.errors import CommandError, CommandUsageError


def confirm(question: str, *, yes: bool) -> None:
    """Ask the person at the terminal, unless `--yes` was given. Raises CommandError if they don't agree."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandUsageError(f"{question} Nobody is at the terminal to confirm: give --yes")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")


def confirm_at_terminal(question: str, *, yes: bool) -> None:
    """Ask only at a terminal, since the command is explicit enough. A script needs no `--yes`."""
    if sys.stdin.isatty():
        confirm(question, yes=yes)
