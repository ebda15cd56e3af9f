"""A broker's life as its controller sees it: registered, caught up, unfenced, and released when it stops.

    STARTING → RECOVERY → RUNNING → PENDING_CONTROLLED_SHUTDOWN → SHUTTING_DOWN

It registers, then sends heartbeats: as often as the controller wants them, and sooner if something changes.

Source: `BrokerLifecycleManager`; KIP-631.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from broker.controller.broker_records import advertised_listeners, feature_ranges
from protocol.errors import Error, KafkaError, error_of
from protocol.messages.broker_to_controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.waiting import carry_on

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.endpoints import Endpoints
    from broker.peers.controller_channel import ToController
    from protocol.wire.schema import Message


log = logging.getLogger("barnabas.peers")

STARTING_INTERVAL_MS = 10
FIRST_SHUTDOWN_INTERVAL_MS = 50
LONGEST_SHUTDOWN_S = 300
"""The longest time that a stop waits for other brokers to take over (Kafka: `BrokerServer.shutdown`)."""


_MEANT = {
    Error.DUPLICATE_BROKER_REGISTRATION: (
        "another broker has node.id={0.broker_id}, or had it a moment ago and its session isn't over"
    ),
    Error.INCONSISTENT_CLUSTER_ID: "its cluster isn't {0.cluster_id}, the one in the log directories here",
    Error.STALE_BROKER_EPOCH: (
        "another broker has registered with node.id={0.broker_id} since, or this one was unregistered"
    ),
}
"""Explanations of the controller's refusals. The registration fills in the fields."""


class BrokerState(Enum):
    """The states, with Kafka's numbers, which a metric shows."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class Listening:
    """Callbacks for the stages of the life, each called once."""

    caught_up: Callable[[], None]
    """The metadata includes this broker's registration, so the logs may be opened by it."""
    unfenced: Callable[[], None]
    """Clients may come."""
    let_go: Callable[[], None]
    """It leads nothing any more and may stop. Also called if there is no need to wait."""
    not_registered: Callable[[str], None]
    """It can't start: no controller has registered it within `initial.broker.registration.timeout.ms`, for
    this reason."""


