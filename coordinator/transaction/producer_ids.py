"""Producer ids, handed out from blocks that the metadata log records (KIP-730; Kafka: `RPCProducerIdManager`).

A block is recorded before its first id is handed out, so that no id is ever given twice; what is left of a block is
lost with a restart.
"""

from __future__ import annotations

from collections.abc import Callable

BLOCK_SIZE = 1000  # ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE


class ProducerIds:
    """The next free producer id."""

    __slots__ = ("_allocate_block", "_end", "_next")

    def __init__(self, allocate_block: Callable[[int], int]) -> None:
        """`allocate_block(size)` records a block and returns its first id."""
        self._allocate_block = allocate_block
        self._next = 0
        self._end = 0

    def next(self) -> int:
        """A producer id that nobody had before."""
        if self._next == self._end:
            self._next = self._allocate_block(BLOCK_SIZE)
            self._end = self._next + BLOCK_SIZE
        producer_id = self._next
        self._next += 1
        return producer_id
