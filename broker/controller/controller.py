"""The controller. To change the metadata, submit a decision; the answer comes once the change is committed.

    answer = await node.controller.submit(decide)

On a single node, the controller is here, and its disk commits. The answer waits for a sync, or comes at once
if nothing changes. A node that doesn't lead the metadata log answers NOT_CONTROLLER. It is an observer, and
applies the records that it fetches with `MetadataLog.catch_up`.

Source: QuorumController.ControllerWriteEvent.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from broker.controller.image import ClusterImage
from broker.controller.metadata_log import MetadataLog
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.waiting import PER_STEP, Later, Waiting
from protocol.wire.schema import Message

# --- How many records a request may make --------------------------------------------------------------------

MAX_RECORDS_PER_REQUEST = 10_000  # QuorumController.MAX_RECORDS_PER_USER_OP


def check_records(decided: Sized) -> None:
    """Raises KafkaError (POLICY_VIOLATION) if a request makes too many records."""
    if len(decided) > MAX_RECORDS_PER_REQUEST:
        raise too_many_records()


def too_many_records() -> KafkaError:
    """Return the error for a request that is dropped because it exceeds the bound (Kafka:
    `EventHandlerExceptionInfo`)."""
    return KafkaError(Error.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


# --- The result of a decision (Kafka: `ControllerResult`) ---------------------------------------------------

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[T]):
    """The records of a decision, all written in one batch or not at all, and its answer. Without records
    nothing changes, but there still is an answer.

    `answer(None)` returns the answer once the records are committed. `answer(error)` returns it if they can't
    be written: items that were refused before keep their own errors.

    With `may_split`, more than 10,000 records become several batches, and each takes effect by itself. That
    is for events of nodes, never for clients' requests (Kafka: `ControllerResult.of` and `atomicOf`).
    """

    records: Sequence[Message]
    answer: Callable[[KafkaError | None], T]
    may_split: bool = False


def by_item(
    records: Sequence[Message], results: Sequence[tuple[K, V | KafkaError]]
) -> ControllerResult[list[tuple[K, V | KafkaError]]]:
    """Return the result of a request for several items. Each gets its own error, or its result. If the
    records can't be written, the items that they were for get that error."""

    def answer(error: KafkaError | None) -> list[tuple[K, V | KafkaError]]:
        if error is None:
            return [*results]
        return [(item, result if isinstance(result, KafkaError) else error) for item, result in results]

    return ControllerResult(records, answer)


# --- Decisions, one after the other -------------------------------------------------------------------------

logger = logging.getLogger("barnabas.controller")


Decide: TypeAlias = Callable[[ClusterImage], ControllerResult[T] | Waiting[ControllerResult[T]]]


class Controller:
    """Writes decisions to the metadata log, one at a time."""

    __slots__ = ("_line", "_metadata")

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._line: deque[Later[None]] = deque()
        """The decision being taken, then those that wait. Each client has one at most: a connection has one
        request in work, and if it breaks off, its waiting request is withdrawn. (Kafka's controller lets
        events wait until their deadline, however many, even if their clients are gone.)"""

    async def submit(self, decide: Decide[T]) -> T | KafkaError:
        """Decide by the metadata as written so far, write the decision, and answer once it is committed.

        Returns the result's answer. Returns a KafkaError instead if the whole request is dropped, for example
        because its records are too many or too large (UNKNOWN_SERVER_ERROR). Then even items that were
        refused for other reasons get this error (Kafka: `AbstractRequest.getErrorResponse`).

        `decide` doesn't change the metadata. It raises KafkaError to refuse the whole request. Any other
        exception reaches only the caller, and doesn't affect decisions behind it. The caller is marked
        `runs_to_its_end`. If its client hangs up before its turn, the request is closed, and nothing was
        decided.
        """
        metadata = self._metadata
        place: Later[None] = Later()
        self._line.append(place)
        try:
            # 1. Wait in line: a decision looks at what earlier ones wrote.
            if self._line[0] is not place:
                place.on_abandon = _is_taken_back
                await place
            # 2. Decide. Other requests may be served meanwhile, but nobody else decides.
            if not metadata.is_leader:
                return KafkaError(Error.NOT_CONTROLLER)
            epoch = metadata.epoch
            try:
                deciding = decide(metadata.written)
                result = deciding if isinstance(deciding, ControllerResult) else await deciding
            except KafkaError as refusal:
                return refusal.as_value()
            # 3. Write.
            if not metadata.is_leader or metadata.epoch != epoch:  # lost meanwhile
                return KafkaError(Error.NOT_CONTROLLER)
            try:
                if len(result.records) > PER_STEP:
                    await metadata.append_in_steps(result.records, may_split=result.may_split)
                elif result.records:
                    metadata.append(result.records, may_split=result.may_split)
            except KafkaError as failure:
                if failure.error is Error.NOT_CONTROLLER:  # lost meanwhile
                    return failure.as_value()
                logger.error("a change can't be written to the metadata log: %s", failure)
                told = KafkaError(failure.error)  # the disk's own words go to the log only
                return told if told.error is Error.UNKNOWN_SERVER_ERROR else result.answer(told)
            end_offset = metadata.next_offset
        finally:
            self._leave(place)
        # 4. Commit. A decision without records may rest on records that are written but not yet committed, so
        # it waits too.
        return result.answer(await metadata.committed(end_offset))

    def _leave(self, place: Later[None]) -> None:
        """Let the next one go on. A request may be withdrawn before it began."""
        line = self._line
        if line and line[0] is place:
            line.popleft()
            if line:
                line[0].on_abandon = None
                line[0].reply(None)
        elif place in line:
            line.remove(place)

    async def submit_own(self, decide: Decide[T], log: logging.Logger, failure: str) -> T | KafkaError:
        """Like `submit`, for what the node itself wants. A failure of our own is logged with the text
        `failure` and returned as UNKNOWN_SERVER_ERROR: the caller tries again. Raises broken invariants."""
        try:
            return await self.submit(decide)
        except Exception as error:
            if stops_the_broker(error):
                raise
            log.error("%s", failure, exc_info=error)
            return KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error))

    def begin(self, steps: Waiting[None]) -> Later[None] | None:
        """Run steps that no client waits for. Returns the same as `Turns.carry_out`."""
        return self._metadata.carry_out(steps)

    def stop(self) -> None:
        """Drop the current decision and all that wait."""
        self._line.clear()


def _is_taken_back() -> None:
    """Do nothing: to withdraw a waiting decision, it is enough to close its coroutine."""
