"""The broker in the controller's own process: its run begins and ends by the decisions that others' heartbeats come to.

It is told nothing and asks nothing: the controller sees it. What it would wait for is decided at once.
Source: `ClusterControlManager`, `ReplicationControlManager` (handleBrokerUnfenced, handleBrokerInControlledShutdown,
handleBrokerFenced).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.broker_change import BrokerChange, LeaderAndIsrUpdates
from broker.controller.broker_heartbeats import BrokerHeartbeats
from broker.controller.broker_registration import RegistrationTerms, register
from broker.controller.controller_result import ControllerResult
from broker.controller.registration import BrokerIncarnation, begin_controlled_shutdown, fence, unfence
from protocol.waiting import at_once

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.controller.metadata_log import MetadataLog
    from protocol.errors import KafkaError
    from protocol.messages.broker_to_controller import BrokerRegistrationRequest

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
