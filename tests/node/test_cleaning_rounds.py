"""What one round of the cleaner does beside the passes it begins, and what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from broker.cleaner.passes import Told
from broker.cleaner.throttle import Throttle
from storage.cleaning.plan import CleaningPlan
from tests.node.compacted import create, fill, partition_of, until, with_topic


class EndlessPasses:
    """Each pass goes on until it is ended."""

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> EndlessPasses:
        return self

    def end(self, ended: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(ended)

    def rest(self) -> None:
        """Nothing is kept."""

    def stop(self) -> None:
        """Nothing is kept."""


async def test_retention_of_the_others_does_not_wait_for_a_pass(tmp_path: Path) -> None:
    node = await with_topic(tmp_path, min_cleanable_dirty_ratio="0.1")
    create(node, "other", cleanup_policy="compact,delete", retention_bytes="0")
    fill(node)
    fill(node, topic="other")
    node.cleaner._passes = EndlessPasses()
    node.cleaner.look()
    await until(lambda: partition_of(node, "other").log.log_start_offset == 20)
    assert partition_of(node).log.cleaning is not None
    await node.stop()
