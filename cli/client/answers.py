"""Errors in brokers' answers, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from cli.errors import CommandError
from protocol.errors import Error

T = TypeVar("T")


def the_one(found: Sequence[T], of_what: str) -> T:
    """Return the only element of an answer about one thing. Raises CommandError if there is none, or more than one."""
    if len(found) != 1:
        raise CommandError(f"{of_what}: the broker's answer has {len(found)} entries instead of one")
    return found[0]


def check(error_code: int, message: str | None, of_what: str) -> None:
    """Raise CommandError for an error in an answer."""
    if error_code:
        raise CommandError(f"{of_what}: {told(error_code, message)}")


def told(error_code: int, message: str | None = None) -> str:
    """Return an error in words: the broker's own, or else the code's name."""
    try:
        name = Error(error_code).name
    except ValueError:
        name = f"error {error_code}"
    if error_code == Error.UNKNOWN_TOPIC_OR_PARTITION and not message:
        return f"there is no such topic ({name})"
    return f"{message} ({name})" if message else name
