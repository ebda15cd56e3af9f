"""What ends a command: one line for its user, and an exit status."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""What was asked for can't be had: the broker refused it, or something that was looked for isn't sound."""
USAGE: Final = 2
"""The command can't be understood, or lacks something that only its user can give."""
UNREACHABLE: Final = 3
"""No broker answered."""
INTERRUPTED: Final = 130
"""Ctrl-C, as a shell has it."""


class CommandError(Exception):
    """Its text is one line: what is wrong, where, and what to do."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


class CommandUsageError(CommandError):
    """The user's mistake."""

    def __init__(self, text: str) -> None:
        super().__init__(text, USAGE)
