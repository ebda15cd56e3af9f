"""The places of faults inside the broker: the coordinators' writes, markers, loading, rebalances, files.

Each place is a wrapper or a hook that exists only while a fault is armed there. They use the broker's own ports:
`coordinator.ports.Barriers` and `Markers`, `storage.files.FaultHook`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.faults.armed_fault import FaultPoint
from broker.faults.subjects import FileOperation, Named
from coordinator.transaction.states import AWAITS_MARKERS, COMPLETE_ABORT, COMPLETE_COMMIT, STATE_NAMES
from protocol.errors import KafkaError
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.faults.faults import Faults
    from coordinator.ports import MarkerAnswers, Markers, TransactionMove, TxnMarker
    from protocol.topic_partition import TopicPartition
    from storage.files import FaultHook

OF_COORDINATORS = (
    FaultPoint.PREPARE,
    FaultPoint.PREPARED,
    FaultPoint.COMPLETE,
    FaultPoint.COMPLETED,
    FaultPoint.LOAD,
    FaultPoint.REBALANCE,
)

_BEFORE_AND_BEHIND = {
    STATE_NAMES[state]: (FaultPoint.PREPARE, FaultPoint.PREPARED) for state in AWAITS_MARKERS
} | {
    STATE_NAMES[state]: (FaultPoint.COMPLETE, FaultPoint.COMPLETED)
    for state in (COMPLETE_COMMIT, COMPLETE_ABORT)
}


class FaultyCoordinators:
    """The port `coordinator.ports.Barriers`."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    async def before_move(self, move: TransactionMove) -> KafkaError | None:
        """See the port."""
        places = _BEFORE_AND_BEHIND.get(move.state)
        if places is None:
            return None
        error = await self._faults.passed(places[0], _move(move))
        return None if error is None else KafkaError(error)

    async def behind_move(self, move: TransactionMove) -> None:
        """See the port."""
        places = _BEFORE_AND_BEHIND.get(move.state)
        if places is not None:
            await self._faults.passed(places[1], _move(move))

    async def before_generation(self, group_id: str) -> None:
        """See the port."""
        await self._faults.passed(FaultPoint.REBALANCE, Named(group=group_id))

    async def before_loading(self, topic: str, partition: int) -> None:
        """See the port."""
        await self._faults.passed(FaultPoint.LOAD, Named(partitions=((topic, partition),)))


def _move(move: TransactionMove) -> Named:
    return Named(
        partitions=move.partitions,
        transactional_id=move.transactional_id,
        state=move.state,
        producer_id=move.producer_id,
        producer_epoch=move.producer_epoch,
    )


class FaultyMarkers:
    """A way of markers with faults. It writes one marker after the other, in the order of the transaction's
    partitions."""

    def __init__(self, faults: Faults, markers: Markers, id_of: Callable[[int], str]) -> None:
        """`id_of`: the transactional id of a producer id."""
        self._faults = faults
        self._markers = markers
        self._id_of = id_of

    def write(
        self,
        marker: TxnMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerAnswers], None],
    ) -> None:
        """As `Markers`."""
        self._faults.carry_out(self._written(marker, [*partitions], done))

    async def _written(
        self,
        marker: TxnMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[MarkerAnswers], None],
    ) -> None:
        transactional_id = self._id_of(marker.producer_id)
        for partition in partitions:
            subject = Named(
                partitions=(partition,),
                transactional_id=transactional_id,
                commit=marker.commit,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
            )
            error = await self._faults.passed(FaultPoint.MARKER, subject)
            answers: MarkerAnswers = {partition: error}
            if error is None:
                answers = await self._one(marker, partition)
                error = await self._faults.passed(FaultPoint.MARKED, subject)
                if error is not None:
                    answers = {partition: error}
            done(answers)

    async def _one(self, marker: TxnMarker, partition: TopicPartition) -> MarkerAnswers:
        answered: Later[MarkerAnswers] = Later()
        is_told = False

        def told(answers: MarkerAnswers) -> None:
            nonlocal is_told
            if not is_told:  # a second answer is ignored
                is_told = True
                answered.reply(answers)

        self._markers.write(marker, [partition], told)
        return await answered


def file_hook(faults: Faults) -> FaultHook | None:
    """The hook before each operation on files, called in its thread; None if no fault is about files."""
    armed = faults.at(FaultPoint.FILE)
    if not armed:
        return None

    def ask(operation: str, path: str, size_bytes: int) -> None:
        faults.before_file_operation(armed, FileOperation(operation, path, size_bytes))

    return ask
