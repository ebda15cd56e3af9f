"""Brokers and controllers come, are fenced, and go: from what is asked and the image to records.

BrokerRegistration, UnregisterBroker, ControllerRegistration, BrokerHeartbeat, and sessions that end. What else is
needed is an argument: sessions (`BrokerHeartbeats`), and who decides what becomes of partitions
(`LeaderAndIsrUpdates`). Everything goes in steps, the image staying as it is meanwhile.
Source: `ClusterControlManager.registerBroker`, `ReplicationControlManager` (handleBrokerShutdown, unregisterBroker);
KIP-631, KIP-858, KIP-966.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from broker.controller.broker_heartbeats import (
    NEXT_STATE,
    BrokerControlState,
    BrokerHeartbeats,
    BrokerWish,
    Circumstances,
    asks_who_leads,
)
from broker.controller.controller import ControllerResult, check_records
from broker.controller.metadata_versions import (
    CONTROLLER_UNREGISTRATION_SINCE,
    CORDONED_SINCE,
    DIRECTORIES_SINCE,
    ELR_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from broker.controller.partition_changes import BrokerChange, LeaderAndIsrUpdates, leader_and_isr_updates
from broker.controller.registration import (
    FENCED,
    IN_CONTROLLED_SHUTDOWN,
    UNFENCED,
    BrokerIncarnation,
    begin_controlled_shutdown,
    check_broker_epoch,
    fence,
    in_order,
    is_reserved,
    unfence,
)
from coordinator.java.maps import is_blank
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import Pause, Waiting, at_once, turn
from protocol.wire.primitives import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.controller.controller import Controller, Decide
    from broker.controller.image import BrokerImage, ClusterImage
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.partition_changes import OwnSettings
    from broker.environment.scheduler import Clock, Scheduled, Scheduler
    from protocol.messages.broker_to_controller import (
        AdvertisedListener,
        BrokerHeartbeatRequest,
        BrokerRegistrationRequest,
        ControllerRegistrationRequest,
        SupportedFeature,
    )
    from protocol.wire.schema import Message


EndpointRecord = TypeVar("EndpointRecord", records.BrokerEndpoint, records.ControllerEndpoint)

PREVIOUS_EPOCH_SINCE = 3
"""The version of BrokerRegistration from which on a clean end of the run before can be told."""

SECURITY_PROTOCOL_IDS = range(4)  # SecurityProtocol: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL


class RegistrationTerms(NamedTuple):
    """What a registration is held against, as it is when it is decided."""

    cluster_id: str
    kraft_version: int
    next_offset: int
    """Of the metadata log: the epoch of the run that registers."""
    version: int
    """Of the request."""
    now_ms: int


async def register(
    image: ClusterImage,
    heartbeats: BrokerHeartbeats,
    request: BrokerRegistrationRequest,
    terms: RegistrationTerms,
    *,
    updates: LeaderAndIsrUpdates,
) -> ControllerResult[int | KafkaError]:
    """A broker's run begins, fenced, or says anew what it is. The answer is its broker epoch.

    What the run before leaves to be cleaned up comes first. That may be more than one batch, the registration in the
    last: without it the broker registers again.

    Raises KafkaError, by the first check that fails: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION where
    another run of that id has a live session, BROKER_ID_NOT_REGISTERED for a broker that migrates from ZooKeeper,
    INVALID_REGISTRATION, UNKNOWN_SERVER_ERROR by a listener, UNSUPPORTED_VERSION by a feature. Beyond Kafka's
    checks a negative id, which stands for no broker elsewhere, and a listener without a name, on which Kafka's brokers
    fail that follow the log, are INVALID_REGISTRATION.
    """
    broker_id = request.broker_id
    if request.cluster_id != terms.cluster_id:
        raise KafkaError(
            Error.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {terms.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = image.brokers.get(broker_id)
    is_same_run = existing is not None and existing.record.incarnation_id == request.incarnation_id
    if existing is not None and not is_same_run:
        _check_no_session(heartbeats, BrokerIncarnation(broker_id, existing.broker_epoch), terms.now_ms)
    if request.is_migrating_zk_broker:
        raise KafkaError(
            Error.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers."
        )
    if broker_id < 0:
        raise _invalid(f"A broker can't have the id {broker_id}")
    pause = Pause()
    names_directories = image.features.get(METADATA_VERSION, 0) >= DIRECTORIES_SINCE
    if names_directories:
        await _check_directories(image, request, pause)
    finalized = {**image.features, KRAFT_VERSION: terms.kraft_version}
    record = records.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=terms.next_offset,
        end_points=await endpoints(request.listeners, records.BrokerEndpoint, pause),
        features=await _features(finalized, request.features, pause),
        rack=request.rack,
        fenced=True,
        log_dirs=request.log_dirs if names_directories else [],
    )
    decided: list[Message] = []
    if existing is not None and is_same_run:
        record.broker_epoch = existing.broker_epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
    else:
        change = _end_of_run_before(image, existing, request, terms.version)
        decided += await updates(image, change)
    decided.append(record)
    epoch = record.broker_epoch
    return ControllerResult(decided, lambda error: epoch if error is None else error, may_split=True)


async def unregister(
    image: ClusterImage, broker_id: int, updates: LeaderAndIsrUpdates
) -> ControllerResult[KafkaError | None]:
    """The cluster forgets a broker, a live one too. Raises KafkaError: BROKER_ID_NOT_REGISTERED; POLICY_VIOLATION
    where that comes to too many records."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(Error.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    decided = [
        *await updates(image, BrokerChange(removed=broker_id)),
        records.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch),
    ]
    check_records(decided)
    return ControllerResult(decided, lambda error: error)


