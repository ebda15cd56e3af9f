"""Cycles of a directed graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet


def cycles(after: Mapping[int, AbstractSet[int]]) -> Iterator[list[int]]:
    """One cycle, as short as can be, of each set of nodes that reach one another. The first node isn't repeated."""
    left = {node: set(targets) for node, targets in after.items()}
    _prune(left)
    seen: set[int] = set()
    for node in left:
        if node not in seen:
            cycle = _back_to(node, left)
            if cycle:
                seen.update(cycle)
                yield cycle


def _prune(left: dict[int, set[int]]) -> None:
    """Repeatedly remove nodes that no cycle goes through: those without a way in or without a way out."""
    sources: dict[int, set[int]] = {node: set() for node in left}
    for node, targets in left.items():
        for target in targets:
            sources[target].add(node)
    ends = [node for node in left if not left[node] or not sources[node]]
    while ends:
        node = ends.pop()
        if node not in left:
            continue
        for target in left.pop(node):
            sources[target].discard(node)
            if target in left and not sources[target]:
                ends.append(target)
        for source in sources.pop(node):
            if source in left:
                left[source].discard(node)
                if not left[source]:
                    ends.append(source)


def _back_to(start: int, left: Mapping[int, AbstractSet[int]]) -> list[int]:
    came_from: dict[int, int] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for target in left[node]:
            if target == start:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if target not in came_from:
                came_from[target] = node
                waiting.append(target)
    return []
