"""The states of a broker as its controller sees them, and what its heartbeats make of them.

    FENCED ⇄ UNFENCED → CONTROLLED_SHUTDOWN → SHUTDOWN_NOW

A broker that is told to shut down now is fenced, and stays registered. Should it go on with its heartbeats it is a
fenced one again.
Source: `BrokerControlState`, `BrokerHeartbeatManager.calculateNextBrokerState`; KIP-631.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple


class BrokerControlState(Enum):
    """What a broker may do: to the next heartbeat it is told `fenced` and `should_shut_down`."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def fenced(self) -> bool:
        """Whether it leads nothing, and is in sync with nothing."""
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)

    @property
    def should_shut_down(self) -> bool:
        """Whether nobody waits for it any more."""
        return self is BrokerControlState.SHUTDOWN_NOW


class BrokerWish(Enum):
    """What a heartbeat asks for: `(want_fence, want_shut_down)`."""

    RUN = (False, False)
    FENCE = (True, False)
    SHUT_DOWN = (False, True)
    FENCE_AND_SHUT_DOWN = (True, True)


class Circumstances(NamedTuple):
    """What else counts."""

    is_caught_up: bool
    """The broker knows the metadata up to its own registration."""
    leads: bool
    """Any partition. Looked at where `asks_who_leads` says so."""
    others_have_passed: bool
    """Every active broker knows the metadata up to the records of the controlled shutdown."""


def asks_who_leads(state: BrokerControlState, wish: BrokerWish) -> bool:
    """Whether the next state depends on what the broker leads: all partitions have to be gone through for that."""
    return NEXT_STATE[state, wish] in (_begin_to_shut_down, _go_on_shutting_down)


def _stay_fenced(met: Circumstances) -> BrokerControlState:
    return BrokerControlState.FENCED


def _stay_unfenced(met: Circumstances) -> BrokerControlState:
    return BrokerControlState.UNFENCED


def _shut_down_now(met: Circumstances) -> BrokerControlState:
    return BrokerControlState.SHUTDOWN_NOW


def _unfence(met: Circumstances) -> BrokerControlState:
    return BrokerControlState.UNFENCED if met.is_caught_up else BrokerControlState.FENCED


def _begin_to_shut_down(met: Circumstances) -> BrokerControlState:
    return BrokerControlState.CONTROLLED_SHUTDOWN if met.leads else BrokerControlState.SHUTDOWN_NOW


def _go_on_shutting_down(met: Circumstances) -> BrokerControlState:
    if met.leads or not met.others_have_passed:
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.SHUTDOWN_NOW


NEXT_STATE: dict[tuple[BrokerControlState, BrokerWish], Callable[[Circumstances], BrokerControlState]] = {
    (BrokerControlState.FENCED, BrokerWish.RUN): _unfence,
    (BrokerControlState.FENCED, BrokerWish.FENCE): _stay_fenced,
    (BrokerControlState.FENCED, BrokerWish.SHUT_DOWN): _shut_down_now,
    (BrokerControlState.FENCED, BrokerWish.FENCE_AND_SHUT_DOWN): _shut_down_now,
    (BrokerControlState.UNFENCED, BrokerWish.RUN): _stay_unfenced,
    (BrokerControlState.UNFENCED, BrokerWish.FENCE): _stay_fenced,
    (BrokerControlState.UNFENCED, BrokerWish.SHUT_DOWN): _begin_to_shut_down,
    (BrokerControlState.UNFENCED, BrokerWish.FENCE_AND_SHUT_DOWN): _shut_down_now,
    # Once begun it is carried through, whatever the broker says.
    **{(BrokerControlState.CONTROLLED_SHUTDOWN, wish): _go_on_shutting_down for wish in BrokerWish},
    **{(BrokerControlState.SHUTDOWN_NOW, wish): _shut_down_now for wish in BrokerWish},
}
"""By the state before and the wish."""
