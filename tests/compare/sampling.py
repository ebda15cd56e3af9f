"""Which scripts a run plays to Apache Kafka itself, and which to clusters: samples drawn by its seed, or all with `make
compare`.

Kafka's answers are recorded, and stay the same until the script or Kafka's version changes. So barnabas is compared
with the recordings, and in each run some recordings are compared with Kafka. Kafka's broker takes seconds to start, and
each set of properties needs one of its own. Kafka's clusters, four JVMs each, are only for `make compare`.

Each run plays some scripts to a cluster of ours: stopping and killing brokers takes time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

from .cluster_properties import CLUSTER, is_cluster, on_cluster
from .play import Script

ALL = "all"
WANTED = os.environ.get("COMPARE", "")
"""`all`, or empty."""

COMMON = "plain"
"""The properties with which most scripts are played."""
ONE_OF = 12
"""Of the scripts with those, one in this many is played."""
OTHERS = 1
"""Of the other sets of properties, this many are played with all their scripts. Each needs a broker of its own."""


def drawn(scripts: Iterable[Script], seed: object) -> frozenset[str]:
    """Return the names of the scripts that a run with this seed plays to Apache Kafka."""
    by_properties: dict[str, list[str]] = {}
    for script in sorted(scripts, key=lambda script: script.key):
        if is_cluster(script.properties):
            continue
        by_properties.setdefault(script.properties, []).append(script.key)
    chance = random.Random(str(seed))
    common = by_properties.pop(COMMON, [])
    found = chance.sample(common, len(common) // ONE_OF)
    for properties in chance.sample(sorted(by_properties), min(OTHERS, len(by_properties))):
        found += by_properties[properties]
    return frozenset(found)


WRITTEN_FOR_A_CLUSTER = 3
WRITTEN_FOR_ONE = 10
"""Of the scripts for a single broker, one in this many is played to a cluster of ours."""


def drawn_for_barnabas(scripts: Iterable[Script], seed: object) -> frozenset[str]:
    """Return the keys of the scripts that a run with this seed plays to barnabas. All scripts for a single broker are
    among them."""
    chance = random.Random(str(seed))
    found: list[str] = []
    groups: dict[str, list[str]] = {}
    for script in sorted(scripts, key=lambda script: script.key):
        if is_cluster(script.properties):
            groups.setdefault(script.properties, []).append(script.key)
        else:
            found.append(script.key)
    for properties in (CLUSTER, on_cluster(COMMON)):
        keys = groups.pop(properties, [])
        found += chance.sample(keys, len(keys) // _one_of(properties))
    # each other set of properties needs a cluster of its own
    for properties in chance.sample(sorted(groups), min(1, len(groups))):
        found += chance.sample(groups[properties], -(-len(groups[properties]) // 2))
    return frozenset(found)


def _one_of(properties: str) -> int:
    return WRITTEN_FOR_A_CLUSTER if properties == CLUSTER else WRITTEN_FOR_ONE
