"""What a page gives with a question: parameters of its address, or the fields of a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cli.options import is_utf8

MOST_CHARACTERS: Final = 10_000
"""Of a text: the longest name that Kafka takes has fewer."""
LARGEST_INT32: Final = (1 << 31) - 1
LARGEST_INT64: Final = (1 << 63) - 1


class WrongQuestionError(Exception):
    """The page's mistake, or that of whoever asks in its place. Its text is one line."""


def text_of(given: Mapping[str, Any], name: str) -> str:
    """Raises WrongQuestionError."""
    value = given.get(name)
    if not isinstance(value, str):
        raise WrongQuestionError(f"{name} is needed, as a text")
    if len(value) > MOST_CHARACTERS or not is_utf8(value):
        raise WrongQuestionError(f"{name} is too long, or no text that Kafka can be asked for")
    return value


def texts_of(given: Mapping[str, Any], name: str) -> list[str]:
    """A list; empty where nothing is said. Raises WrongQuestionError."""
    value = given.get(name) or []
    if not isinstance(value, list):
        raise WrongQuestionError(f"{name} has to be a list")
    return [text_of({name: each}, name) for each in value]


def number_of(
    given: Mapping[str, Any], name: str, default: int | None = None, *, most: int = LARGEST_INT64
) -> int:
    """A number from 0 on, or its digits. Raises WrongQuestionError."""
    value = given.get(name, default)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= len(str(most)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise WrongQuestionError(f"{name} is needed, as a number from 0 to {most}")
    return value


def partition_of(given: Mapping[str, Any]) -> tuple[str, int]:
    """`topic` and `partition`. Raises WrongQuestionError."""
    return text_of(given, "topic"), number_of(given, "partition", most=LARGEST_INT32)
