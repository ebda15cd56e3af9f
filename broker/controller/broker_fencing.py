"""Brokers are fenced, unfenced and let go: from heartbeats, sessions that end and the image to records.

Whoever takes a heartbeat says first that it was heard (`BrokerHeartbeats.heard`), and then has it decided. In one
answer come what the broker's next state brings, then the directories that failed, then those that are cordoned.
Partitions change before their broker is fenced, and after its fence is lifted.
Source: `ReplicationControlManager` (processBrokerHeartbeat, processExpiredBrokerHeartbeat, maybeFenceOneStaleBroker
and the handleBroker… of each); KIP-631, KIP-841, KIP-858, KIP-1066.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.broker_change import BrokerChange, LeaderAndIsrUpdates
from broker.controller.broker_control_states import (
    NEXT_STATE,
    BrokerControlState,
    BrokerWish,
    Circumstances,
    asks_who_leads,
)
from broker.controller.broker_directories import in_order
from broker.controller.broker_epochs import check_broker_epoch
from broker.controller.controller_result import ControllerResult
from broker.controller.pause import Pause
from broker.controller.record_versions import CORDONED_SINCE, DIRECTORIES_SINCE, METADATA_VERSION
from broker.controller.registration import (
    BrokerIncarnation,
    begin_controlled_shutdown,
    fence,
    unfence,
)
from protocol.errors import KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import Waiting, turn

if TYPE_CHECKING:
    from broker.controller.broker_heartbeats import BrokerHeartbeats
    from broker.controller.broker_image import BrokerImage
    from broker.controller.image import ClusterImage
    from protocol.messages.broker_to_controller import BrokerHeartbeatRequest
    from protocol.wire.schema import Message


class BrokerHeartbeatReply(NamedTuple):
    """What a broker is told. Of one `in_controlled_shutdown`, which it isn't told, `BrokerHeartbeats.shutdown_written`
    is to be told as soon as what was decided is written, or at the latest before the broker is answered."""

    is_caught_up: bool
    is_fenced: bool
    in_controlled_shutdown: bool
    should_shut_down: bool


class _Transition(NamedTuple):
    broker: BrokerIncarnation
    registered: BrokerImage
    before: BrokerControlState
    after: BrokerControlState


def heartbeat(
    image: ClusterImage,
    heartbeats: BrokerHeartbeats,
    request: BrokerHeartbeatRequest,
    updates: LeaderAndIsrUpdates,
) -> (
    ControllerResult[BrokerHeartbeatReply | KafkaError]
    | Waiting[ControllerResult[BrokerHeartbeatReply | KafkaError]]
):
    """What comes of a heartbeat. That of a broker with which all is well is answered in this call, at a cost that is
    the same however many brokers and partitions there are.

    Raises KafkaError (STALE_BROKER_EPOCH), in this call.
    """
    broker = BrokerIncarnation(request.broker_id, request.broker_epoch)
    registered = check_broker_epoch(image, broker)
    before = heartbeats.state_of(broker.node_id)
    wish = BrokerWish((request.want_fence, request.want_shut_down))
    met = Circumstances(
        is_caught_up=heartbeats.is_caught_up(broker.node_id, request.current_metadata_offset),
        leads=False,
        others_have_passed=heartbeats.others_have_passed(broker.node_id),
    )
    failed = _failed_directories(image, registered, request.offline_log_dirs)
    cordoned = _cordoned(image, broker, registered, request.cordoned_log_dirs)
    if not asks_who_leads(before, wish):
        after = NEXT_STATE[before, wish](met)
        if after is before and not failed:
            return _result(cordoned, met, after)

    async def decide() -> ControllerResult[BrokerHeartbeatReply | KafkaError]:
        leads = asks_who_leads(before, wish) and await _leads(image, broker.node_id)
        after = NEXT_STATE[before, wish](met._replace(leads=leads))
        decided = await _entered(image, _Transition(broker, registered, before, after), updates)
        if failed:
            decided += await _without_directories(image, broker, failed, updates)
        return _result([*decided, *cordoned], met, after)

    return decide()


def fence_stale_broker(
    image: ClusterImage, heartbeats: BrokerHeartbeats, now_ms: int, updates: LeaderAndIsrUpdates
) -> ControllerResult[bool | KafkaError] | Waiting[ControllerResult[bool | KafkaError]]:
    """Fences the broker whose session ended first, if one did. One at a time: what follows from it is to be seen when
    the next one is decided. The answer is whether there was one, and so may be more: then it is asked for again at
    once, and else after `BrokerHeartbeats.check_interval_ms`.

    The session is taken away in this call: it is to be made when it is decided, not before.
    """
    broker = heartbeats.end_one_session(now_ms)
    if broker is None:
        return ControllerResult([], lambda error: False if error is None else error)

    async def decide() -> ControllerResult[bool | KafkaError]:
        decided = await _fenced(image, broker, updates)
        return ControllerResult(decided, lambda error: True if error is None else error, may_split=True)

    return decide()


def change_version(change: records.BrokerRegistrationChangeRecord) -> int:
    """The version in which Kafka writes a change: the least that can say it."""
    if change.cordoned_log_dirs is not None:
        return 3
    if change.log_dirs:
        return 2
    return 1 if change.in_controlled_shutdown else 0


def _result(
    decided: list[Message], met: Circumstances, after: BrokerControlState
) -> ControllerResult[BrokerHeartbeatReply | KafkaError]:
    reply = BrokerHeartbeatReply(
        is_caught_up=met.is_caught_up,
        is_fenced=after.fenced,
        in_controlled_shutdown=after is BrokerControlState.CONTROLLED_SHUTDOWN,
        should_shut_down=after.should_shut_down,
    )
    return ControllerResult(decided, lambda error: reply if error is None else error, may_split=True)


async def _entered(image: ClusterImage, move: _Transition, updates: LeaderAndIsrUpdates) -> list[Message]:
    """What comes of the next state, if it is another one."""
    broker_id, broker_epoch = move.broker
    if move.after is move.before:
        return []
    if move.after.fenced:
        return await _fenced(image, move.broker, updates)
    if move.after is BrokerControlState.UNFENCED:
        change = BrokerChange(added=broker_id)
        return [unfence(broker_id, broker_epoch), *await updates(image, change)]
    # The controller before this one may have written so already.
    decided = (
        [] if move.registered.in_controlled_shutdown else [begin_controlled_shutdown(broker_id, broker_epoch)]
    )
    return [*decided, *await updates(image, BrokerChange(removed=broker_id))]


async def _fenced(
    image: ClusterImage, broker: BrokerIncarnation, updates: LeaderAndIsrUpdates
) -> list[Message]:
    decided = await updates(image, BrokerChange(removed=broker.node_id))
    return [*decided, fence(broker.node_id, broker.broker_epoch)]


class _FailedDirectories(NamedTuple):
    lost: list[bytes]
    online: list[bytes]


def _failed_directories(
    image: ClusterImage, registered: BrokerImage, offline: Collection[bytes]
) -> _FailedDirectories | None:
    """Those of the registration that the broker says are offline, and its others. It names all that ever failed."""
    if not offline or image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
        return None
    named = {*offline}
    if named.isdisjoint(registered.log_dirs):
        return None
    directories = in_order(registered.log_dirs)
    return _FailedDirectories(
        [each for each in directories if each in named], [each for each in directories if each not in named]
    )


async def _without_directories(
    image: ClusterImage, broker: BrokerIncarnation, failed: _FailedDirectories, updates: LeaderAndIsrUpdates
) -> list[Message]:
    """All that failed in one walk over the partitions, where Kafka makes one for each. A registration that is left none
    keeps what it had, in Kafka and in the image: an empty list is no change."""
    lost, online = failed
    decided = await updates(image, BrokerChange(removed=broker.node_id, directories=lost))
    return [
        *decided,
        records.BrokerRegistrationChangeRecord(
            broker_id=broker.node_id, broker_epoch=broker.broker_epoch, log_dirs=online
        ),
    ]


def _cordoned(
    image: ClusterImage, broker: BrokerIncarnation, registered: BrokerImage, told: list[bytes] | None
) -> list[Message]:
    """Null is told as long as the broker doesn't know yet; the first list counts though it is empty."""
    known = registered.cordoned_log_dirs
    if told is None or told == known or image.features.get(METADATA_VERSION, 0) < CORDONED_SINCE:
        return []
    if known is not None and {*told} == {*known}:
        return []
    return [
        records.BrokerRegistrationChangeRecord(
            broker_id=broker.node_id, broker_epoch=broker.broker_epoch, cordoned_log_dirs=told
        )
    ]


async def _leads(image: ClusterImage, broker_id: int) -> bool:
    """Whether the broker leads any partition."""
    pause = Pause()
    for topic in image.topics.values():
        if pause.is_due(1 + len(topic.partitions)):
            await turn()
        if any(partition.leader == broker_id for partition in topic.partitions.values()):
            return True
    return False
