"""Brokers and controllers that register, are fenced and leave: requests and the image become records.

This covers BrokerRegistration, UnregisterBroker, ControllerRegistration, BrokerHeartbeat, and sessions that
end. The functions take everything else as arguments: sessions (`BrokerHeartbeats`), and the function that
decides about partitions (`LeaderAndIsrUpdates`). They work in steps, and the image doesn't change in between.

Source: `ClusterControlManager.registerBroker`, `ReplicationControlManager` (handleBrokerShutdown,
unregisterBroker); KIP-631, KIP-858, KIP-966.
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
from broker.controller.broker_records import (
    FENCED,
    IN_CONTROLLED_SHUTDOWN,
    UNFENCED,
    BrokerIncarnation,
    begin_controlled_shutdown,
    check_broker_epoch,
    fence,
    unfence,
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
from broker.controller.replica_directories import in_order, is_reserved
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
"""From this version of BrokerRegistration on, a broker can say that its previous run ended cleanly."""

SECURITY_PROTOCOL_IDS = range(4)  # SecurityProtocol: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL


class RegistrationTerms(NamedTuple):
    """The facts by which a registration is decided."""

    cluster_id: str
    kraft_version: int
    next_offset: int
    """Of the metadata log. It becomes the epoch of the run that registers."""
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
    """Begin a broker's run, fenced, or update the registration of its current run. Answers the broker epoch.

    The records that clean up after the previous run come first. They may fill more than one batch; the
    registration is in the last one. If that is missing, the broker registers again.

    Raises KafkaError for the first check that fails:

    - INCONSISTENT_CLUSTER_ID;
    - DUPLICATE_BROKER_REGISTRATION if another run with that id has a live session;
    - BROKER_ID_NOT_REGISTERED for a broker that migrates from ZooKeeper;
    - INVALID_REGISTRATION, UNKNOWN_SERVER_ERROR for a listener, UNSUPPORTED_VERSION for a feature.

    Beyond Kafka's checks, two more are INVALID_REGISTRATION: a negative id, which means "no broker"
    elsewhere, and a listener without a name, on which Kafka's brokers fail when they follow the log.
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
    """Remove a broker from the cluster, even a live one.

    Raises KafkaError: BROKER_ID_NOT_REGISTERED; POLICY_VIOLATION if that takes too many records.
    """
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
    """Return the endpoints of a registration. Of several with one name, the last one counts, in the place of
    the first.

    Raises KafkaError: INVALID_REGISTRATION if a name is missing; UNKNOWN_SERVER_ERROR, as for Kafka's
    exceptions without a code, for an unknown security protocol, port 0 or a blank host.
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
    """Return the features of a registration.

    Each range has to include the finalized level, or 0 if there is none. Each feature with a level above 0
    needs a range.
    """
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
    """Return the change that ends the previous run.

    A clean end has the same effect as fencing. After any other end, the broker's logs may lack their last
    records. That matters only with eligible leader replicas. The same goes for a broker that isn't registered
    any more.
    """
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


# --- Controllers of the quorum register (KIP-919), which allows raising the levels of features --------------
#
# Source: `ClusterControlManager.registerController`.

CONTROLLERS_SINCE = 15  # metadata.version 3.7-IV0


async def register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> ControllerResult[KafkaError | None]:
    """Replace a controller's registration. It needn't be a voter, and nothing in it is checked against other
    facts.

    Raises KafkaError: UNSUPPORTED_VERSION if the metadata.version is too old; for a listener, as in
    `endpoints`.
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
    """Remove a controller from the cluster (KIP-1312).

    Raises KafkaError: INVALID_REQUEST for the active one, UNSUPPORTED_VERSION if the metadata.version is too
    old, CONTROLLER_ID_NOT_REGISTERED.
    """
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


# --- Fencing, unfencing and letting go ----------------------------------------------------------------------
# The caller first reports the heartbeat (`BrokerHeartbeats.heard`), then asks for a decision. One decision
# holds the records for the broker's next state, then those for failed directories, then those for cordoned
# ones. Partitions change before their broker is fenced, and after it is unfenced. Source:
# `ReplicationControlManager` (processBrokerHeartbeat, processExpiredBrokerHeartbeat, maybeFenceOneStaleBroker
# and the handleBroker… of each); KIP-631, KIP-841, KIP-858, KIP-1066.