class BrokerLifecycle:
    """The life of one run of a broker."""

    def __init__(
        self,
        registration: BrokerRegistrationRequest,
        channel: ToController,
        scheduler: Scheduler,
        metadata_offset: Callable[[], int],
        listening: Listening,
        *,
        heartbeat_interval_ms: int = 2_000,
        registration_timeout_ms: int = 60_000,
        is_controlled: bool = True,
        cordoned: Callable[[], list[bytes] | None] = lambda: None,
    ) -> None:
        """`metadata_offset` returns the last one applied. `is_controlled` turns controlled shutdown on.
        `cordoned` returns ids of directories, or None if the cluster's metadata.version doesn't have cordoned
        ones."""
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self._registration = registration
        self._channel = channel
        self._scheduler = scheduler
        self._metadata_offset = metadata_offset
        self._listening = listening
        self._interval_ms = heartbeat_interval_ms
        self._registration_timeout_ms = registration_timeout_ms
        self._is_controlled = is_controlled
        self._cordoned = cordoned
        self._is_registered = False
        self._is_ready = False
        self._is_at_once = False
        self._was_answered_in_shutdown = False
        self._refusal = ""  # of the last registration
        self._heartbeat_failure = ""  # the last heartbeat's
        self._offline: dict[bytes, bool] = {}  # directory id → True once the controller knows
        self._told_offline: list[bytes] = []  # in the last heartbeat
        self._timer: Scheduled | None = None
        self._timeout: Scheduled | None = None

    # --- events ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to register."""
        self.state = BrokerState.STARTING
        self._timeout = self._scheduler.call_later(self._registration_timeout_ms / 1000, self._too_late)
        self._communicate()

    def ready(self) -> None:
        """Ask to be unfenced: the logs are open, and each partition is in its role."""
        self._is_ready = True
        self._schedule(0)

    def register_again(self) -> None:
        """Register again, since the controller's registration lacks something."""
        self._is_registered = False
        self._schedule(0)

    def lost_directory(self, directory_id: bytes) -> None:
        """Report a directory that failed for good."""
        self._offline.setdefault(directory_id, False)
        if self._is_registered:
            self._schedule(0)

    def cordoned_changed(self) -> None:
        """Report that other directories are cordoned now."""
        if self._is_registered:
            self._schedule(0)

    def knows_lost(self, directory_id: bytes) -> bool:
        """True if the controller knows that the directory failed."""
        return self._offline.get(directory_id, False)

    @property
    def is_over(self) -> bool:
        """True once nothing more is sent."""
        return self.state is BrokerState.SHUTTING_DOWN

    def begin_controlled_shutdown(self) -> None:
        """Ask for other brokers to lead this one's partitions. `let_go` is called when they do."""
        if self.state is BrokerState.RUNNING and self._is_controlled:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            log.info(
                "waiting up to %d s for other brokers to take over this broker's partitions",
                LONGEST_SHUTDOWN_S,
            )
            self._timeout = self._scheduler.call_later(LONGEST_SHUTDOWN_S, self._left_waiting)
            self._schedule(0)
        elif self.state not in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN):
            why = f"the broker is {self.state.name}" if self._is_controlled else "a setting turns it off"
            log.info("no controlled shutdown: %s", why)
            self._shut_down()

    def stop(self) -> None:
        """Send nothing more, and call nothing back."""
        self.state = BrokerState.SHUTTING_DOWN
        self._cancel(self._timer)
        self._cancel(self._timeout)
        self._timer = self._timeout = None
        self._channel.stop()

    # --- requests -------------------------------------------------------------------------------------------

    def _communicate(self) -> None:
        self._timer = None
        if self._channel.is_busy:
            self._is_at_once = True
        else:
            carry_on(self._beat() if self._is_registered else self._register())

    async def _ask(self, request: Message) -> Message | str:
        """Return the answer, or the reason why there is none."""
        try:
            answer = await self._channel.ask(request, timeout_ms=self._interval_ms)
        except KafkaError as failure:
            return failure.message or failure.error.name
        assert isinstance(answer, BrokerRegistrationResponse | BrokerHeartbeatResponse)
        error = error_of(answer.error_code)
        if error is Error.NONE:
            return answer
        meant = f": {_MEANT[error].format(self._registration)}" if error in _MEANT else ""
        return f"the controller refuses with {error.name}{meant}"

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        self._told_offline = [*self._offline]
        return BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._is_ready,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=self._told_offline,
            # Once the broker is ready, it has followed the metadata and knows which directories are cordoned.
            cordoned_log_dirs=self._cordoned() if self._is_ready else None,
        )

    async def _register(self) -> None:
        answer = await self._ask(self._registration)
        if isinstance(answer, str):
            if answer != self._refusal:  # logged once: it tries again at every heartbeat interval
                self._refusal = answer
                log.warning("this broker isn't registered yet, trying again: %s", answer)
            self._schedule_after_failure()
            return
        assert isinstance(answer, BrokerRegistrationResponse)
        self.broker_epoch = answer.broker_epoch
        self._is_registered = True
        self._cancel(self._timeout)
        self._timeout = None
        log.info("the controller has registered this broker with epoch %d", self.broker_epoch)
        self._schedule(0)

    async def _beat(self) -> None:
        answer = await self._ask(self._heartbeat())
        failure = answer if isinstance(answer, str) else ""
        if (
            failure and failure != self._heartbeat_failure
        ):  # logged once: the next heartbeat comes at every interval
            log.warning("a heartbeat to the controller failed, trying again: %s", failure)
        self._heartbeat_failure = failure
        if failure:
            self._schedule_after_failure()
            return
        assert isinstance(answer, BrokerHeartbeatResponse)
        for directory_id in self._told_offline:
            self._offline[directory_id] = True
        _ANSWERED[self.state](self, answer)

    # --- handling the answer to a heartbeat, by state -------------------------------------------------------

    def _while_starting(self, told: BrokerHeartbeatResponse) -> None:
        self._schedule(STARTING_INTERVAL_MS)
        if told.is_caught_up:
            self.state = BrokerState.RECOVERY
            self._listening.caught_up()

    def _while_in_recovery(self, told: BrokerHeartbeatResponse) -> None:
        self._schedule(self._interval_ms)
        if not told.is_fenced:
            self.state = BrokerState.RUNNING
            self._listening.unfenced()

    def _while_running(self, told: BrokerHeartbeatResponse) -> None:
        self._schedule(self._interval_ms)

    def _while_pending(self, told: BrokerHeartbeatResponse) -> None:
        if told.should_shut_down:
            self._shut_down()
        else:
            is_first = not self._was_answered_in_shutdown
            self._schedule(FIRST_SHUTDOWN_INTERVAL_MS if is_first else self._interval_ms)
        self._was_answered_in_shutdown = True

    def _while_stopped(self, told: BrokerHeartbeatResponse) -> None:
        """Ignore the answer: it is too late."""

    # --- timing ---------------------------------------------------------------------------------------------

    def _schedule_after_failure(self) -> None:
        self._is_at_once = False
        self._schedule(self._interval_ms)

    def _schedule(self, in_ms: int) -> None:
        if self.state in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            return
        if self._is_at_once:
            in_ms, self._is_at_once = 0, False
        self._cancel(self._timer)
        self._timer = self._scheduler.call_later(in_ms / 1000, self._communicate)

    def _too_late(self) -> None:
        reason = self._refusal or self._channel.trouble or "no controller has answered"
        self.stop()
        self._listening.not_registered(reason)

    def _left_waiting(self) -> None:
        log.warning(
            "no other broker has taken over this broker's partitions in %d s: stopping", LONGEST_SHUTDOWN_S
        )
        self._shut_down()

    def _shut_down(self) -> None:
        self.stop()
        self._listening.let_go()

    @staticmethod
    def _cancel(timer: Scheduled | None) -> None:
        if timer is not None:
            timer.cancel()


