"""The controller: who wants the metadata changed submits a request, and is answered once the change is committed.

On one node the controller is here, and commits what its disk has: the answer comes behind a sync, and within `submit`
where nothing is changed. `submit` answers NOT_CONTROLLER on a node that isn't the leader of the metadata log. Such a
node is an observer: it applies what it fetched by `MetadataLog.catch_up`.
Source: QuorumController.ControllerWriteEvent.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from broker.controller.image import ClusterImage
from broker.controller.metadata_log import MetadataLog
from coordinator.commit_waiters import Failed
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.waiting import PER_STEP, Waiting, at_once, turn
from protocol.wire.schema import Message

# --- What a decision is: made in steps, bounded, and come to records and an answer that waits for them --------

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


# --------------------------------------------------------------------------------------------------------------

logger = logging.getLogger("barnabas.controller")


Decide: TypeAlias = Callable[[ClusterImage], ControllerResult[T] | Waiting[ControllerResult[T]]]

Withdraw: TypeAlias = Callable[[], bool]
"""Takes back what waits to be decided. Returns whether it still waited."""


class Controller:
    """Takes decisions to the metadata log."""

    __slots__ = ("_is_deciding", "_metadata", "_waiting")

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._is_deciding = False
        self._waiting: OrderedDict[object, Callable[[], None]] = OrderedDict()
        """Who asks while something is decided, in this order. Clients have one each at most: a connection has one
        request in work, and what waits is taken back where it breaks off. (Kafka's controller lets events wait until
        their deadline, however many, and those of clients that are gone.)"""

    def submit(
        self,
        decide: Decide[T],
        reply: Callable[[T | KafkaError], None],
        failed: Failed,
    ) -> Withdraw | None:
        """Decide by the metadata as it is written now, write the decision, and reply once that is committed.

        `decide` changes nothing of the metadata, and raises KafkaError where the request as a whole is refused. `reply`
        is called once, in this call where it can be: with the result's answer, or with a KafkaError in place of it
        where the whole request is given up, as one is whose records are too many or too large (UNKNOWN_SERVER_ERROR):
        then even what was refused for another reason is told that (Kafka: `AbstractRequest.getErrorResponse`).
        `failed` is told of any other exception where it can't be raised here, the decision being taken later: it is the
        concern of who asked, and of nobody who waits behind it. A broken invariant stops the node besides.

        Where it waits for other decisions, what is returned takes it back: then neither is called.
        """
        if not (self._is_deciding or self._waiting):
            self._decide(decide, reply, failed)
            return None
        asked = object()
        self._waiting[asked] = partial(self._decide_later, decide, reply, failed)
        return partial(self._withdraw, asked)

    def submit_own(
        self,
        decide: Decide[T],
        reply: Callable[[T | KafkaError], None],
        failed: Failed,
    ) -> None:
        """As `submit`, of what the node wants by itself: `failed` is told of what is raised in this call, too, so that
        nothing waits for ever for what isn't going to be answered. A broken invariant is raised besides."""
        try:
            self.submit(decide, reply, failed)
        except Exception as error:
            _tell_failure(error, failed)

    def _withdraw(self, asked: object) -> bool:
        return self._waiting.pop(asked, None) is not None

    def stop(self) -> None:
        """What is being decided, and who waits for it, is given up."""
        self._is_deciding = False
        self._waiting.clear()

    def _decide_later(
        self,
        decide: Decide[T],
        reply: Callable[[T | KafkaError], None],
        failed: Failed,
    ) -> None:
        try:
            self._decide(decide, reply, failed)
        except Exception as error:
            _tell_failure(error, failed)

    def _decide(
        self,
        decide: Decide[T],
        reply: Callable[[T | KafkaError], None],
        failed: Failed,
    ) -> None:
        metadata = self._metadata
        if not metadata.is_leader:
            reply(KafkaError(Error.NOT_CONTROLLER))
            return
        try:
            result = decide(metadata.written)
        except KafkaError as refusal:
            reply(refusal.as_value())
            return
        if isinstance(result, ControllerResult) and len(result.records) <= PER_STEP:
            at_once(self._write(result, reply))()
        else:
            self._is_deciding = True
            metadata.carry_out(self._decide_in_steps(result, reply, failed))

    async def _decide_in_steps(
        self,
        deciding: ControllerResult[T] | Waiting[ControllerResult[T]],
        reply: Callable[[T | KafkaError], None],
        failed: Failed,
    ) -> None:
        try:
            try:
                tell = await self._write(deciding, reply)
            finally:
                self._is_deciding = False
            tell()
        except Exception as error:
            _tell_failure(error, failed)
        while self._waiting and not self._is_deciding:
            await turn()
            if self._waiting:
                _, decide_next = self._waiting.popitem(last=False)
                decide_next()

    async def _write(
        self,
        deciding: ControllerResult[T] | Waiting[ControllerResult[T]],
        reply: Callable[[T | KafkaError], None],
    ) -> Callable[[], None]:
        """What tells it then."""
        metadata = self._metadata
        epoch = metadata.epoch
        try:
            result = deciding if isinstance(deciding, ControllerResult) else await deciding
        except KafkaError as refusal:
            return partial(reply, refusal.as_value())
        if not metadata.is_leader or metadata.epoch != epoch:  # any more
            return partial(reply, KafkaError(Error.NOT_CONTROLLER))
        try:
            if len(result.records) > PER_STEP:
                await metadata.append_in_steps(result.records, may_split=result.may_split)
            elif result.records:
                metadata.append(result.records, may_split=result.may_split)
        except KafkaError as failure:
            if failure.error is Error.NOT_CONTROLLER:  # any more
                return partial(reply, failure.as_value())
            logger.error("a change can't be written to the metadata log: %s", failure)
            told = KafkaError(failure.error)  # the disk's own words are for the log alone
            return partial(reply, told if told.error is Error.UNKNOWN_SERVER_ERROR else result.answer(told))
        # What changes nothing may rest on what is written and not yet committed: it waits for that.
        return partial(
            metadata.when_committed, metadata.next_offset, lambda error: reply(result.answer(error))
        )


def _tell_failure(broken: Exception, failed: Failed) -> None:
    """Raises a broken invariant, which is the node's to know, too: nothing more is decided."""
    failed(broken)
    if stops_the_broker(broken):
        raise broken
