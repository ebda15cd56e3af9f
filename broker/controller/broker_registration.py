"""Brokers come and go: BrokerRegistration and UnregisterBroker, from what is asked and the image to records.

What else is needed is an argument: sessions (`BrokerHeartbeats`), and who decides what becomes of partitions
(`LeaderAndIsrUpdates`). Everything goes in steps, the image staying as it is meanwhile.
Source: `ClusterControlManager.registerBroker`, `ReplicationControlManager` (handleBrokerShutdown, unregisterBroker);
KIP-631, KIP-858, KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from broker.controller.broker_change import BrokerChange, LeaderAndIsrUpdates
from broker.controller.broker_directories import is_reserved
from broker.controller.controller_result import ControllerResult
from broker.controller.features import ELR_VERSION, KRAFT_VERSION
from broker.controller.pause import Pause
from broker.controller.record_bounds import check_records
from broker.controller.record_versions import DIRECTORIES_SINCE, METADATA_VERSION
from broker.controller.registration import BrokerIncarnation
from coordinator.java.maps import is_blank
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import turn
from protocol.wire.primitives import uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.controller.broker_heartbeats import BrokerHeartbeats
    from broker.controller.broker_image import BrokerImage
    from broker.controller.image import ClusterImage
    from protocol.messages.broker_to_controller import (
        AdvertisedListener,
        BrokerRegistrationRequest,
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
