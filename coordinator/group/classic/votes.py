"""How the members of a group agree on one of their protocols (Kafka: `ClassicGroup.selectProtocol`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator.java_maps import JavaHashMap


def candidates(supported: Iterable[Sequence[str]]) -> set[str]:
    """The protocols that every member supports; one list of names per member."""
    common: set[str] | None = None
    for names in supported:
        common = set(names) if common is None else common & set(names)
    return common or set()


def select_protocol(supported: Sequence[Sequence[str]]) -> str:
    """The candidate with the most votes, each member voting for the first candidate in its own order.

    A tie goes to the one that comes first in the order of a Java HashMap. Raises ValueError where nothing is common.
    """
    common = candidates(supported)
    votes: JavaHashMap[int] = JavaHashMap()
    for names in supported:
        vote = next((name for name in names if name in common), None)
        if vote is None:
            raise ValueError("no protocol is supported by all members")
        votes[vote] = (votes.get(vote) or 0) + 1
    return max(votes.keys(), key=lambda name: votes[name])
