"""Levels of features by the release of Kafka that a new cluster is to begin with.

Source: `MetadataVersion`, and `Feature.defaultLevel` of each feature.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.controller.features import (
    ELR_VERSION,
    FEATURES,
    KRAFT_VERSION,
    SHARE_VERSION,
    TRANSACTION_VERSION,
)
from broker.controller.record_versions import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    OLDEST_METADATA_VERSION,
)

_IV = {  # the metadata versions of each release, by their number in it
    "3.3": range(3, 4),
    "3.4": range(1),
    "3.5": range(3),
    "3.6": range(3),
    "3.7": range(5),
    "3.8": range(1),
    "3.9": range(1),
    "4.0": range(4),
    "4.1": range(2),
    "4.2": range(2),
    "4.3": range(1),
}
_NAMES = [f"{release}-IV{number}" for release, numbers in _IV.items() for number in numbers]

_LEVELS = dict(zip(_NAMES, range(OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION + 1), strict=True))

# feature → from which metadata.version on a new cluster has its latest level
_LATEST_FROM = {
    ELR_VERSION: _LEVELS["4.1-IV0"],
    "group.version": _LEVELS["4.0-IV0"],
    SHARE_VERSION: _LEVELS["4.2-IV0"],
    "streams.version": _LEVELS["4.2-IV1"],
    TRANSACTION_VERSION: _LEVELS["4.0-IV2"],
}

_ELR_NEEDS = _LEVELS["4.0-IV1"]
SCRAM_NEEDS = _LEVELS["3.5-IV2"]
"""The metadata.version that knows credentials."""


def metadata_version_of(release: str) -> int:
    """Of `4.3-IV0`, or of a release such as `4.3` or `4.3.1`: its last one. Raises ValueError."""
    key = ".".join(release.split(".")[:2])
    of_release = [level for name, level in _LEVELS.items() if name.partition("-")[0] == key]
    level = _LEVELS.get(key) or (of_release or [0])[-1]
    if not level:
        raise ValueError(
            f"Unknown metadata.version '{release}'. Supported metadata.version are: {', '.join(_NAMES)}"
        )
    return level


def release_of(metadata_version: int) -> str:
    """Its name. Raises ValueError where there is none, or none yet."""
    if not OLDEST_METADATA_VERSION <= metadata_version <= LATEST_METADATA_VERSION:
        raise ValueError(
            f"No MetadataVersion with feature level {metadata_version}. Valid feature levels are from "
            f"{OLDEST_METADATA_VERSION} to {LATEST_METADATA_VERSION}."
        )
    return _NAMES[metadata_version - OLDEST_METADATA_VERSION]


def initial_levels(metadata_version: int, wished: Mapping[str, int]) -> dict[str, int]:
    """Of each feature by name, but for those at level 0: what is wished, or else what goes with the metadata.version.
    Raises ValueError for a feature or a level that there isn't."""
    release_of(metadata_version)
    levels = {METADATA_VERSION: metadata_version}
    for name, level in wished.items():
        if name not in FEATURES:
            supported = ", ".join(sorted([*_LATEST_FROM, KRAFT_VERSION]))
            raise ValueError(f"Unsupported feature: {name}. Supported features are: {supported}")
        lowest, highest, _ = FEATURES[name]
        if not lowest <= level <= highest:
            raise ValueError(f"No feature:{name} with feature level {level}")
    for name, since in sorted(_LATEST_FROM.items()):
        _, _, latest = FEATURES[name]
        levels[name] = wished.get(name, latest if metadata_version >= since else 0)
    if levels[ELR_VERSION] and metadata_version < _ELR_NEEDS:
        raise ValueError(
            f"{ELR_VERSION} could not be set to {levels[ELR_VERSION]} because it depends on {METADATA_VERSION} level "
            f"{_ELR_NEEDS}"
        )
    return {name: level for name, level in levels.items() if level}