async def endpoints(
    listeners: Sequence[AdvertisedListener], endpoint: type[EndpointRecord], pause: Pause
) -> list[EndpointRecord]:
    """As a registration has them. Of one name there is one: the last, in the place of the first.

    Raises KafkaError: UNKNOWN_SERVER_ERROR, as Kafka's exceptions come out that have no code, by a security protocol
    that there isn't, port 0 or a blank host; INVALID_REGISTRATION where a name is missing.
    """
    by_name: dict[str, EndpointRecord] = {}
    for each in listeners:
        if pause.is_due():
            await turn()
        if each.security_protocol not in SECURITY_PROTOCOL_IDS:
            raise KafkaError(
                Error.UNKNOWN_SERVER_ERROR,
                f"Unknown security protocol {each.security_protocol} in listener {each.name}",
            )
        if not each.name:
            raise _invalid("Listeners must be named.")
        by_name[each.name] = endpoint(
            name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
        )
    for made in by_name.values():
        if pause.is_due():
            await turn()
        if made.port == 0:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "Cannot serialize ephemeral port 0 in ListenerInfo.")
        if is_blank(made.host):
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR, "Cannot serialize empty host in ListenerInfo.")
    return list(by_name.values())


def _check_no_session(heartbeats: BrokerHeartbeats, broker: BrokerIncarnation, now_ms: int) -> None:
    if heartbeats.has_session(broker, now_ms):
        raise KafkaError(
            Error.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )


async def _check_directories(image: ClusterImage, request: BrokerRegistrationRequest, pause: Pause) -> None:
    wanted = {*request.log_dirs}
    if not wanted:
        raise _invalid("No directories specified in request")
    for directory_id in request.log_dirs:
        if pause.is_due():
            await turn()
        if is_reserved(directory_id):
            raise _invalid("Reserved directory ID in request")
    if len(wanted) != len(request.log_dirs):
        raise _invalid("Duplicate directory ID in request")
    for broker_id, broker in image.brokers.items():
        if pause.is_due(1 + len(broker.log_dirs)):
            await turn()
        if broker_id != request.broker_id and not wanted.isdisjoint(broker.log_dirs):
            directory_id = next(each for each in broker.log_dirs if each in wanted)
            raise _invalid(
                f"Broker {broker_id} is already registered with directory {uuid_to_text(directory_id)}"
            )


async def _features(
    finalized: Mapping[str, int], supported: Sequence[SupportedFeature], pause: Pause
) -> list[records.BrokerFeature]:
    """As a registration has them. Each range has the level that is finalized, 0 where none is; each feature with a
    level above 0 has a range."""
    features: list[records.BrokerFeature] = []
    lacking = {METADATA_VERSION: 0, **{name: level for name, level in finalized.items() if level != 0}}
    for each in supported:
        if pause.is_due():
            await turn()
        lowest, highest = each.min_supported_version, each.max_supported_version
        level = finalized.get(each.name, 0)
        if not lowest <= level <= highest:
            raise _unsupported(each.name, level, lowest, highest)
        features.append(
            records.BrokerFeature(name=each.name, min_supported_version=lowest, max_supported_version=highest)
        )
        lacking.pop(each.name, None)
    if METADATA_VERSION in lacking:
        raise _invalid(f"Request features do not contain '{METADATA_VERSION}'")
    for name, level in lacking.items():
        raise _unsupported(name, level, 0, 0)
    return features


def _unsupported(name: str, level: int, lowest: int, highest: int) -> KafkaError:
    return KafkaError(
        Error.UNSUPPORTED_VERSION,
        f"Unable to register because the broker does not support finalized version {level} of {name}. "
        f"The broker wants a version between {lowest} and {highest}, inclusive.",
    )


