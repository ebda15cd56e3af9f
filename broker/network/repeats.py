"""What a request names again and again is answered a few times, not as often as it is named.

A name of ten bytes may have an answer of many kilobytes: all settings of a topic, all producers of a partition, all
members of a group. Kafka answers each time, and 100,000 times the same topic in a DescribeConfigs are gigabytes. Its
clients send sets, which repeat nothing. So the first repeats are answered as Kafka does, and the rest are left out:
what a request costs is bounded by what it names, and not by how often.

This is for APIs whose answer to an entry is larger than the entry. Others take a repeated entry as Kafka does: as an
error (ListOffsets, CreateTopics, DeleteTopics, AlterConfigs…) or as one (Metadata, Fetch, DeleteRecords, DeleteGroups,
DescribeLogDirs…).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST_REPEATED = 10
"""So many entries of a request that were there before are answered once more."""


class Repeats:
    """The repeats of one request, over all its lists."""

    __slots__ = ("_left", "_seen")

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._left = MOST_REPEATED

    def admits(self, key: Hashable) -> bool:
        """Whether the entry that is known by the key is to be answered."""
        if key not in self._seen:
            self._seen.add(key)
            return True
        if not self._left:
            return False
        self._left -= 1
        return True

    def admitted(self, entries: Sequence[T], key: Callable[[T], Hashable]) -> Sequence[T]:
        """The entries that are to be answered, in their order."""
        return [entry for entry in entries if self.admits(key(entry))]


def answered(entries: Sequence[T], key: Callable[[T], Hashable]) -> Sequence[T]:
    """The entries of a request's only list that are to be answered; nothing is looked at where they are few."""
    return entries if len(entries) <= MOST_REPEATED else Repeats().admitted(entries, key)
