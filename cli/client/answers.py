"""Errors in the answers of brokers, as a person reads them."""

from __future__ import annotations

from cli.errors import CommandError
from protocol.errors import Error


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