def _end_of_run_before(
    image: ClusterImage, existing: BrokerImage | None, request: BrokerRegistrationRequest, version: int
) -> BrokerChange:
    """A clean one is as if it had been fenced. Else what it has may lack its end, which only eligible leader replicas
    make a difference of; so may that of a broker that isn't registered any more."""
    was_clean = (
        version >= PREVIOUS_EPOCH_SINCE
        and existing is not None
        and request.previous_broker_epoch == existing.broker_epoch
    )
    if was_clean or image.features.get(ELR_VERSION, 0) == 0:
        return BrokerChange(removed=request.broker_id)
    return BrokerChange(unclean=request.broker_id)


def _invalid(reason: str) -> KafkaError:
    return KafkaError(Error.INVALID_REGISTRATION, reason)


# --- A controller of the quorum says what it is (KIP-919). The levels of features can be raised by it ---------
#
# Source: `ClusterControlManager.registerController`.

CONTROLLERS_SINCE = 15  # metadata.version 3.7-IV0


async def register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> ControllerResult[KafkaError | None]:
    """What a controller said before counts no more. It needn't be a voter; nothing of it is held against anything.

    Raises KafkaError: UNSUPPORTED_VERSION where the metadata.version is too old; by a listener as a broker's.
    """
    if image.features.get(METADATA_VERSION, 0) < CONTROLLERS_SINCE:
        raise KafkaError(
            Error.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    pause = Pause()
    listeners = await endpoints(request.listeners, records.ControllerEndpoint, pause)
    features = []
    for each in request.features:
        if pause.is_due():
            await turn()
        features.append(
            records.ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
        )
    record = records.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=listeners,
        features=features,
    )
    return ControllerResult([record], lambda error: error)


