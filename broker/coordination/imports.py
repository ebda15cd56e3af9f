"""The modules of the coordinators, imported in steps.

A start with nothing to load doesn't wait for them: they are imported once an internal topic exists. Groups alone take
some 60 ms of processor time. That is too much for one turn of the loop, in which all requests wait.
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
        "coordinator.group.shard_parts",
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
"""The modules of the coordinator behind each topic. Each comes after those that it needs; the last imports all."""


async def import_coordinators(topics: Container[str]) -> None:
    """Import the coordinators of the internal topics that exist, before this broker leads their partitions.

    If memory or descriptors are short, the code that needs the rest imports it, and tries again then."""
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
