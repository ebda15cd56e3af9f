"""What a decision comes to: records, and the answer that waits for them (Kafka: `ControllerResult`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocol.errors import KafkaError
from protocol.wire.schema import Message

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """`records` are written all or none, in one batch. Where there are none, nothing changes, and the answer is given
    nevertheless.

    `answer(None)` is what is said once they are committed; `answer(error)` is what is said where they couldn't be: what
    was refused before keeps its own error.

    `may_split`: more than 10,000 records are several batches, each in force by itself. That is for what happens to a
    node, and never for a client's request (Kafka: `ControllerResult.of` and `atomicOf`).
    """

    records: Sequence[Message]
    answer: Callable[[KafkaError | None], T]
    may_split: bool = False


def by_item(
    records: Sequence[Message], results: Sequence[tuple[K, V | KafkaError]]
) -> ControllerResult[list[tuple[K, V | KafkaError]]]:
    """The result of a request that names several things: each is told what speaks against it, or else what became of
    it. What can't be written is told to those that were to be in it."""

    def answer(error: KafkaError | None) -> list[tuple[K, V | KafkaError]]:
        if error is None:
            return [*results]
        return [(item, result if isinstance(result, KafkaError) else error) for item, result in results]

    return ControllerResult(records, answer)
