"""Which scripts a run plays to Apache Kafka itself, and which to clusters: samples that its seed draws, and with
`make compare` all.

What Kafka answers was recorded, and stays what it was as long as neither the script nor Kafka's version changes. So
barnabas is held against the recordings, and these against Kafka, some in each run: a broker of Kafka's takes seconds to
start, and each set of properties wants one of its own. Its clusters, four JVMs each, are for `make compare` alone.

To a cluster of ours some are played in each run: brokers that are stopped and killed take their time.
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
"""The properties that most scripts are played with."""
ONE_OF = 12
"""Of the scripts with those, one in so many."""
OTHERS = 1
"""Of the other sets of properties so many, with all of their scripts: each wants a broker of its own."""


def drawn(scripts: Iterable[Script], seed: object) -> frozenset[str]:
    """The names of those that are played to Apache Kafka in a run with this seed."""
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
"""Of the scripts that are played to a cluster of ours, one in so many."""


def drawn_for_barnabas(scripts: Iterable[Script], seed: object) -> frozenset[str]:
    """The keys of those that are played to barnabas in a run with this seed: all that a single broker will do for."""
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
    # Each other set of properties wants a cluster of its own.
    for properties in chance.sample(sorted(groups), min(1, len(groups))):
        found += chance.sample(groups[properties], -(-len(groups[properties]) // 2))
    return frozenset(found)


def _one_of(properties: str) -> int:
    return WRITTEN_FOR_A_CLUSTER if properties == CLUSTER else WRITTEN_FOR_ONE
