"""What is much to decide of a group: one at a time, as it came, which is how Kafka's partition goes about it.

Requests stand in that line, and what a coordinator decides by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.network.lines import Lines, in_line
from protocol.errors import stops_the_broker
from protocol.waiting import Waiting

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.turns import Turns


log = logging.getLogger("barnabas.coordination")

Deciding = Lines[str]
"""By group; a group that nothing long is being decided of isn't in it."""


def carry_out(
    groups: Groups,
    turns: Turns,
    group_id: str,
    steps: Waiting[None],
    failed: Callable[[BaseException], None],
) -> None:
    """See `coordinator.ports.Runtime.carry_out`. `failed` learns of broken invariants."""

    async def unasked() -> None:
        try:
            await in_line(groups.deciding, group_id, steps)
        finally:
            groups.unasked.pop(under_way, None)

    def tell(error: BaseException) -> None:
        log.error("what was to be decided of group %s is lost", group_id, exc_info=error)
        if stops_the_broker(error):
            failed(error)

    under_way = unasked()
    groups.unasked[under_way] = None
    turns.carry_out(under_way, tell)
