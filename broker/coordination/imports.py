"""The modules of the coordinators, imported in steps.

No start waits for them that has nothing to load, so they come once an internal topic is there. That is some 60 ms of
the processor for groups alone: too much for one turn of the loop, in which everybody else waits.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.share_states import SHARE_STATE_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from protocol.waiting import turn
from storage.files import is_shortage

if TYPE_CHECKING:
    from collections.abc import Container


MODULES = {
    SHARE_STATE_TOPIC: (
        "coordinator.share.share_partitions",
        "coordinator.share.shard",
    ),
    OFFSETS_TOPIC: (
        "coordinator.group.records",
        "coordinator.group.consumer.group",
        "coordinator.group.share.group",
        "coordinator.group.streams.group",
        "coordinator.group.classic.group",
        "coordinator.group.store",
        "coordinator.group.parts",
        "coordinator.group.consumer.regexes",
        "coordinator.group.consumer.heartbeats",
        "coordinator.group.share.initializing",
        "coordinator.group.share.share_groups",
        "coordinator.group.streams.sticky",
        "coordinator.group.streams.heartbeats",
        "coordinator.group.shard",
    ),
    TRANSACTION_TOPIC: (
        "coordinator.transaction.state_manager",
        "coordinator.transaction.shard",
    ),
}
"""What the coordinator in a topic's partitions is made of, one behind what it needs; the last has all of it."""


async def import_coordinators(topics: Container[str]) -> None:
    """Those of the internal topics that are there: before their partitions come to be led here, and others ask. Where
    there is too little memory, or no descriptor left, the rest is imported by who needs it, who tries again then."""
    for topic, modules in MODULES.items():
        if topic in topics:
            for name in modules:
                if name not in sys.modules:
                    try:
                        importlib.import_module(name)
                    except (MemoryError, OSError) as failure:
                        if is_shortage(failure):
                            return
                        raise
                    await turn()
