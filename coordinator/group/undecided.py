"""Whose requests wait to be decided, see `deferred.py`: whoever that is isn't late before.

In Kafka a timeout is an event behind the request in the queue of the group's partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coordinator.group.store import GroupStore


class Undecided:
    """Members of groups of every kind, by the ids alone: a group may go over from one protocol to
    another by what is decided."""

    def __init__(self, store: GroupStore) -> None:
        self._store = store
        self._counts: dict[tuple[str, str], int] = {}
        """How many requests wait to be decided, by group and member; without those that none does of."""

    @contextmanager
    def waits(self, group_id: str, member_id: str, instance_id: str | None) -> Iterator[None]:
        """A request of the member waits to be decided: no timer of it is due before that is done, nor one of whoever
        has the place of that instance."""
        group = self._store.consumer.get(group_id) or self._store.classic.get(group_id)
        owner = None if group is None or instance_id is None else group.static_members.get(instance_id)
        members = {(group_id, each) for each in (member_id, owner) if each}
        for member in members:
            self._counts[member] = self._counts.get(member, 0) + 1
        try:
            yield
        finally:
            for member in members:
                left = self._counts.pop(member) - 1
                if left:
                    self._counts[member] = left

    def is_of(self, group_id: str, member_id: str) -> bool:
        """Whether a request of this member waits."""
        return (group_id, member_id) in self._counts
