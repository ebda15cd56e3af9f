"""Errors that end a command: one line for its user, and an exit status."""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""The request failed: the broker refused it, or something that was checked isn't sound."""
USAGE: Final = 2
"""The command is wrong, or lacks something that only its user can give."""
UNREACHABLE: Final = 3
"""No broker answered."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells report it."""


class CommandError(Exception):
    """Ends a command. The text is one line: what is wrong, where, and what to do."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


class CommandUsageError(CommandError):
    """A mistake of the user."""

    def __init__(self, text: str) -> None:
        super().__init__(text, USAGE)
