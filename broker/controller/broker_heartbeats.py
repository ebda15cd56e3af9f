"""The active controller's own knowledge of brokers, beside the metadata: when it last heard from each one, and
how much of the metadata log that broker has.

None of this is in the log. A new active controller starts afresh (`become_active`) and follows each record
from there (`replay`). As in Kafka, a heartbeat counts when it arrives, before the controller decides anything
about it. So a busy controller doesn't fence brokers, and a broker whose heartbeat waits long still counts as
alive.

Only registered brokers in their current epoch are tracked; other heartbeats leave no trace. (Kafka keeps the
time of each pair of broker and epoch that a heartbeat names, until its session would have ended.) Handling a
heartbeat looks at no other broker.

Source: `BrokerHeartbeatManager`, `BrokerHeartbeatTracker`, `ClusterControlManager.activate`; KIP-631.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.controller.broker_records import FENCED, IN_CONTROLLED_SHUTDOWN, UNFENCED, BrokerIncarnation
from protocol.errors import BrokenInvariantError
from protocol.messages import metadata_records as records

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from protocol.wire.schema import Message


# --- The states of a broker as its controller sees them, and how heartbeats change them ---------------------
#
#     FENCED ⇄ UNFENCED → CONTROLLED_SHUTDOWN → SHUTDOWN_NOW
#
# A broker that is told to shut down now is fenced, and stays registered. If it goes on with its heartbeats, it
# is a fenced broker again. Source: `BrokerControlState`, `BrokerHeartbeatManager.calculateNextBrokerState`;
# KIP-631.


class BrokerControlState(Enum):
    """A broker's state. The answer to its next heartbeat carries `fenced` and `should_shut_down`."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def fenced(self) -> bool:
        """True if the broker leads nothing and is in no ISR."""
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)

    @property
    def should_shut_down(self) -> bool:
        """True if nothing waits for the broker any more."""
        return self is BrokerControlState.SHUTDOWN_NOW


class BrokerWish(Enum):
    """What a heartbeat asks for: `(want_fence, want_shut_down)`."""

    RUN = (False, False)
    FENCE = (True, False)
    SHUT_DOWN = (False, True)
    FENCE_AND_SHUT_DOWN = (True, True)


class Circumstances(NamedTuple):
    """The other facts that decide the next state."""

    is_caught_up: bool
    """The broker has the metadata up to its own registration."""
    leads: bool
    """The broker leads a partition. Set only if `asks_who_leads` asks for it."""
    others_have_passed: bool
    """Every active broker has the metadata up to the records of the controlled shutdown."""


def asks_who_leads(state: BrokerControlState, wish: BrokerWish) -> bool:
    """True if the next state depends on what the broker leads. To find that out takes a walk over all
    partitions."""
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
    # Once begun, a controlled shutdown goes through, whatever the broker asks for.
    **{(BrokerControlState.CONTROLLED_SHUTDOWN, wish): _go_on_shutting_down for wish in BrokerWish},
    **{(BrokerControlState.SHUTDOWN_NOW, wish): _shut_down_now for wish in BrokerWish},
}
"""The next state, by the current state and the wish."""


# --------------------------------------------------------------------------------------------------------------

CHECKS_PER_TIMEOUT = 8
"""How often to check sessions within one timeout (Kafka:
`QuorumController.maybeFenceStaleBrokerPeriodNs`)."""

_NOT_SAID = -1
_NO_SHUTDOWN = -1
_NOT_TOLD = 1 << 63  # above every offset
_NOBODY_ACTIVE = (1 << 63) - 1  # Long.MAX_VALUE


@dataclass(slots=True)
class _Known:
    """A registered broker."""

    broker_epoch: int
    fenced: bool
    registered_at: int
    metadata_offset: int = _NOT_SAID
    shutdown_offset: int = _NO_SHUTDOWN

    @property
    def is_active(self) -> bool:
        return not self.fenced and self.shutdown_offset == _NO_SHUTDOWN


