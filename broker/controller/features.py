"""The features of a cluster, and the levels of each that this version supports: those of Kafka 4.3.

Source: `Feature`, `QuorumFeatures`.
"""

from __future__ import annotations

from broker.controller.record_versions import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    OLDEST_METADATA_VERSION,
)

TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
ELR_VERSION = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"

# name → (lowest and highest level supported, level that a new cluster is given)
FEATURES: dict[str, tuple[int, int, int]] = {
    METADATA_VERSION: (OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    ELR_VERSION: (0, 1, 1),
    "group.version": (0, 1, 1),
    SHARE_VERSION: (0, 1, 1),
    "streams.version": (0, 1, 1),
    TRANSACTION_VERSION: (0, 2, 2),
}
KRAFT_VERSION_RANGE = (0, 1)  # supported, never finalized by a FeatureLevelRecord


def is_supported(name: str, level: int) -> bool:
    lowest, highest, _ = FEATURES.get(name, (0, 0, 0))
    return lowest <= level <= highest
