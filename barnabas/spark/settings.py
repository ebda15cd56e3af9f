"""The arguments of a sink, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Compression codecs by name, with their numbers in a batch's attributes."""

PREFIX = "__barnabas-spark-"


def is_of_marker(topic: str) -> bool:
    """Return True if a query keeps its marker in this topic."""
    return topic.startswith(PREFIX)


def of_marker(topic: str) -> str:
    """Return why rows can't be written to a marker's topic."""
    return (
        f"the topic {topic} holds the marker of the query {topic.removeprefix(PREFIX)!r}, which tells the sink what "
        "is committed. It takes no rows: write them to another topic"
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of `ExactlyOnceKafkaSink`, checked."""

    bootstrap: str
    query: str
    topic: str | None
    topics: tuple[str, ...] | None
    compression: str
    group: str | None
    transaction_timeout_ms: int
    max_tries: int
    max_batch_bytes: int
    request_timeout_ms: int
    client: dict[str, Any]

    @property
    def transactional_id(self) -> str:
        return f"barnabas-spark-{self.query}"

    @property
    def marker_topic(self) -> str:
        return PREFIX + self.query


# --- Checks of a sink's arguments before anything is done with them -----------------------------------------

LARGEST_INT32 = (1 << 31) - 1


def check_positive(name: str, value: int) -> None:
    """Raise TypeError if it isn't an int, ValueError if it isn't positive or doesn't fit Kafka's int32."""
    _check_int(name, value)
    if not 0 < value <= LARGEST_INT32:
        raise ValueError(f"{name} is from 1 to {LARGEST_INT32}, not {value}")


def check_batch_id(value: int) -> None:
    """Raise TypeError if it isn't an int, ValueError if it is negative."""
    _check_int("batch_id", value)
    if value < 0:
        raise ValueError(f"batch_id must be 0 or more, as a streaming query counts its batches, not {value}")


def check_bootstrap(text: str) -> None:
    """Raise ValueError if one of the comma-separated addresses isn't host:port."""
    for address in text.split(","):
        host, colon, port = address.strip().rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ValueError(
                f"bootstrap is host:port of one or more brokers, as 'localhost:9092', and {address.strip()!r} is not"
            )


def check_topic(name: str) -> None:
    """Raise TypeError if it isn't a string, ValueError if it is empty or holds a query's marker."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name is a string, not {name!r}")
    if not name:
        raise ValueError("a topic's name is empty; leave out topic=..., and the column 'topic' decides")
    if is_of_marker(name):
        raise ValueError(of_marker(name))


def topic_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names, each once. Raises TypeError for a single string, ValueError if there are none."""
    if isinstance(names, str | bytes):
        raise TypeError(
            f"topics is a list of names, such as [{names!r}], not one name; for one, give topic=..."
        )
    names = tuple(names)
    for name in names:
        check_topic(name)
    if not names:
        raise ValueError("topics names no topic; leave it out, and the sink finds them in each batch")
    return tuple(dict.fromkeys(names))


def _check_int(name: str, value: int) -> None:
    # In Python a bool is an int.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a whole number, not {value!r}")
