"""Raising and lowering the levels of features (KIP-584): a request and the image become records, or an error.

Pure functions. Source: Kafka's `FeatureControlManager`, `ConfigurationControlManager.updateFeatures`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.controller.config_decisions import MIN_INSYNC_REPLICAS
from broker.controller.image import BROKER_RESOURCE, ClusterImage
from broker.controller.metadata_versions import (
    ELR_NEEDS,
    ELR_VERSION,
    FEATURES,
    KRAFT_VERSION,
    KRAFT_VERSION_RANGE,
    METADATA_VERSION,
)
from coordinator.java.maps import JavaMap
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import Pause, turn
from protocol.wire.schema import Message

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3

# The metadata.versions that introduced records which older ones don't know. There is no way back over them
# (`MetadataVersion`).
_METADATA_CHANGED_AT = (7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33)

_SUPPORTED = {**FEATURES, KRAFT_VERSION: KRAFT_VERSION_RANGE}

_CONTROLLERS_SINCE = 15  # 3.7-IV0: controllers register


class FeatureUpdate(NamedTuple):
    """One feature of an UpdateFeatures request. `upgrade_type` is the code from the wire."""

    feature: str
    level: int
    upgrade_type: int


async def updated(
    image: ClusterImage,
    updates: Sequence[FeatureUpdate],
    *,
    kraft_version: int,
    static_min_insync_replicas: int,
) -> list[Message]:
    """Return the records of an update of all features. Raises KafkaError (INVALID_UPDATE_VERSION) and updates
    none.

    If several are invalid, the error names the one that comes first in Kafka's hash map. `kraft.version` is
    in no record (`moves_voters`). As in Kafka a NoOpRecord stands in, so that there is something to wait for.
    """
    wanted: JavaMap[str, FeatureUpdate] = JavaMap()
    pause = Pause()
    for update in updates:
        if pause.is_due():
            await turn()
        wanted[update.feature] = update
    levels = {**image.features, **{name: wanted[name].level for name in FEATURES if name in wanted}}
    await turn()
    decided: list[Message] = []
    for update in wanted.values():
        if update.feature == KRAFT_VERSION:
            _check(image, update, levels, kraft_version)
            if update.upgrade_type == UPGRADE:
                decided.append(records.NoOpRecord())
            continue
        _check(image, update, levels, image.features.get(update.feature, 0))
        decided.append(records.FeatureLevelRecord(name=update.feature, feature_level=update.level))
    elr = wanted.get(ELR_VERSION)
    if elr is not None and elr.level > 0:
        decided = [*_elr_safety(image, static_min_insync_replicas), *decided]
    return decided


def moves_voters(updates: Sequence[FeatureUpdate], kraft_version: int) -> bool:
    """True if a valid update moves the voters into the log (KIP-853)."""
    wanted = {update.feature: update.level for update in updates}
    return wanted.get(KRAFT_VERSION, 0) > kraft_version


def _check(image: ClusterImage, update: FeatureUpdate, levels: Mapping[str, int], current: int) -> None:
    name, level, upgrade_type = update
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(update, "There is no such upgrade type.")
    if level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    if name not in _SUPPORTED:
        raise _invalid(update, "This feature is not supported.")
    lowest, highest = _SUPPORTED[name]
    if not lowest <= level <= highest:
        raise _invalid(update, f"Versions {lowest} to {highest} are supported.")
    _check_nodes(image, update)
    _check_direction(update, current)
    if name == METADATA_VERSION:
        changed = [version for version in _METADATA_CHANGED_AT if level < version <= current]
        if changed:
            raise KafkaError(
                Error.INVALID_UPDATE_VERSION,
                f"Unsupported metadata.version downgrade from {current} to {level}. "
                f"Metadata of version {changed[0]} may be in the log: there is no way back over it.",
            )
    elif name == KRAFT_VERSION and level < current:
        raise _invalid(update, "Its voters stay in the log.")
    elif name == ELR_VERSION and level > 0 and levels[METADATA_VERSION] < ELR_NEEDS:
        raise _invalid(update, f"It needs metadata.version {ELR_NEEDS}.")


def _check_nodes(image: ClusterImage, update: FeatureUpdate) -> None:
    """Check that each registered node supports the level (Kafka:
    `FeatureControlManager.reasonNotSupported`)."""
    registered: list[tuple[str, Sequence[records.BrokerFeature | records.ControllerFeature]]] = []
    registered += ((f"Broker {node_id}", each.record.features) for node_id, each in image.brokers.items())
    if image.features[METADATA_VERSION] >= _CONTROLLERS_SINCE:
        registered += (
            (f"Controller {node_id}", each.features) for node_id, each in image.controllers.items()
        )
    for node, features in registered:
        ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in features}
        lowest, highest = ranges.get(update.feature, (0, 0))
        if not lowest <= update.level <= highest:
            raise _invalid(update, f"{node} only supports versions {lowest}-{highest}")


def _check_direction(update: FeatureUpdate, current: int) -> None:
    if update.level < current and update.upgrade_type == UPGRADE:
        raise _invalid(update, "A downgrade has to be asked for as a safe or unsafe one.")
    if update.level > current and update.upgrade_type != UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")


def _elr_safety(image: ClusterImage, static_min_insync_replicas: int) -> list[Message]:
    """Move min.insync.replicas to the cluster's settings and remove it from single brokers, as eligible
    leader replicas need."""
    decided: list[Message] = []
    if MIN_INSYNC_REPLICAS not in image.configs.get((BROKER_RESOURCE, ""), {}):
        decided.append(
            records.ConfigRecord(
                resource_type=BROKER_RESOURCE,
                resource_name="",
                name=MIN_INSYNC_REPLICAS,
                value=str(static_min_insync_replicas),
            )
        )
    decided += (
        records.ConfigRecord(
            resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_INSYNC_REPLICAS, value=None
        )
        for (kind, name), stored in image.configs.items()
        if kind == BROKER_RESOURCE and name and MIN_INSYNC_REPLICAS in stored
    )
    return decided


def _invalid(update: FeatureUpdate, reason: str) -> KafkaError:
    return KafkaError(
        Error.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.level} for feature {update.feature}. {reason}",
    )
