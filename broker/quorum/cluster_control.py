"""The cluster's brokers as their active controller has them: they register, are heard, and are fenced by the clock.

What is decided stands in `broker.controller`; here it is brought to the log, and what the clock brings about is begun.
Source: `QuorumController` (registerBroker, processBrokerHeartbeat, the periodic tasks), `ClusterControlManager`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from broker.controller.broker_heartbeats import BrokerHeartbeats
from broker.controller.broker_registration import (
    BrokerHeartbeatReply,
    RegistrationTerms,
    fence_stale_broker,
    heartbeat,
    register,
)
from broker.controller.partition_changes import leader_and_isr_updates
from broker.controller.partition_requests import balanced_leaders, unclean_leaders
from broker.controller.registration import (
    FENCED,
    IN_CONTROLLED_SHUTDOWN,
    UNFENCED,
    BrokerIncarnation,
)
from protocol.errors import KafkaError
from protocol.messages import metadata_records as records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.controller.controller import Controller, ControllerResult, Decide
    from broker.controller.image import ClusterImage
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.partition_changes import LeaderAndIsrUpdates, OwnSettings
    from broker.environment.scheduler import Clock, Scheduled, Scheduler
    from protocol.messages.broker_to_controller import BrokerHeartbeatRequest, BrokerRegistrationRequest
    from protocol.waiting import Waiting
    from protocol.wire.schema import Message

log = logging.getLogger("barnabas.controller")


class ClusterControl:
    """Of the active controller. `own` is the broker in the same process, if there is one: it is heard for as long as
    the process is."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataLog,
        controller: Controller,
        *,
        cluster_id: str,
        clock: Clock,
        scheduler: Scheduler,
        own_settings: OwnSettings,
        own: BrokerIncarnation | None,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._controller = controller
        self._cluster_id = cluster_id
        self._clock = clock
        self._scheduler = scheduler
        self._own_settings = own_settings
        self._own = own
        self._heartbeats = BrokerHeartbeats(config.get_int("broker.session.timeout.ms"))
        self._timers: dict[str, Scheduled] = {}
        self._is_stopped = False
        self._refusal = ""

    # --- by the clock ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """This controller is the active one: sessions begin, and what the clock brings about."""
        metadata = self._metadata
        metadata.on_written = self._replay
        self._heartbeats.become_active(metadata.written, metadata.next_offset - 1, self._now_ms())
        self._every("sessions", self._heartbeats.check_interval_ms / 1000, self._fence_stale)
        if self._config.get_boolean("auto.leader.rebalance.enable"):
            balance_s = self._config.get_int("leader.imbalance.check.interval.seconds")
            self._every("preferred leaders", balance_s, partial(self._elect, balanced_leaders))
        unclean_s = self._config.get_int("unclean.leader.election.interval.ms") / 1000
        self._every("unclean elections", unclean_s, partial(self._elect, unclean_leaders))

    def stop(self) -> None:
        """Nothing is begun any more."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, name: str, interval_s: float, once: Callable[[], Waiting[bool]]) -> None:
        """`once` says whether to go on at once; else the interval counts from its end."""

        def due() -> None:
            del self._timers[name]
            self._controller.begin(go_on())

        async def go_on() -> None:
            schedule(at_once=await once())

        def schedule(*, at_once: bool) -> None:
            if not self._is_stopped:
                self._timers[name] = (
                    self._scheduler.call_soon(due) if at_once else self._scheduler.call_later(interval_s, due)
                )

        schedule(at_once=False)

    async def _fence_stale(self) -> bool:
        self._hear_own()
        answer = await self._decided_by_clock(
            "brokers that are silent can't be fenced",
            lambda image: fence_stale_broker(image, self._heartbeats, self._now_ms(), self._updates()),
        )
        if answer is None:
            self._heartbeats.session_has_not_ended()
        return answer is True

    async def _elect(
        self, elections: Callable[[ClusterImage, OwnSettings], Waiting[ControllerResult[bool | KafkaError]]]
    ) -> bool:
        answer = await self._decided_by_clock(
            "leaders can't be elected", lambda image: elections(image, self._own_settings)
        )
        return answer is True

    async def _decided_by_clock(self, failure: str, decide: Decide[bool | KafkaError]) -> bool | None:
        """None where it can't be decided."""
        answer = await self._controller.submit_own(decide, log, failure)
        if isinstance(answer, KafkaError):
            log.error("%s: %s", failure, answer)
            return None
        return answer

    # --- brokers --------------------------------------------------------------------------------------------

    async def register(self, request: BrokerRegistrationRequest, version: int) -> int | KafkaError:
        """The broker epoch, or why not (`broker_registration.register`)."""

        def decide(image: ClusterImage) -> Waiting[ControllerResult[int | KafkaError]]:
            metadata = self._metadata
            terms = RegistrationTerms(
                self._cluster_id,
                metadata.quorum.kraft_version,
                metadata.next_offset,
                version,
                self._now_ms(),
            )
            return register(image, self._heartbeats, request, terms, updates=self._updates())

        answer = await self._controller.submit(decide)
        if isinstance(answer, KafkaError):
            self._say_refusal(f"broker {request.broker_id} isn't registered: {answer}")
        return answer

    def _say_refusal(self, text: str) -> None:
        """Once, until another one comes: it is asked again every few hundred milliseconds."""
        if text != self._refusal:
            self._refusal = text
            log.warning("%s", text)

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatReply | KafkaError:
        """The broker is heard before it waits; then what comes of it (`broker_registration.heartbeat`)."""
        broker = BrokerIncarnation(request.broker_id, request.broker_epoch)
        self._heartbeats.heard(broker, request.current_metadata_offset, self._now_ms())
        self._hear_own()
        answer = await self._controller.submit(
            lambda image: heartbeat(image, self._heartbeats, request, self._updates())
        )
        if isinstance(answer, BrokerHeartbeatReply) and answer.in_controlled_shutdown:
            self._heartbeats.shutdown_written(broker, self._metadata.next_offset - 1)
        return answer

    def others_know(self) -> bool:
        """Whether every active broker, but for the one in this process, knows the metadata as it is written now."""
        return self._heartbeats.lowest_offset() >= self._metadata.next_offset - 1

    def _hear_own(self) -> None:
        if self._own is not None:
            self._heartbeats.heard(self._own, self._metadata.last_applied_offset, self._now_ms())

    def _replay(self, written: Sequence[Message], base_offset: int) -> None:
        for offset, record in enumerate(written, base_offset):
            self._heartbeats.replay(record, offset)
            _log(record)

    def _updates(self) -> LeaderAndIsrUpdates:
        return partial(leader_and_isr_updates, own=self._own_settings)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)


def _log(record: Message) -> None:
    """What becomes of brokers: whoever reads the controller's log looks for that first."""
    if isinstance(record, records.RegisterBrokerRecord):
        log.info("broker %d registers, with epoch %d", record.broker_id, record.broker_epoch)
    elif isinstance(record, records.UnregisterBrokerRecord):
        log.info("broker %d is unregistered", record.broker_id)
    elif isinstance(record, records.BrokerRegistrationChangeRecord):
        if record.fenced == FENCED:
            log.info("broker %d is fenced", record.broker_id)
        elif record.fenced == UNFENCED:
            log.info("broker %d is unfenced", record.broker_id)
        if record.in_controlled_shutdown == IN_CONTROLLED_SHUTDOWN:
            log.info("broker %d is about to stop", record.broker_id)
        if record.log_dirs:
            log.info("broker %d has lost a log directory", record.broker_id)