class BrokerHeartbeatReply(NamedTuple):
    """The answer to a heartbeat. `in_controlled_shutdown` isn't sent: if it is set, the caller has to call
    `BrokerHeartbeats.shutdown_written` once the decision is written, before it answers the broker."""

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
    """Decide about a heartbeat.

    If all is well with the broker, the result comes at once. That costs the same however many brokers and
    partitions there are.

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
    """Fence the broker whose session ended first, if there is one.

    Only one broker at a time, so that the next decision sees the effects of this one. The answer is True if
    there was one. Then the caller asks again at once, otherwise after `BrokerHeartbeats.check_interval_ms`.

    This call ends the session. So make it when the decision is due, not before.
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
    """Return the records for entering the next state, if the state changes."""
    broker_id, broker_epoch = move.broker
    if move.after is move.before:
        return []
    if move.after.fenced:
        return await _fenced(image, move.broker, updates)
    if move.after is BrokerControlState.UNFENCED:
        change = BrokerChange(added=broker_id)
        return [unfence(broker_id, broker_epoch), *await updates(image, change)]
    # The previous controller may have written this already.
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
    """Split the registered directories into those that the broker reports as offline and the others. A broker
    reports all that ever failed."""
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
    """Handle all failed directories in one walk over the partitions; Kafka makes one walk for each.

    If no directory is left, the registration keeps its list, in Kafka and in the image: an empty list means
    no change.
    """
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
    """Return the record for changed cordoned directories. A broker sends null until it knows them. Its first
    list counts even if it is empty."""
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
    """True if the broker leads any partition."""
    pause = Pause()
    for topic in image.topics.values():
        if pause.is_due(1 + len(topic.partitions)):
            await turn()
        if any(partition.leader == broker_id for partition in topic.partitions.values()):
            return True
    return False


# --- The broker in the controller's own process -------------------------------------------------------------
# It sends no requests: the controller sees it. Its run begins and ends by the same decisions as those for
# other brokers' heartbeats. Whatever another broker would wait for is decided at once.

REGISTRATION_VERSION = 4


def begin_run(
    metadata: MetadataLog, request: BrokerRegistrationRequest, updates: LeaderAndIsrUpdates
) -> BrokerIncarnation:
    """Register the broker, unfence it, and let it lead what it may. The leader epochs of what it led before
    grow by 2, however the previous run ended."""
    terms = RegistrationTerms(
        request.cluster_id,
        metadata.quorum.kraft_version,
        metadata.next_offset,
        REGISTRATION_VERSION,
        now_ms=0,
    )
    # No session of a previous run can be alive: that process held the folder.
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
    """Begin a controlled shutdown: other brokers, if there are any, take over its partitions."""
    decided = [begin_controlled_shutdown(*broker)]
    decided += await updates(image, BrokerChange(removed=broker.node_id))
    return ControllerResult(decided, lambda error: error, may_split=True)


def end_run(metadata: MetadataLog, broker: BrokerIncarnation, updates: LeaderAndIsrUpdates) -> None:
    """Complete the controlled shutdown. Begin it first if that hasn't happened."""
    registered = metadata.written.brokers.get(broker.node_id)
    if registered is None or not registered.in_controlled_shutdown:
        metadata.append(at_once(leaving(metadata.written, broker, updates)).records, may_split=True)
    metadata.append([fence(*broker)])


def end_session(metadata: MetadataLog, broker_id: int, updates: LeaderAndIsrUpdates) -> None:
    """End the session of a broker that can't be there any more."""
    image = metadata.written
    decided = at_once(updates(image, BrokerChange(removed=broker_id)))
    metadata.append([*decided, fence(broker_id, image.brokers[broker_id].broker_epoch)], may_split=True)


# --- The active controller's brokers: they register, send heartbeats, and are fenced by the clock -----------
# The functions above decide. This class writes their decisions to the log, and starts what is due by the
# clock. Source: `QuorumController` (registerBroker, processBrokerHeartbeat, the periodic tasks).

log = logging.getLogger("barnabas.controller")


class ClusterControl:
    """The active controller's part. `own` is the broker in the same process, if any. It counts as heard as
    long as the process runs."""

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
        """Take over as the active controller: sessions begin, and so do the periodic tasks."""
        # Imported here, so that a node that is its only controller and broker doesn't load it at its start.
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
        """Start nothing any more."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, name: str, interval_s: float, once: Callable[[], Waiting[bool]]) -> None:
        """Call `once` periodically. It returns True to run again at once; otherwise the interval starts when
        it ends."""

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
        """Return the answer, or None if the decision failed."""
        answer = await self._controller.submit_own(decide, log, failure)
        if isinstance(answer, KafkaError):
            log.error("%s: %s", failure, answer)
            return None
        return answer

    # --- brokers --------------------------------------------------------------------------------------------

    async def register(self, request: BrokerRegistrationRequest, version: int) -> int | KafkaError:
        """Return the broker epoch, or the error (see the function `register`)."""

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
        """Log each refusal once, until a different one comes: brokers try again every few hundred
        milliseconds."""
        if text != self._refusal:
            self._refusal = text
            log.warning("%s", text)

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatReply | KafkaError:
        """Note the heartbeat before it waits in line, then decide about it (see the function `heartbeat`)."""
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
        """True if every active broker, except the one in this process, has all metadata written so far."""
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
    """Log the brokers' changes, which are the first thing to look for in a controller's log."""
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
