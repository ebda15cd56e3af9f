"""Leaders' requests to change their ISRs: sent to the controller, many partitions in one request, one request
at a time.

Source: `DefaultAlterPartitionManager`; KIP-497, KIP-903.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from broker.replicas.in_sync_replicas import LeaderAndIsr, WantedIsr
from protocol.errors import Error, KafkaError, error_of, tell_each
from protocol.messages.broker_to_controller import (
    AlteredPartition,
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.waiting import Later, carry_on

if TYPE_CHECKING:
    from broker.controller.broker_records import BrokerIncarnation
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.peers.controller_channel import ToController
    from broker.replicas.in_sync_replicas import PartitionKey

log = logging.getLogger("barnabas.peers")

ALTER_PARTITION_RETRY_MS = 50
"""How long to wait before trying again if the controller refused a whole request."""

MOST_PARTITIONS_PER_REQUEST = 1_000
"""The rest goes with the next request: when a broker dies, it may leave the ISRs of all partitions led
here."""

_RECOVERY_STATES = range(2)  # LeaderRecoveryState: RECOVERED, RECOVERING


class AlterPartitionManager:
    """Sends one broker's ISR changes."""

    def __init__(
        self,
        broker: Callable[[], BrokerIncarnation],
        channel: ToController,
        scheduler: Scheduler,
    ) -> None:
        """`broker` is called before each request, as the broker's epoch changes when it registers again."""
        self._broker = broker
        self._channel = channel
        self._scheduler = scheduler
        self._wanted: dict[PartitionKey, tuple[WantedIsr, Later[LeaderAndIsr]]] = {}
        """The changes without an answer yet, in the order in which they came."""
        self._again: Scheduled | None = None
        self._is_asking = False  # until all of an answer is handled
        self._is_stopped = False

    def submit(self, partition: PartitionKey, wanted: WantedIsr) -> Later[LeaderAndIsr]:
        """Request a new ISR. The result is the partition's state, or a KafkaError if the controller refuses.

        It comes once, in a later turn, however long it takes for a controller to answer; after `stop` it
        never comes. A partition has one request at a time: a second one fails in this call
        (OPERATION_NOT_ATTEMPTED). If this call raises, nothing is requested.
        """
        altered: Later[LeaderAndIsr] = Later()
        if self._is_stopped:
            return altered
        if partition in self._wanted:
            altered.fail(KafkaError(Error.OPERATION_NOT_ATTEMPTED))
            return altered
        self._wanted[partition] = wanted, altered
        try:
            self._send()
        except MemoryError:
            del self._wanted[partition]
            raise
        return altered

    def stop(self) -> None:
        """Send and answer nothing more."""
        self._is_stopped = True
        for _, altered in self._wanted.values():
            altered.abandon()
        self._wanted.clear()
        if self._again is not None:
            self._again.cancel()
        self._channel.stop()

    def _send(self) -> None:
        """Send everything without an answer, unless a request is in flight."""
        if self._is_stopped or self._is_asking or not self._wanted:
            return
        if self._again is not None:
            self._again.cancel()
            self._again = None
        sent = [*islice(self._wanted, MOST_PARTITIONS_PER_REQUEST)]
        request = self._request(sent)
        self._is_asking = True
        try:
            carry_on(self._ask(sent, request))
        except MemoryError:
            self._is_asking = False
            raise

    def _request(self, sent: Sequence[PartitionKey]) -> AlterPartitionRequest:
        broker = self._broker()
        request = AlterPartitionRequest(broker_id=broker.node_id, broker_epoch=broker.broker_epoch)
        topics: dict[bytes, AlterPartitionTopic] = {}
        for topic_id, index in sent:
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = AlterPartitionTopic(topic_id=topic_id)
                request.topics.append(topic)
            wanted, _ = self._wanted[topic_id, index]
            topic.partitions.append(
                AlterPartitionPartition(
                    partition_index=index,
                    leader_epoch=wanted.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch)
                        for broker_id, epoch in wanted.isr
                    ],
                    leader_recovery_state=wanted.leader_recovery_state,
                    partition_epoch=wanted.partition_epoch,
                )
            )
        return request

    async def _ask(self, sent: Sequence[PartitionKey], request: AlterPartitionRequest) -> None:
        try:
            answer = await self._response_to(request)
        except KafkaError as refusal:
            log.warning(
                "the controller refuses a request to alter partitions, trying again: %s",
                refusal.error.name,
            )
            self._is_asking = False
            self._send_later()
            return
        answers = {
            (topic.topic_id, partition.partition_index): partition
            for topic in answer.topics
            for partition in topic.partitions
        }
        try:
            self._tell(sent, answers)
        finally:
            self._is_asking = False
            if any(key not in answers for key in sent):
                log.warning(
                    "the controller's answer lacks partitions that it was asked to alter: trying again"
                )
                self._send_later()
            else:
                self._send()

    async def _response_to(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Send a request. Raises KafkaError if all of it is refused."""
        answer = await self._channel.ask(request, timeout_ms=None)
        assert isinstance(answer, AlterPartitionResponse)
        if answer.error_code:
            raise KafkaError(error_of(answer.error_code))
        return answer

    def _tell(self, sent: Sequence[PartitionKey], answers: Mapping[PartitionKey, AlteredPartition]) -> None:
        """Pass on the answers. The callbacks may request more, which goes with the next request."""

        def tell(key: PartitionKey) -> None:
            if key in answers and key in self._wanted:  # otherwise it has stopped meanwhile
                _, altered = self._wanted.pop(key)
                _answer(altered, answers[key])

        tell_each(sent, tell, log, "a callback for the answer about an ISR failed")

    def _send_later(self) -> None:
        if not self._is_stopped:
            self._again = self._scheduler.call_later(ALTER_PARTITION_RETRY_MS / 1000, self._send_again)

    def _send_again(self) -> None:
        self._again = None
        self._send()


def _answer(later: Later[LeaderAndIsr], altered: AlteredPartition) -> None:
    error = error_of(altered.error_code)
    if error is not Error.NONE:
        later.fail(KafkaError(error))
        return
    if altered.leader_recovery_state not in _RECOVERY_STATES:
        why = f"There is no leader recovery state {altered.leader_recovery_state}."
        later.fail(KafkaError(Error.UNKNOWN_SERVER_ERROR, why))
        return
    later.reply(
        LeaderAndIsr(
            altered.leader_id,
            altered.leader_epoch,
            altered.isr,
            altered.leader_recovery_state,
            altered.partition_epoch,
        )
    )