async def unregister_controller(
    image: ClusterImage, controller_id: int, *, active_id: int
) -> ControllerResult[KafkaError | None]:
    """The cluster forgets a controller (KIP-1312). Raises KafkaError: INVALID_REQUEST of the active one,
    UNSUPPORTED_VERSION where the metadata.version is too old, CONTROLLER_ID_NOT_REGISTERED."""
    if controller_id == active_id:
        raise KafkaError(Error.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if image.features.get(METADATA_VERSION, 0) < CONTROLLER_UNREGISTRATION_SINCE:
        raise KafkaError(
            Error.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if controller_id not in image.controllers:
        raise KafkaError(
            Error.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered."
        )
    return ControllerResult(
        [records.UnregisterControllerRecord(controller_id=controller_id)], lambda error: error
    )


# --- Fenced, unfenced and let go ----------------------------------------------------------------------------
#
# Whoever takes a heartbeat says first that it was heard (`BrokerHeartbeats.heard`), and then has it decided. In one
# answer come what the broker's next state brings, then the directories that failed, then those that are cordoned.
# Partitions change before their broker is fenced, and after its fence is lifted.
# Source: `ReplicationControlManager` (processBrokerHeartbeat, processExpiredBrokerHeartbeat, maybeFenceOneStaleBroker
# and the handleBroker… of each); KIP-631, KIP-841, KIP-858, KIP-1066.


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


# --- A run of the broker in the controller's own process ------------------------------------------------------
#
# It is told nothing and asks nothing: the controller sees it, and its run begins and ends by the decisions that
# others' heartbeats come to. What it would wait for is decided at once.

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


# --- The cluster's brokers as their active controller has them: they register, are heard, and fenced by the clock
#
# What is decided stands above; here it is brought to the log, and what the clock brings about is begun.
# Source: `QuorumController` (registerBroker, processBrokerHeartbeat, the periodic tasks).

log = logging.getLogger("barnabas.controller")


class ClusterControl:
    """Of the active controller. `own` is the broker in the same process, if there is one: it is heard for as long as
    the process is."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataLog,
        controller: Controller,
        *,
        cluster_id: str,
        clock: Clock,
        scheduler: Scheduler,
        own_settings: OwnSettings,
        own: BrokerIncarnation | None,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._cluster_id = cluster_id
        self._clock = clock
        self._scheduler = scheduler
        self._own_settings = own_settings
        self._own = own
        self._heartbeats = BrokerHeartbeats(config.get_int("broker.session.timeout.ms"))
        self._timers: dict[str, Scheduled] = {}
        self._is_stopped = False
        self._refusal = ""

    # --- by the clock ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """This controller is the active one: sessions begin, and what the clock brings about."""
        # Here, so that no start of a node that controls itself alone waits for it.
        from broker.controller.partition_requests import balanced_leaders, unclean_leaders

        metadata = self._metadata
        metadata.on_written = self._replay
        self._heartbeats.become_active(metadata.written, metadata.next_offset - 1, self._now_ms())
        self._every("sessions", self._heartbeats.check_interval_ms / 1000, self._fence_stale)
        if self._config.get_boolean("auto.leader.rebalance.enable"):
            balance_s = self._config.get_int("leader.imbalance.check.interval.seconds")
            self._every("preferred leaders", balance_s, partial(self._elect, balanced_leaders))
        unclean_s = self._config.get_int("unclean.leader.election.interval.ms") / 1000
        self._every("unclean elections", unclean_s, partial(self._elect, unclean_leaders))

    def stop(self) -> None:
        """Nothing is begun any more."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, name: str, interval_s: float, once: Callable[[], Waiting[bool]]) -> None:
        """`once` says whether to go on at once; else the interval counts from its end."""

        def due() -> None:
            del self._timers[name]
            self._controller.begin(go_on())

        async def go_on() -> None:
            schedule(at_once=await once())

        def schedule(*, at_once: bool) -> None:
            if not self._is_stopped:
                self._timers[name] = (
                    self._scheduler.call_soon(due) if at_once else self._scheduler.call_later(interval_s, due)
                )

        schedule(at_once=False)

    async def _fence_stale(self) -> bool:
        self._hear_own()
        answer = await self._decided_by_clock(
            "brokers that are silent can't be fenced",
            lambda image: fence_stale_broker(image, self._heartbeats, self._now_ms(), self._updates()),
        )
        if answer is None:
            self._heartbeats.session_has_not_ended()
        return answer is True

    async def _elect(
        self, elections: Callable[[ClusterImage, OwnSettings], Waiting[ControllerResult[bool | KafkaError]]]
    ) -> bool:
        answer = await self._decided_by_clock(
            "leaders can't be elected", lambda image: elections(image, self._own_settings)
        )
        return answer is True

    async def _decided_by_clock(self, failure: str, decide: Decide[bool | KafkaError]) -> bool | None:
        """None where it can't be decided."""
        answer = await self._controller.submit_own(decide, log, failure)
        if isinstance(answer, KafkaError):
            log.error("%s: %s", failure, answer)
            return None
        return answer

    # --- brokers --------------------------------------------------------------------------------------------

    async def register(self, request: BrokerRegistrationRequest, version: int) -> int | KafkaError:
        """The broker epoch, or why not (`broker_registration.register`)."""

        def decide(image: ClusterImage) -> Waiting[ControllerResult[int | KafkaError]]:
            metadata = self._metadata
            terms = RegistrationTerms(
                self._cluster_id,
                metadata.quorum.kraft_version,
                metadata.next_offset,
                version,
                self._now_ms(),
            )
            return register(image, self._heartbeats, request, terms, updates=self._updates())

        answer = await self._controller.submit(decide)
        if isinstance(answer, KafkaError):
            self._say_refusal(f"broker {request.broker_id} isn't registered: {answer}")
        return answer

    def _say_refusal(self, text: str) -> None:
        """Once, until another one comes: it is asked again every few hundred milliseconds."""
        if text != self._refusal:
            self._refusal = text
            log.warning("%s", text)

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatReply | KafkaError:
        """The broker is heard before it waits; then what comes of it (`broker_registration.heartbeat`)."""
        broker = BrokerIncarnation(request.broker_id, request.broker_epoch)
        self._heartbeats.heard(broker, request.current_metadata_offset, self._now_ms())
        self._hear_own()
        answer = await self._controller.submit(
            lambda image: heartbeat(image, self._heartbeats, request, self._updates())
        )
        if isinstance(answer, BrokerHeartbeatReply) and answer.in_controlled_shutdown:
            self._heartbeats.shutdown_written(broker, self._metadata.next_offset - 1)
        return answer

    def others_know(self) -> bool:
        """Whether every active broker, but for the one in this process, knows the metadata as it is written now."""
        return self._heartbeats.lowest_offset() >= self._metadata.next_offset - 1

    def _hear_own(self) -> None:
        if self._own is not None:
            self._heartbeats.heard(self._own, self._metadata.last_applied_offset, self._now_ms())

    def _replay(self, written: Sequence[Message], base_offset: int) -> None:
        for offset, record in enumerate(written, base_offset):
            self._heartbeats.replay(record, offset)
            _log(record)

    def _updates(self) -> LeaderAndIsrUpdates:
        return partial(leader_and_isr_updates, own=self._own_settings)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _log(record: Message) -> None:
    """What becomes of brokers: whoever reads the controller's log looks for that first."""
    if isinstance(record, records.RegisterBrokerRecord):
        log.info("broker %d registers, with epoch %d", record.broker_id, record.broker_epoch)
    elif isinstance(record, records.UnregisterBrokerRecord):
        log.info("broker %d is unregistered", record.broker_id)
    elif isinstance(record, records.BrokerRegistrationChangeRecord):
        if record.fenced == FENCED:
            log.info("broker %d is fenced", record.broker_id)
        elif record.fenced == UNFENCED:
            log.info("broker %d is unfenced", record.broker_id)
        if record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN:
            log.info("broker %d is about to stop", record.broker_id)
        if record.log_dirs:
            log.info("broker %d has lost a log directory", record.broker_id)