class BrokerHeartbeats:
    """The brokers of one cluster. Times are in milliseconds, on a clock that never goes back."""

    def __init__(self, session_timeout_ms: int = 9_000) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._brokers: dict[int, _Known] = {}
        self._contacts: OrderedDict[int, int] = OrderedDict()
        """Broker id → when it was last heard, oldest first. All sessions last equally long, so they end in
        this order."""
        self._ended: tuple[int, int] | None = None
        """The broker whose session ended last, and when it was last heard."""
        self._active: list[tuple[int, int]] = []
        """(metadata offset, broker id) of the active brokers, lowest first."""

    @property
    def check_interval_ms(self) -> float:
        """How often to look for sessions that have ended (`end_one_session`)."""
        return max(1.0, self._session_timeout_ms / CHECKS_PER_TIMEOUT)

    # --- the metadata ---------------------------------------------------------------------------------------

    def become_active(self, image: ClusterImage, last_offset: int, now_ms: int) -> None:
        """Take over as the active controller. Each broker that isn't fenced gets a session that begins now.

        `last_offset` is that of the last record in the image. It stands for the offset of each registration,
        so nobody is asked to catch up beyond it. (Kafka does the same for registrations that came with a
        snapshot.)
        """
        self.resign()
        for broker_id, broker in image.brokers.items():
            self._add(broker_id, _Known(broker.broker_epoch, broker.fenced, last_offset))
            if not broker.fenced:
                self._contacts[broker_id] = now_ms

    def resign(self) -> None:
        """Forget everything: this controller is no longer the active one."""
        self._brokers.clear()
        self._contacts.clear()
        self._active.clear()

    def replay(self, record: Message, offset: int) -> None:
        """Follow a record that this controller wrote at an offset. Records about other things than brokers
        change nothing.

        As in Kafka, a broker whose registration changes has to report its offset again. Until then, the
        controlled shutdowns of other brokers wait for it.
        """
        follow = _REPLAY.get(type(record))
        if follow is not None:
            follow(self, record, offset)

    def _register(self, record: records.RegisterBrokerRecord, offset: int) -> None:
        known = self._remove(record.broker_id)
        if known is None or known.broker_epoch != record.broker_epoch:
            self._contacts.pop(record.broker_id, None)  # that of the previous run
        self._add(record.broker_id, _Known(record.broker_epoch, record.fenced, offset))

    def _unregister(self, record: records.UnregisterBrokerRecord, offset: int) -> None:
        self._remove(record.broker_id)
        self._contacts.pop(record.broker_id, None)

    def _change(self, record: records.BrokerRegistrationChangeRecord, offset: int) -> None:
        known = self._remove(record.broker_id)
        if known is None:
            raise BrokenInvariantError(f"a change of the unknown broker {record.broker_id}")
        known.metadata_offset = _NOT_SAID
        if record.fenced == FENCED:
            known.fenced = True
            known.shutdown_offset = _NO_SHUTDOWN
        elif record.fenced == UNFENCED:
            known.fenced = False
        if record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN and known.is_active:
            known.shutdown_offset = _NOT_TOLD
        self._add(record.broker_id, known)

    def _add(self, broker_id: int, known: _Known) -> None:
        self._brokers[broker_id] = known
        if known.is_active:
            insort(self._active, (known.metadata_offset, broker_id))

    def _remove(self, broker_id: int) -> _Known | None:
        known = self._brokers.pop(broker_id, None)
        if known is not None and known.is_active:
            del self._active[bisect_left(self._active, (known.metadata_offset, broker_id))]
        return known

    # --- heartbeats -----------------------------------------------------------------------------------------

    def heard(self, broker: BrokerIncarnation, metadata_offset: int, now_ms: int) -> None:
        """Note a heartbeat from a broker that has the metadata up to this offset."""
        broker_id = broker.node_id
        known = self._of(broker)
        if known is None:
            return
        self._contacts[broker_id] = now_ms
        self._contacts.move_to_end(broker_id)
        if known.metadata_offset != metadata_offset:
            self._remove(broker_id)
            known.metadata_offset = metadata_offset
            self._add(broker_id, known)

    def shutdown_written(self, broker: BrokerIncarnation, last_offset: int) -> None:
        """Note that the controller answered a heartbeat with "in controlled shutdown".

        The other brokers have to pass `last_offset`, the offset of the last record so far, before this one
        may go. Only the first call counts. It has no effect if the broker is fenced by now or has registered
        again.
        """
        known = self._of(broker)
        if known is None or known.fenced or known.shutdown_offset not in (_NO_SHUTDOWN, _NOT_TOLD):
            return
        self._remove(broker.node_id)
        known.shutdown_offset = last_offset
        self._add(broker.node_id, known)

    def _of(self, broker: BrokerIncarnation) -> _Known | None:
        known = self._brokers.get(broker.node_id)
        return known if known is not None and known.broker_epoch == broker.broker_epoch else None

    # --- sessions -------------------------------------------------------------------------------------------

    def has_session(self, broker: BrokerIncarnation, now_ms: int) -> bool:
        """True if the broker was heard within the timeout. A broker that has only registered so far
        wasn't."""
        contact_ms = self._contacts.get(broker.node_id)
        return (
            contact_ms is not None
            and self._of(broker) is not None
            and not self._has_ended(contact_ms, now_ms)
        )

    def end_one_session(self, now_ms: int) -> BrokerIncarnation | None:
        """End the session of the broker that has been silent longest, if it is past the timeout, and return
        that broker.

        Each ended session is returned once; that of a fenced broker too, as in Kafka.
        """
        for broker_id, contact_ms in self._contacts.items():
            if not self._has_ended(contact_ms, now_ms):
                break
            del self._contacts[broker_id]
            self._ended = broker_id, contact_ms
            return BrokerIncarnation(broker_id, self._brokers[broker_id].broker_epoch)
        return None

    def session_has_not_ended(self) -> None:
        """Undo the last `end_one_session`, because the records that should follow couldn't be written.

        The broker will be returned again. (Kafka's controller resigns, and the next one starts sessions for
        all brokers.)
        """
        if self._ended is None:
            return
        (broker_id, contact_ms), self._ended = self._ended, None
        if broker_id in self._brokers and broker_id not in self._contacts:
            self._contacts[broker_id] = contact_ms
            self._contacts.move_to_end(broker_id, last=False)

    def _has_ended(self, contact_ms: int, now_ms: int) -> bool:
        return now_ms - contact_ms > self._session_timeout_ms

    # --- facts for deciding about a heartbeat ---------------------------------------------------------------

    def state_of(self, broker_id: int) -> BrokerControlState:
        """A registered broker's state. It is never SHUTDOWN_NOW: a broker that was told to shut down now is
        fenced."""
        known = self._known(broker_id)
        if known.fenced:
            return BrokerControlState.FENCED
        if known.shutdown_offset != _NO_SHUTDOWN:
            return BrokerControlState.CONTROLLED_SHUTDOWN
        return BrokerControlState.UNFENCED

    def is_caught_up(self, broker_id: int, metadata_offset: int) -> bool:
        """True if a broker that has the metadata up to this offset knows of its own registration."""
        return metadata_offset >= self._known(broker_id).registered_at

    def others_have_passed(self, broker_id: int) -> bool:
        """True if every active broker knows of this broker's controlled shutdown."""
        return self._known(broker_id).shutdown_offset <= self.lowest_offset()

    def lowest_offset(self) -> int:
        """The offset that every active broker has. Brokers in controlled shutdown don't count."""
        return self._active[0][0] if self._active else _NOBODY_ACTIVE

    def _known(self, broker_id: int) -> _Known:
        known = self._brokers.get(broker_id)
        if known is None:
            raise BrokenInvariantError(f"broker {broker_id} is registered but unknown here")
        return known


_REPLAY: dict[type[Message], Callable[[BrokerHeartbeats, Any, int], None]] = {
    records.RegisterBrokerRecord: BrokerHeartbeats._register,
    records.UnregisterBrokerRecord: BrokerHeartbeats._unregister,
    records.BrokerRegistrationChangeRecord: BrokerHeartbeats._change,
}
