"""Confirming irreversible actions at a terminal."""

from __future__ import annotations

import sys

from broker.process.printable import printable
from cli.errors import CommandError, CommandUsageError


def confirm(question: str, *, yes: bool) -> None:
    """Return if `--yes` was given or the person at the terminal agrees. Raises CommandError otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandUsageError(f"{question} Nobody is at the terminal to confirm: give --yes")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was done")


def confirm_at_terminal(question: str, *, yes: bool) -> None:
    """Like `confirm`, for a command that already says everything: a script isn't asked."""
    if sys.stdin.isatty():
        confirm(question, yes=yes)
