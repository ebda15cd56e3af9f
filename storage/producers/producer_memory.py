"""How many producers are known at most: of one partition, and of all partitions of a node.

Whoever makes up producer ids leaves an entry for each, for `producer.id.expiration.ms`: a day. Past a bound those that
wrote the longest ago are forgotten, as if they had expired; who has a transaction open is never. What decides is where
in the log a producer wrote last: it is what snapshots and batches say, so that a start decides the same, and nobody
can forge it, as with timestamps.
"""

from __future__ import annotations

import logging
from typing import Protocol
from weakref import WeakSet

logger = logging.getLogger(__name__)

MOST_IN_PARTITION = 100_000
"""Producers of one partition; as many guards of those that are being verified."""
MOST_IN_NODE = 250_000
"""Both, over all partitions."""
_AFTER_ALL_TIMES = 1 << 63


def share(most: int) -> int:
    """How many go at once, so that few are looked through often: an eighth."""
    return max(most // 8, 1)


def silence_order(last_offset: int, last_timestamp_ms: int) -> int:
    """What is less for who wrote earlier. Who is known by a marker alone, without an offset (-1), comes first: the next
    batch of such a producer begins an epoch anyway."""
    return last_offset if last_offset >= 0 else last_timestamp_ms - _AFTER_ALL_TIMES


def longest_silent(orders: dict[int, int], count: int) -> list[int]:
    """So many that wrote the longest ago, by `silence_order`; a few more where they can't be told apart."""
    if not orders or count <= 0:
        return []
    last = sorted(orders.values())[min(count, len(orders)) - 1]
    return [producer_id for producer_id, order in orders.items() if order <= last]


class Crowd(Protocol):
    """The producers of one partition."""

    @property
    def held(self) -> int: ...

    def forget(self, count: int) -> int: ...


def _held(crowd: Crowd) -> int:
    return crowd.held


class ProducerMemory:
    """Of all partitions of a node. What comes is added up; what has gone since is found by counting anew once the sum
    says that there is no room."""

    __slots__ = ("_crowds", "_left")

    def __init__(self) -> None:
        self._crowds: WeakSet[Crowd] = WeakSet()
        self._left = MOST_IN_NODE
        """How many may come before it is counted anew."""

    def count(self, crowd: Crowd) -> None:
        """Those of a partition that are known already."""
        if crowd.held:
            self.comes(crowd, crowd.held)

    def comes(self, crowd: Crowd, number: int = 1) -> None:
        """A producer of the partition, or a guard, is about to be known that wasn't. Room is made where there is
        none."""
        self._crowds.add(crowd)  # not before it has any: most partitions have none
        self._left -= number
        if self._left < 0:
            self._make_room()

    def _make_room(self) -> None:
        held = sum(crowd.held for crowd in self._crowds)
        if held >= MOST_IN_NODE:
            self._cut_down(MOST_IN_NODE - share(MOST_IN_NODE))
            held = sum(crowd.held for crowd in self._crowds)
        # Where all have a transaction open nothing comes of it: it isn't tried with each that comes.
        self._left = MOST_IN_NODE - held - 1 if held < MOST_IN_NODE else share(MOST_IN_NODE)

    def _cut_down(self, most: int) -> None:
        """Partitions that have many lose what they have beyond a level, which is the same for all: those that have
        fewer lose none."""
        by_size = sorted(self._crowds, key=_held)
        level = 0
        for at, crowd in enumerate(by_size):
            level = most // (len(by_size) - at)
            if crowd.held > level:
                break
            most -= crowd.held
        large = [crowd for crowd in by_size if crowd.held > level]
        forgotten = sum([crowd.forget(crowd.held - level) for crowd in large])
        told = "%d producers that wrote the longest ago are forgotten, in %d partitions: there are too many"
        logger.warning(told, forgotten, len(large))
