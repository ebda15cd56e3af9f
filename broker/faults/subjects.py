"""The subjects of faults: a request, a move of a transaction, a marker, a partition that is loaded, a group that
rebalances, an operation on files. All have the same methods, for their sender and the
names in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from protocol.wire.schema import Struct

if TYPE_CHECKING:
    from broker.security.authorizer import Principal


class Subject(Protocol):
    """The subject of a fault."""

    def sender(self, name: str) -> str | None:
        """Its `client_id`, or `principal`."""
        ...

    def topics(self) -> Iterable[tuple[str, int | None]]:
        """(topic, partition) of each that it names; the partition is None if it names the topic alone."""
        ...

    def ids(self, kind: str) -> Container[str]:
        """The ids of the kind, `group` or `transactional_id`, that it names."""
        ...

    def values(self, path: str) -> Collection[Any]:
        """The values at a path of field names with `.` between them."""
        ...


# --- A request --------------------------------------------------------------------------------------------------

_TOPIC_NAMES = ("topic", "name", "topic_name")
_TOPIC_LISTS = ("topics", "topic_data", "v3_and_below_topics", "topic_partitions")
_INDEXES = ("partition_index", "partition", "index")
_GROUP_KEY, _TRANSACTION_KEY = 0, 1  # of FindCoordinator


def topics_of(request: Any, name_of: Callable[[bytes], str | None]) -> Iterator[tuple[str, int | None]]:
    """(topic, partition) of each that the request names; the partition is None if it names the topic alone."""
    holders = [
        request,
        *(getattr(request, "transactions", None) or ()),
        *(getattr(request, "groups", None) or ()),
    ]
    for holder in holders:
        for name in _TOPIC_LISTS:
            for topic in getattr(holder, name, None) or ():
                yield from _partitions_of(topic, name_of)
    for name in getattr(request, "topic_names", None) or ():  # DeleteTopics before version 6
        yield name, None


def _partitions_of(topic: Any, name_of: Callable[[bytes], str | None]) -> Iterator[tuple[str, int | None]]:
    if isinstance(topic, str):
        yield topic, None
        return
    name = next((found for each in _TOPIC_NAMES if (found := getattr(topic, each, None))), None)
    if not name:
        name = name_of(getattr(topic, "topic_id", b""))
    if not name:
        return
    found = False
    for field in type(topic).FIELDS:
        if field.kind == "array" and "partition" in field.name:
            for each in getattr(topic, field.name) or ():
                found = True
                yield name, each if isinstance(each, int) else _index_of(each)
    if not found:
        yield name, None


def _index_of(partition: Any) -> int | None:
    for name in _INDEXES:
        index = getattr(partition, name, None)
        if isinstance(index, int):
            return index
    return None


def ids_of(request: Any, kind: str) -> set[str]:
    """The groups, or transactional ids, that the request names."""
    field = "group_id" if kind == "group" else "transactional_id"
    found = {getattr(request, field, None), getattr(request, f"v3_and_below_{field}", None)}
    lists = (
        ("groups", "groups_names", "group_ids") if kind == "group" else ("transactions", "transactional_ids")
    )
    for name in lists:
        for each in getattr(request, name, None) or ():
            found.add(each if isinstance(each, str) else getattr(each, field, None))
    if hasattr(request, "key_type") and request.key_type == (
        _GROUP_KEY if kind == "group" else _TRANSACTION_KEY
    ):
        found.update((request.key, *request.coordinator_keys))
    return {each for each in found if each}


def values_of(request: Any, path: str) -> list[Any]:
    """The values at a path of field names with `.` between them, in all entries of lists."""
    found = [request]
    for name in path.split("."):
        further: list[Any] = []
        for each in found:
            value = getattr(each, name, None) if isinstance(each, Struct) else None
            further += value if isinstance(value, list) else [value]
        found = further
    return found


class AskedRequest:
    """A request, as faults and questions to the journal see it."""

    __slots__ = ("_client_id", "_name_of", "_principal", "_request")

    def __init__(
        self,
        request: Any,
        name_of: Callable[[bytes], str | None],
        client_id: str | None,
        principal: Principal,
    ) -> None:
        """`name_of`: a topic's name by its id."""
        self._request = request
        self._name_of = name_of
        self._client_id = client_id
        self._principal = principal

    def sender(self, name: str) -> str | None:
        return self._client_id if name == "client_id" else str(self._principal)

    def topics(self) -> Iterable[tuple[str, int | None]]:
        return topics_of(self._request, self._name_of)

    def ids(self, kind: str) -> set[str]:
        return ids_of(self._request, kind)

    def values(self, path: str) -> list[Any]:
        return values_of(self._request, path)


# --- Places inside the broker -----------------------------------------------------------------------------------


class Named:
    """A step inside the broker. It has no sender, and names at most one group and one transactional id."""

    __slots__ = ("_fields", "_group", "_partitions", "_transactional_id")

    def __init__(
        self,
        *,
        partitions: Iterable[tuple[str, int]] = (),
        transactional_id: str | None = None,
        group: str | None = None,
        **fields: Any,
    ) -> None:
        """`fields`: other values that a fault can match, by name."""
        self._partitions = partitions
        self._transactional_id = transactional_id
        self._group = group
        self._fields = fields

    def sender(self, name: str) -> str | None:
        return None

    def topics(self) -> Iterable[tuple[str, int | None]]:
        return self._partitions

    def ids(self, kind: str) -> tuple[str, ...]:
        found = self._group if kind == "group" else self._transactional_id
        return () if found is None else (found,)

    def values(self, path: str) -> list[Any]:
        return [self._fields.get(path)]


_FOLDER = re.compile(r"(.+)-(\d+)(?:\.[0-9a-f]{32}-(?:delete|future|stray))?")
"""The folder of a partition, by Kafka's names, also if it is about to be deleted or moved."""


class FileOperation(Named):
    """An operation on one of the broker's files. `file` is the last part of its path."""

    def __init__(self, operation: str, path: str, size_bytes: int) -> None:
        folder, _, name = path.rpartition("/")
        found = _FOLDER.fullmatch(folder.rpartition("/")[2]) or _FOLDER.fullmatch(name)
        partitions = () if found is None else ((found[1], int(found[2])),)
        super().__init__(
            partitions=partitions, operation=operation, file=name, path=path, size_bytes=size_bytes
        )
        self.path = path
