"""The controller: who wants the metadata changed submits a decision, and goes on once the change is committed.

    answer = await node.controller.submit(decide)

On one node the controller is here, and commits what its disk has: the answer comes behind a sync, and at once where
nothing is changed. A node that isn't the leader of the metadata log answers NOT_CONTROLLER. It is an observer, and
applies what it fetched by `MetadataLog.catch_up`.
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


# --- Decisions, one after the other --------------------------------------------------------------------------

logger = logging.getLogger("barnabas.controller")


Decide: TypeAlias = Callable[[ClusterImage], ControllerResult[T] | Waiting[ControllerResult[T]]]


class Controller:
    """Takes decisions to the metadata log."""

    __slots__ = ("_line", "_metadata")

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._line: deque[Later[None]] = deque()
        """Whose decision is being taken, and then who waits for that. Clients have one each at most: a connection has
        one request in work, and what waits is taken back where it breaks off. (Kafka's controller lets events wait
        until their deadline, however many, and those of clients that are gone.)"""

    async def submit(self, decide: Decide[T]) -> T | KafkaError:
        """Decide by the metadata as it is written now, write the decision, and answer once that is committed: what the
        result answers, or a KafkaError in place of it where the whole request is given up, as one is whose records are
        too many or too large (UNKNOWN_SERVER_ERROR): then even what was refused for another reason is told that
        (Kafka: `AbstractRequest.getErrorResponse`).

        `decide` changes nothing of the metadata, and raises KafkaError where the request as a whole is refused. Any
        other exception is the concern of who asked, and of nobody behind it. Who submits `runs_to_its_end`: where its
        client hangs up before its turn has come it is closed, and nothing was decided.
        """
        metadata = self._metadata
        place: Later[None] = Later()
        self._line.append(place)
        try:
            # 1. One after the other: what is decided looks at what was written before.
            if self._line[0] is not place:
                place.on_abandon = _is_taken_back
                await place
            # 2. Decided. Others may be served meanwhile, but decide nothing.
            if not metadata.is_leader:
                return KafkaError(Error.NOT_CONTROLLER)
            epoch = metadata.epoch
            try:
                deciding = decide(metadata.written)
                result = deciding if isinstance(deciding, ControllerResult) else await deciding
            except KafkaError as refusal:
                return refusal.as_value()
            # 3. Written.
            if not metadata.is_leader or metadata.epoch != epoch:  # any more
                return KafkaError(Error.NOT_CONTROLLER)
            try:
                if len(result.records) > PER_STEP:
                    await metadata.append_in_steps(result.records, may_split=result.may_split)
                elif result.records:
                    metadata.append(result.records, may_split=result.may_split)
            except KafkaError as failure:
                if failure.error is Error.NOT_CONTROLLER:  # any more
                    return failure.as_value()
                logger.error("a change can't be written to the metadata log: %s", failure)
                told = KafkaError(failure.error)  # the disk's own words are for the log alone
                return told if told.error is Error.UNKNOWN_SERVER_ERROR else result.answer(told)
            end_offset = metadata.next_offset
        finally:
            self._leave(place)
        # 4. Committed. What changes nothing may rest on what is written and not yet committed: it waits for that.
        return result.answer(await metadata.committed(end_offset))

    def _leave(self, place: Later[None]) -> None:
        """The next one's turn has come. What is given up may never have been begun."""
        line = self._line
        if line and line[0] is place:
            line.popleft()
            if line:
                line[0].on_abandon = None
                line[0].reply(None)
        elif place in line:
            line.remove(place)

    async def submit_own(self, decide: Decide[T], log: logging.Logger, failure: str) -> T | KafkaError:
        """As `submit`, of what the node wants by itself: an error of ours is logged as what `failure` says, and is
        UNKNOWN_SERVER_ERROR to who asked, which tries it again. A broken invariant is raised."""
        try:
            return await self.submit(decide)
        except Exception as error:
            if stops_the_broker(error):
                raise
            log.error("%s", failure, exc_info=error)
            return KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error))

    def begin(self, steps: Waiting[None]) -> Later[None] | None:
        """Carries out what no client waits for: what is returned is as of `Turns.carry_out`."""
        return self._metadata.carry_out(steps)

    def stop(self) -> None:
        """What is being decided, and who waits for it, is given up."""
        self._line.clear()


def _is_taken_back() -> None:
    """Nothing more has to be done for what waits to be decided: its coroutine is closed."""