_ANSWERED: dict[BrokerState, Callable[[BrokerLifecycle, BrokerHeartbeatResponse], None]] = {
    BrokerState.NOT_RUNNING: BrokerLifecycle._while_stopped,
    BrokerState.STARTING: BrokerLifecycle._while_starting,
    BrokerState.RECOVERY: BrokerLifecycle._while_in_recovery,
    BrokerState.RUNNING: BrokerLifecycle._while_running,
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: BrokerLifecycle._while_pending,
    BrokerState.SHUTTING_DOWN: BrokerLifecycle._while_stopped,
}


# --------------------------------------------------------------------------------------------------------------
# A broker's registration of this run, for a controller on another node or in its own process.


def registration_request(
    config: BrokerConfig, endpoints: Endpoints, log_dirs: LogDirs, incarnation_id: bytes
) -> BrokerRegistrationRequest:
    """`incarnation_id` tells this run from others."""
    # Claimed only if all logs were closed cleanly. Otherwise this broker may have lost acknowledged records
    # (KIP-966).
    previous = {directory.broker_epoch for directory in log_dirs.all()}
    return BrokerRegistrationRequest(
        broker_id=config.node_id,
        cluster_id=log_dirs.cluster_id,
        incarnation_id=incarnation_id,
        listeners=advertised_listeners(endpoints.all_advertised()),
        features=feature_ranges(),
        rack=config.get_string("broker.rack"),
        log_dirs=sorted(log_dirs.ids),
        previous_broker_epoch=(previous.pop() or -1) if len(previous) == 1 else -1,
    )
