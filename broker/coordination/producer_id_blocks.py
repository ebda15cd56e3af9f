"""Blocks of producer ids, recorded in the cluster's metadata so that none is handed out twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError, error_name
from protocol.messages.produce import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.waiting import Later, begun

if TYPE_CHECKING:
    from broker.controller.broker_records import BrokerIncarnation
    from broker.peers.controller_channel import ToController
    from protocol.wire.schema import Message

log = logging.getLogger("barnabas.coordination")


class ProducerIdBlocks:
    """Asks the controller for blocks, one at a time, as `ProducerIds` does (Kafka: `RPCProducerIdManager`)."""

    def __init__(self, to_controller: ToController, broker: BrokerIncarnation) -> None:
        self._to_controller = to_controller
        self._broker = broker

    def allocate(self, size: int) -> Later[int | KafkaError]:
        """The first id of a new block of this size, or a KafkaError if there is none.

        The answer comes once the block is recorded on the disk: after a power loss its ids could else be handed out
        twice."""
        return begun(self._allocate(size))

    async def _allocate(self, size: int) -> int | KafkaError:
        request = AllocateProducerIdsRequest(
            broker_id=self._broker.node_id, broker_epoch=self._broker.broker_epoch
        )
        try:
            answer = await self._to_controller.ask(request, timeout_ms=None)
            return _first_of(answer, size)
        except KafkaError as refusal:
            log.error("the controller hands out no producer ids: %s", refusal)
            return refusal


def _first_of(answer: Message, size: int) -> int:
    """The first id of the block. Raises KafkaError."""
    assert isinstance(answer, AllocateProducerIdsResponse)
    if answer.error_code or answer.producer_id_len < size:
        told = f"{error_name(answer.error_code)}, a block of {answer.producer_id_len}"
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, told)
    return answer.producer_id_start
