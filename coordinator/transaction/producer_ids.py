"""Producer ids, handed out from blocks that the metadata log records (KIP-730; Kafka: `RPCProducerIdManager`), and a
producer as it says who it is.

A block is recorded before its first id is handed out, so that no id is ever given twice; what is left of a block is
lost with a restart.
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
    """Who asks."""

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


log = logging.getLogger("barnabas.transactions")

BLOCK_SIZE = 1000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE

AllocateBlock = Callable[[int], Later[int | KafkaError]]
"""Records a block of a size: its first id once it is recorded, or what speaks against it."""


class NoProducerIdError(KafkaError):
    """None is left of the blocks that are recorded: COORDINATOR_LOAD_IN_PROGRESS, as Kafka says then, for older clients
    know no better error that passes."""

    def __init__(self) -> None:
        super().__init__(
            Error.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is left, and a block is asked for"
        )


class ProducerIds:
    """The next free producer id."""

    __slots__ = ("_allocate_block", "_end", "_is_asked", "_next", "_waiting", "blocks")

    def __init__(self, allocate_block: AllocateBlock) -> None:
        self._allocate_block = allocate_block
        self._is_asked = False
        self._next = 0
        self._end = 0
        self._waiting: dict[Later[None], None] = {}  # the first to ask is the first to be told
        self.blocks = 0
        """How many were given to this node since its start."""

    def left(self) -> Later[None]:
        """Answered once `next` has an id, which is there in that call alone; or once none is to be had, of which `next`
        tells; or never, where it is withdrawn. Kafka doesn't wait: its clients have to ask again."""
        left: Later[None] = Later()
        if self._next == self._end:
            self._waiting[left] = None
            self._ask()
        else:
            left.reply(None)
        return left

    @property
    def left_count(self) -> int:
        """How many are left of the block at hand."""
        return self._end - self._next

    def withdraw(self, left: Later[None]) -> None:
        """Whoever waits doesn't any more."""
        self._waiting.pop(left, None)

    def next(self) -> int:
        """A producer id that nobody had before.

        Raises NoProducerIdError where a block isn't recorded yet, or can't be: the client asks again.
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
        """A failure of one is logged and harms none of the others; a broken invariant is raised behind them."""
        broken: Exception | None = None
        while waiting and not (while_left and self._next == self._end):
            first = next(iter(waiting))
            del waiting[first]
            try:
                first.reply(None)
            except Exception as error:
                log.exception("somebody who waited for a producer id can't be told")
                if broken is None and stops_the_broker(error):
                    broken = error
        if waiting:  # more than one block has ids for
            self._ask()
        if broken is not None:
            raise broken
