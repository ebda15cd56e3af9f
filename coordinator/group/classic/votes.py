"""How the members of a group agree on one of their protocols (Kafka: `ClassicGroup.selectProtocol`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from coordinator.java.maps import JavaHashMap


def candidates(supported: Sequence[Sequence[str]]) -> set[str]:
    """The protocols that every member supports; one list of names per member.

    As in Kafka, names are counted: one that a member lists twice drops out, unless nothing else would be left (Kafka
    fails then).
    """
    counts = Counter(name for names in supported for name in names)
    common = {name for name, count in counts.items() if count == len(supported)}
    return common or set.intersection(*map(set, supported)) if supported else set()


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
