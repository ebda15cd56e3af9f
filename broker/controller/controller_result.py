"""What a decision is: made in steps, bounded, and come to records and an answer that waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

from protocol.errors import Error, KafkaError
from protocol.wire.schema import Message

PER_STEP = 500
"""Entries, records or partitions that one step goes through: some milliseconds."""


class Pause:
    """Says when it is time for one, over loops within loops."""

    __slots__ = ("_left", "_per_step")

    def __init__(self, per_step: int = PER_STEP) -> None:
        self._per_step = self._left = per_step

    def is_due(self, entries: int = 1) -> bool:
        """Asked once for each entry, or for so many at a time, before them or behind them."""
        self._left -= entries
        if self._left > 0:
            return False
        self._left = self._per_step
        return True


# --- How many records a request may make --------------------------------------------------------------------

MAX_RECORDS_PER_REQUEST = 10_000  # QuorumController.MAX_RECORDS_PER_USER_OP


def check_records(decided: Sized) -> None:
    """Raises KafkaError (POLICY_VIOLATION) where a request has come to too many."""
    if len(decided) > MAX_RECORDS_PER_REQUEST:
        raise too_many_records()


def too_many_records() -> KafkaError:
    """What those are told whose whole request is given up past the bound (Kafka: `EventHandlerExceptionInfo`)."""
    return KafkaError(Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


# --- What a decision comes to (Kafka: `ControllerResult`) ---------------------------------------------------

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
