"""A decision of the controller as a step of a request that goes in turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from broker.network.later import Later

if TYPE_CHECKING:
    from broker.controller.controller import Controller, Decide
    from protocol.errors import KafkaError

T = TypeVar("T")


async def decided(controller: Controller, decide: Decide[T]) -> T | KafkaError:
    """What `Controller.submit` replies; the turn ends only where that isn't known at once."""
    later: Later[T | KafkaError] = Later()
    later.waits_for(controller.submit(decide, later.reply, later.fail))
    return await later
