"""State batches put over each other: of each offset the higher delivery count holds, of equal ones the higher state.

So a state only moves forward, in whatever order the writes of a share partition come.
Source: `PersisterStateBatchCombiner`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from coordinator.persister import NO_START_OFFSET, StateBatch

_Piece = tuple[int, int, int, int]
"""First and last offset, delivery count, delivery state: in the order in which they are merged."""

_STEPS_PER_PIECE = 4
"""Of Kafka's merge. Batches that come from share partitions, each of its own offsets, take three at most; of those that
lie over each other in the worst way it is the square."""


def combined(
    so_far: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Both without what is below the start, in the order of offsets, none over another.

    Neighbours in one state become one, but where something else began with the second of them: as in Kafka.

    No batch may end before it begins: Kafka's merge of such a one with others need not end.
    """
    pieces = [
        (first, last, count, state)
        for batches in (so_far, new)
        for first, last, state, count in _cut(batches, start_offset)
    ]
    if len(pieces) > 1:
        pieces = _merged(pieces)
    return tuple([StateBatch(first, last, state, count) for first, last, count, state in pieces])


def begin_and_end_in_order(batches: Sequence[StateBatch]) -> bool:
    """Whether each batch ends no earlier than it begins."""
    return all(batch.first_offset <= batch.last_offset for batch in batches)


def _cut(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    if start_offset == NO_START_OFFSET:
        return batches
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _merged(pieces: list[_Piece]) -> list[_Piece]:
    """The first two are looked at again and again: what they have in common becomes one, and the rest goes back."""
    heapify(pieces)
    done: list[_Piece] = []
    steps_left = _STEPS_PER_PIECE * len(pieces)
    previous = heappop(pieces)
    while pieces:
        steps_left -= 1
        if steps_left < 0:
            return done + _swept([previous, *pieces])
        first, last, count, state = pieces[0]
        previous_first, previous_last, previous_count, previous_state = previous
        is_same = (count, state) == (previous_count, previous_state)
        if first > previous_last + 1 or (first == previous_last + 1 and not is_same):
            done.append(previous)
            previous = heappop(pieces)
            continue
        heappop(pieces)
        if is_same:
            previous = (previous_first, max(last, previous_last), count, state)
        elif (count, state) < (previous_count, previous_state):
            # only what lies behind the previous one stays
            if last > previous_last:
                heappush(pieces, (previous_last + 1, last, count, state))
        else:
            if previous_last > last:
                heappush(pieces, (last + 1, previous_last, previous_count, previous_state))
            heappush(pieces, (first, last, count, state))
            if previous_first < first:
                heappush(pieces, (previous_first, first - 1, previous_count, previous_state))
            previous = heappop(pieces)
    done.append(previous)
    return done


def _swept(pieces: list[_Piece]) -> list[_Piece]:
    """In one pass over the offsets. The same of each offset, but neighbours in one state become one, whatever began
    there."""
    coming = sorted(pieces, reverse=True)
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
    return done
