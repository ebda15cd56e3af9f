"""Producer ids, handed out from blocks that the metadata log records (KIP-730; Kafka: `RPCProducerIdManager`).

A block is recorded before its first id is handed out, so no id is ever given twice. A restart loses the rest
of a block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.waiting import Later, carry_on


@dataclass(slots=True)
class TransactionalProducer:
    """A producer as it identifies itself in a request."""

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


log = logging.getLogger("barnabas.transactions")

BLOCK_SIZE = 1000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE

AllocateBlock = Callable[[int], Later[int | KafkaError]]
"""Allocates a block of the given size. Answers its first id once the block is recorded, or the error."""


class NoProducerIdError(KafkaError):
    """No recorded block has an id left.

    The error is COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: older clients know no better retriable error.
    """

    def __init__(self) -> None:
        super().__init__(
            Error.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is left, and a block is asked for"
        )


class ProducerIds:
    """Hands out the next free producer id."""

    __slots__ = ("_allocate_block", "_end", "_is_asked", "_next", "_waiting", "blocks")

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._is_asked = False
        self._next = 0
        self._end = 0
        self._waiting: dict[Later[None], None] = {}  # first come, first served
        self.blocks = 0
        """The number of blocks that this node has received since its start."""

    def left(self) -> Later[None]:
        """Return a `Later` that is answered once `next` has an id, or once a request for a block has failed.

        The id is only there during that call. In case of a failure `next` raises the error. The `Later` is
        never answered if it is withdrawn. Kafka doesn't wait here: its clients have to retry.
        """
        left: Later[None] = Later()
        if self._next == self._end:
            self._waiting[left] = None
            self._ask()
        else:
            left.reply(None)
        return left

    @property
    def left_count(self) -> int:
        """The number of ids left in the current block."""
        return self._end - self._next

    def withdraw(self, left: Later[None]) -> None:
        """Stop waiting: `left` won't be answered."""
        self._waiting.pop(left, None)

    def next(self) -> int:
        """Return a producer id that nobody had before.

        Raises NoProducerIdError if no block is recorded yet, or none can be. The client retries.
        """
        if self._next == self._end:
            self._ask()
        if self._next == self._end:
            raise NoProducerIdError
        producer_id = self._next
        self._next += 1
        return producer_id

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            carry_on(self._renew())

    async def _renew(self) -> None:
        first = await self._allocate_block(BLOCK_SIZE)
        self._is_asked = False
        if isinstance(first, KafkaError):
            waiting, self._waiting = self._waiting, {}
            self._tell(waiting, while_left=False)
            return
        self._next, self._end = first, first + BLOCK_SIZE
        self.blocks += 1
        self._tell(self._waiting, while_left=True)

    def _tell(self, waiting: dict[Later[None], None], *, while_left: bool) -> None:
        """Answer those who wait. A failure of one is logged and harms none of the others.

        A broken invariant is raised after all have been answered.
        """
        broken: Exception | None = None
        while waiting and not (while_left and self._next == self._end):
            first = next(iter(waiting))
            del waiting[first]
            try:
                first.reply(None)
            except Exception as error:
                log.exception("a request that waited for a producer id failed")
                if broken is None and stops_the_broker(error):
                    broken = error
        if waiting:  # one block doesn't have enough ids for all
            self._ask()
        if broken is not None:
            raise broken
