"""What a sink was told, and what is made from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Compression by name, with its number in a batch's attributes."""

PREFIX = "__barnabas-spark-"


def is_of_marker(topic: str) -> bool:
    """Whether a query keeps its marker there."""
    return topic.startswith(PREFIX)


def of_marker(topic: str) -> str:
    """Why nothing else is written to it."""
    return (
        f"the topic {topic} holds the marker of the query {topic.removeprefix(PREFIX)!r}, by which the sink knows what "
        "is committed, and takes no rows: write them to another topic"
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


# --- What is said of a sink's arguments before anything is done with them -----------------------------------

LARGEST_INT32 = (1 << 31) - 1


def check_positive(name: str, value: int) -> None:
    """Raises TypeError for what is no int, ValueError for what Kafka's int32 can't hold or is 0 or less."""
    _check_int(name, value)
    if not 0 < value <= LARGEST_INT32:
        raise ValueError(f"{name} is from 1 to {LARGEST_INT32}, not {value}")


def check_batch_id(value: int) -> None:
    """Raises TypeError for what is no int, ValueError for a negative one."""
    _check_int("batch_id", value)
    if value < 0:
        raise ValueError(f"batch_id is 0 or more, as a streaming query counts its batches, not {value}")


def check_bootstrap(text: str) -> None:
    """Raises ValueError where an address, of those with commas between, isn't one of a host and a port."""
    for address in text.split(","):
        host, colon, port = address.strip().rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ValueError(
                f"bootstrap is host:port of one or more brokers, as 'localhost:9092', and {address.strip()!r} is not"
            )


def check_topic(name: str) -> None:
    """Raises TypeError for what is no string, ValueError for an empty one, and for one that a query's marker is in."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name is a string, not {name!r}")
    if not name:
        raise ValueError("a topic's name is empty; without topic=..., rows go where the column 'topic' says")
    if is_of_marker(name):
        raise ValueError(of_marker(name))


def topic_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each once. Raises TypeError for a single string, ValueError where none is named."""
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
    # A bool is an int to Python.
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is a whole number, not {value!r}")
