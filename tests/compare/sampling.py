"""Which scripts a run plays to Apache Kafka itself: a sample that its seed draws, and with `make compare` all.

What Kafka answers was recorded, and stays what it was as long as neither the script nor Kafka's version changes. So
barnabas is held against the recordings, and these against Kafka, some in each run: a broker of Kafka's takes seconds to
start, and each set of properties wants one of its own. Its clusters, four JVMs each, are for `make compare` alone.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

from .cluster_properties import is_cluster
from .play import Script

ALL = "all"
WANTED = os.environ.get("COMPARE", "")
"""`all`, or empty."""

COMMON = "plain"
"""The properties that most scripts are played with."""
ONE_OF = 4
"""Of the scripts with those, one in so many."""
OTHERS = 2
"""Of the other sets of properties so many, with all of their scripts."""


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
