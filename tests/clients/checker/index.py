"""A history by its records: their writers, their readers and their offsets."""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Self

from tests.clients.checker.history import History, Key, Operation, Outcome, Poll, Send, Value


@dataclass(slots=True)
class Index:
    history: History
    values_at: dict[tuple[Key, int], set[Value]] = field(default_factory=lambda: defaultdict(set))
    """What was acknowledged or read at an offset."""
    offsets_of: dict[tuple[Key, Value], set[int]] = field(default_factory=lambda: defaultdict(set))
    writer_of: dict[tuple[Key, Value], Operation] = field(default_factory=dict)
    readers_of: dict[tuple[Key, Value], list[tuple[Operation, Poll]]] = field(default_factory=dict)
    read_offsets: dict[Key, list[int]] = field(default_factory=dict)
    """Of all records that anybody read, in order."""
    copies_of: dict[tuple[Key, Value], list[Value]] = field(default_factory=lambda: defaultdict(list))
    """Copies that were read, by where they are and by what they are of."""
    read_by: dict[str, set[tuple[Key, int]]] = field(default_factory=lambda: defaultdict(set))
    """Partitions and offsets that members of a group read."""

    @classmethod
    def of(cls, history: History) -> Self:
        index = cls(history)
        offsets: dict[Key, set[int]] = defaultdict(set)
        for operation in history:
            for send in operation.sends:
                index.writer_of[send.key, send.value] = operation
                if send.offset is not None:
                    index._saw(send.key, send.offset, send.value)
            for poll in operation.polls:
                for record in poll.records:
                    index._saw(record.key, record.offset, record.value)
                    offsets[record.key].add(record.offset)
                    readers = index.readers_of.setdefault((record.key, record.value), [])
                    if record.source is not None and not readers:
                        index.copies_of[record.key, record.source].append(record.value)
                    if operation.group:
                        index.read_by[operation.group].add((record.key, record.offset))
                    readers.append((operation, poll))
        index.read_offsets = {key: sorted(found) for key, found in offsets.items()}
        return index

    def _saw(self, key: Key, offset: int, value: Value) -> None:
        self.values_at[key, offset].add(value)
        self.offsets_of[key, value].add(offset)

    def is_committed(self, operation: Operation) -> bool:
        """An operation of unknown outcome is committed once any of its records was read: the others must exist, too."""
        if operation.outcome is Outcome.UNKNOWN:
            return any((send.key, send.value) in self.readers_of for send in operation.sends)
        return operation.outcome is Outcome.OK

    def must_be_there(self, operation: Operation, send: Send) -> bool:
        return send.offset is not None if operation.singly else self.is_committed(operation)

    def offset_of(self, send: Send) -> int | None:
        """The acknowledged offset, or else the first offset at which the record was read."""
        if send.offset is None:
            return min(self.offsets_of.get((send.key, send.value), ()), default=None)
        return send.offset

    def was_read_between(self, key: Key, after: int, before: int) -> bool:
        """Whether anybody read a record at an offset between these two."""
        offsets = self.read_offsets[key]
        at = bisect.bisect_right(offsets, after)
        return at < len(offsets) and offsets[at] < before
