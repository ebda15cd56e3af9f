"""What is durable of one share partition: a snapshot, with the updates since (Kafka: `ShareGroupOffset`).

State batches are put over each other: of each offset the higher delivery count holds, of equal ones the higher state.
So a state only moves forward, in whatever order the writes of a share partition come. Source:
`PersisterStateBatchCombiner`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from coordinator.persister import NO_COMPLETE_COUNT, NO_START_OFFSET, StateBatch

# --- state batches put over each other ------------------------------------------------------------------------

_Piece = tuple[int, int, int, int]
"""First and last offset, delivery count, delivery state: in the order in which they are merged."""

_FIRST_OFFSET, _LAST_OFFSET = attrgetter("first_offset"), attrgetter("last_offset")


def combined(
    so_far: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Both without what is below the start, in the order of offsets, none over another.

    Neighbours in one state become one. No batch may end before it begins: Kafka fails on such a one. What nothing of
    `new` lies
    over or beside is as it was, and isn't merged again, where it comes from here: a share partition may have tens of
    thousands, and most writes say something of the last ones.
    """
    so_far, new = _cut(so_far, start_offset), _cut(new, start_offset)
    if not new and len(so_far) < 2:
        return tuple(so_far)
    if not _is_merged(so_far):
        return tuple(_merged([*so_far, *new]))
    if not new:
        return tuple(so_far)
    first = min([batch.first_offset for batch in new])
    last = max([batch.last_offset for batch in new])
    from_here = bisect_left(so_far, first - 1, key=_LAST_OFFSET)
    to_here = max(bisect_right(so_far, last + 1, key=_FIRST_OFFSET), from_here)
    return (
        *so_far[:from_here],
        *_merged([*so_far[from_here:to_here], *new]),
        *so_far[to_here:],
    )


def begin_and_end_in_order(batches: Sequence[StateBatch]) -> bool:
    """Whether each batch ends no earlier than it begins."""
    return all(batch.first_offset <= batch.last_offset for batch in batches)


def _is_merged(batches: Sequence[StateBatch]) -> bool:
    """Whether they are in the order of offsets, none over another, and no neighbours are in one state."""
    behind, before = None, None
    for first, last, state, count in batches:
        if behind is not None and first <= behind and (first < behind or (state, count) == before):
            return False
        behind, before = last + 1, (state, count)
    return True


def _cut(batches: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
    if start_offset == NO_START_OFFSET:
        return batches
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _merged(batches: list[StateBatch]) -> list[StateBatch]:
    """In one pass over the offsets."""
    if _is_merged(batches):
        return batches
    coming = sorted([(first, last, count, state) for first, last, state, count in batches], reverse=True)
    # the highest first: count and state, both negative, and last offset
    here: list[tuple[int, int, int]] = []
    done: list[_Piece] = []
    at = 0
    while coming or here:
        if not here:
            at = coming[-1][0]
        while coming and coming[-1][0] <= at:
            _, last, count, state = coming.pop()
            heappush(here, (-count, -state, last))
        while here and here[0][2] < at:
            heappop(here)
        if not here:
            continue
        count, state, last = -here[0][0], -here[0][1], here[0][2]
        if coming:
            last = min(last, coming[-1][0] - 1)
        if done and done[-1][1:] == (at - 1, count, state):
            done[-1] = (done[-1][0], last, count, state)
        else:
            done.append((at, last, count, state))
        at = last + 1
    return [StateBatch(first, last, state, count) for first, last, count, state in done]


# --- the state ------------------------------------------------------------------------------------------------


class ShareGroupOffset(NamedTuple):
    """Timestamps in ms since the epoch. `create_timestamp` is when somebody last changed the state by a snapshot; the
    two differ where it was only written down again."""

    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NO_START_OFFSET
    delivery_complete_count: int = NO_COMPLETE_COUNT
    state_batches: tuple[StateBatch, ...] = ()
    create_timestamp: int = 0
    write_timestamp: int = 0

    def updated(self, update: ShareGroupOffset) -> ShareGroupOffset:
        """With an update over it, whose epochs and start are -1 where they stay."""
        start_offset = update.start_offset
        if start_offset == NO_START_OFFSET:
            start_offset = self.start_offset
        return self._replace(
            leader_epoch=self.leader_epoch if update.leader_epoch == -1 else update.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=combined(self.state_batches, update.state_batches, start_offset),
        )
