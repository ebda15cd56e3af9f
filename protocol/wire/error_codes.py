"""The errors in an answer, wherever in it they stand (Kafka: `AbstractResponse.errorCounts`)."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.wire.schema import Struct


def error_codes(answer: Struct) -> Iterator[int]:
    """Each field of this name, those of 0 (none) as well."""
    for field in type(answer).FIELDS:
        value = getattr(answer, field.name)
        if field.name == "error_code":
            yield value
        elif isinstance(value, Struct):
            yield from error_codes(value)
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Struct):
                    yield from error_codes(each)
