"""A java.util.PriorityQueue: of entries that weigh the same the one that Java would give comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class JavaPriorityQueue(Generic[T]):
    """A binary heap by `weight`; Python's own sifts another way, and gives equal ones in another order."""

    __slots__ = ("_heap", "_weight")

    def __init__(self, weight: Callable[[T], float]) -> None:
        self._weight = weight
        self._heap: list[T] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: T) -> None:
        heap, weight = self._heap, self._weight
        heap.append(item)
        index, weighs = len(heap) - 1, weight(item)
        while index:
            parent = index - 1 >> 1
            if weighs >= weight(heap[parent]):
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = item

    def poll(self) -> T | None:
        """The lightest, taken out; None where there is none."""
        heap, weight = self._heap, self._weight
        if not heap:
            return None
        first, last = heap[0], heap.pop()
        count = len(heap)
        if not count:
            return first
        index, weighs = 0, weight(last)
        while index < count >> 1:
            child = 2 * index + 1
            if child + 1 < count and weight(heap[child]) > weight(heap[child + 1]):
                child += 1
            if weighs <= weight(heap[child]):
                break
            heap[index] = heap[child]
            index = child
        heap[index] = last
        return first
