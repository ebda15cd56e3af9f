"""The values in a page's request: parameters of its address, or fields of a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cli.options import is_utf8

MOST_CHARACTERS: Final = 10_000
"""The most characters of a text. The longest name that Kafka accepts is shorter."""
LARGEST_INT32: Final = (1 << 31) - 1
LARGEST_INT64: Final = (1 << 63) - 1


class WrongQuestionError(Exception):
    """A mistake of the page, or of whoever asks in its place. The text is one line."""


def text_of(given: Mapping[str, Any], name: str) -> str:
    """Return a text. Raises WrongQuestionError."""
    value = given.get(name)
    if not isinstance(value, str):
        raise WrongQuestionError(f"{name} must be given, as a text")
    if len(value) > MOST_CHARACTERS or not is_utf8(value):
        raise WrongQuestionError(f"{name} is too long, or isn't valid text")
    return value


def texts_of(given: Mapping[str, Any], name: str) -> list[str]:
    """Return a list of texts, empty if none is given. Raises WrongQuestionError."""
    value = given.get(name) or []
    if not isinstance(value, list):
        raise WrongQuestionError(f"{name} must be a list")
    return [text_of({name: each}, name) for each in value]


def number_of(
    given: Mapping[str, Any], name: str, default: int | None = None, *, most: int = LARGEST_INT64
) -> int:
    """Return a number from 0 on, which may be given as digits. Raises WrongQuestionError."""
    value = given.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(most)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise WrongQuestionError(f"{name} must be given, as a number from 0 to {most}")
    return value


def partition_of(given: Mapping[str, Any]) -> tuple[str, int]:
    """Return `topic` and `partition`. Raises WrongQuestionError."""
    return text_of(given, "topic"), number_of(given, "partition", most=LARGEST_INT32)
