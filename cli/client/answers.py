"""Errors in the answers of brokers, as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from cli.errors import CommandError
from protocol.errors import Error

T = TypeVar("T")


def the_one(found: Sequence[T], of_what: str) -> T:
    """Of an answer to a question about one thing. Raises CommandError where a broker tells of none, or of several."""
    if len(found) != 1:
        raise CommandError(f"{of_what}: the broker answers of {len(found)} where one was asked for")
    return found[0]


def check(error_code: int, message: str | None, of_what: str) -> None:
    """Raises CommandError for an error in an answer."""
    if error_code:
        raise CommandError(f"{of_what}: {told(error_code, message)}")


def told(error_code: int, message: str | None = None) -> str:
    """An error in words: the broker's own, or else the name of the code."""
    try:
        name = Error(error_code).name
    except ValueError:
        name = f"error {error_code}"
    if error_code == Error.UNKNOWN_TOPIC_OR_PARTITION and not message:
        return f"there is no such topic ({name})"
    return f"{message} ({name})" if message else name
