"""The broker in the controller's own process: its run, and where its replicas are, by the controller's decisions.

It is told nothing and asks nothing: the controller sees it, and its run begins and ends by the decisions that others'
heartbeats come to. What it would wait for is decided at once.
Source: `ClusterControlManager`, `ReplicationControlManager` (handleBrokerUnfenced, handleBrokerInControlledShutdown,
handleBrokerFenced).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from broker.controller.broker_heartbeats import BrokerHeartbeats
from broker.controller.broker_registration import RegistrationTerms, register
from broker.controller.controller import ControllerResult
from broker.controller.partition_changes import BrokerChange, LeaderAndIsrUpdates
from broker.controller.registration import (
    BrokerIncarnation,
    assignment,
    begin_controlled_shutdown,
    fence,
    unfence,
)
from protocol.errors import Error, KafkaError
from protocol.waiting import at_once

if TYPE_CHECKING:
    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage
    from broker.controller.metadata_log import MetadataLog
    from protocol.messages.broker_to_controller import BrokerRegistrationRequest


log = logging.getLogger("barnabas.directories")

AnsweredLater: TypeAlias = "Callable[[KafkaError | None], None]"

AssignDirectory: TypeAlias = "Callable[[tuple[bytes, int], bytes, AnsweredLater], bool]"
"""Has the controller record that the replica of a topic id and number is in the directory of that id. Returns whether
that is committed; where it isn't yet, the last argument is told. Raises KafkaError where it is refused at once."""


class OwnAssignments:
    """Of one run."""

    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id

    def assign(self, replica: tuple[bytes, int], directory_id: bytes, answered_later: AnsweredLater) -> bool:
        """See `AssignDirectory`."""
        topic_id, index = replica
        answers: list[KafkaError | None] = []
        is_later = False

        def decide(image: ClusterImage) -> ControllerResult[KafkaError | None]:
            if topic_id not in image.topics_by_id:
                raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)  # its deletion isn't committed yet
            record = assignment(image, topic_id, index, self._node_id, directory_id)
            return ControllerResult([] if record is None else [record], lambda error: error)

        def reply(error: KafkaError | None) -> None:
            if is_later:
                answered_later(error)
            else:
                answers.append(error)

        def failed(error: BaseException) -> None:
            """An error of ours, and it is later by now: who asked tries it again."""
            log.error("where partition %d of a topic is can't be recorded", index, exc_info=error)
            answered_later(KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error)))

        self._controller.submit(decide, reply, failed)
        is_later = True
        for error in answers:
            if error is not None:
                answers.clear()
                try:
                    raise error
                finally:
                    del error  # its traceback holds this frame
        return bool(answers)


# --- Its run ------------------------------------------------------------------------------------------------

REGISTRATION_VERSION = 4


def begin_run(
    metadata: MetadataLog, request: BrokerRegistrationRequest, updates: LeaderAndIsrUpdates
) -> BrokerIncarnation:
    """Registered, unfenced, and leader of what it may lead. The leader epoch of what it had led grows by 2, however the
    run before ended."""
    terms = RegistrationTerms(
        request.cluster_id,
        metadata.quorum.kraft_version,
        metadata.next_offset,
        REGISTRATION_VERSION,
        now_ms=0,
    )
    # no session of a run before goes on: it was in a process that had the folder
    result = at_once(register(metadata.written, BrokerHeartbeats(), request, terms, updates=updates))
    metadata.append(result.records, may_split=True)
    epoch = result.answer(None)
    assert isinstance(epoch, int)
    change = BrokerChange(added=request.broker_id)
    metadata.append(
        [unfence(request.broker_id, epoch), *at_once(updates(metadata.written, change))], may_split=True
    )
    return BrokerIncarnation(request.broker_id, epoch)


async def leaving(
    image: ClusterImage, broker: BrokerIncarnation, updates: LeaderAndIsrUpdates
) -> ControllerResult[KafkaError | None]:
    """A controlled shutdown begins: others lead what it led, where there are others."""
    decided = [begin_controlled_shutdown(*broker)]
    decided += await updates(image, BrokerChange(removed=broker.node_id))
    return ControllerResult(decided, lambda error: error, may_split=True)


def end_run(metadata: MetadataLog, broker: BrokerIncarnation, updates: LeaderAndIsrUpdates) -> None:
    """A controlled shutdown, as far as it hasn't begun, to its end."""
    registered = metadata.written.brokers.get(broker.node_id)
    if registered is None or not registered.in_controlled_shutdown:
        metadata.append(at_once(leaving(metadata.written, broker, updates)).records, may_split=True)
    metadata.append([fence(*broker)])


def end_session(metadata: MetadataLog, broker_id: int, updates: LeaderAndIsrUpdates) -> None:
    """Of a broker that can't be there any more."""
    image = metadata.written
    decided = at_once(updates(image, BrokerChange(removed=broker_id)))
    metadata.append([*decided, fence(broker_id, image.brokers[broker_id].broker_epoch)], may_split=True)
