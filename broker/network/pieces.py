"""Requests whose lists are answered entry by entry: a long one is handled piece by piece, in turns of the loop.

The pieces are handled as if each had come by itself, one after the other, and their answers are put together. So it
fits where an entry's answer doesn't depend on the others of its request; what is named again and again is left out
before (`broker.network.repeats`), and whatever a handler decides over all of its entries is its own to do in turns.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.network.later import Later
from broker.network.repeats import Repeats

if TYPE_CHECKING:
    from broker.network.turns import Steps

MOST_OF_PIECE = 100
"""Entries of a list, and of the lists in it, in one piece."""

LIST_BYTES = 1_000
"""A request of no more bytes has no long list."""


class EntryList(NamedTuple):
    """Where the list stands in a request, and what is answered to it in the response."""

    asked: str
    answered: str
    inner_asked: str = ""
    """Each entry's own list, where it has one that may be long."""
    inner_answered: str = ""
    names: tuple[str, ...] = ()
    """What the two parts of an entry have in common, in the request and in the answer, if its own list was cut."""
    repeats: tuple[str, ...] | None = None
    """What an entry is known by where repeated ones are left out; with none it is known by itself."""
    changes: bool = False
    """Whether it goes on where the client hangs up."""


def is_long(request: Any, entries: EntryList) -> bool:
    """Whether the request has more than one piece."""
    asked = getattr(request, entries.asked)
    if not asked:
        return False
    if len(asked) > MOST_OF_PIECE:
        return True
    return bool(entries.inner_asked) and any(
        len(getattr(entry, entries.inner_asked) or ()) > MOST_OF_PIECE for entry in asked
    )


def in_pieces(request: Any, entries: EntryList, handle: Callable[[Any], Any]) -> Steps[Any]:
    """The answer of all pieces. The first one that fails as a whole is the answer."""
    whole: Any = None
    for piece in _pieces(request, entries):
        answer = handle(piece)
        if isinstance(answer, Later):
            answer = yield answer
        if whole is None:
            whole = answer
        elif answer is not None:
            if getattr(answer, "error_code", 0):
                return answer
            _add(whole, answer, entries)
        yield None
    return whole


def _pieces(request: Any, entries: EntryList) -> Iterator[Any]:
    repeats = Repeats() if entries.repeats is not None else None
    some: list[Any] = []
    room = MOST_OF_PIECE
    for entry in getattr(request, entries.asked):
        for part in _parts(entry, entries, repeats):
            some.append(part)
            room -= 1 + (len(getattr(part, entries.inner_asked) or ()) if entries.inner_asked else 0)
            if room <= 0:
                yield _with(request, entries.asked, some)
                some, room = [], MOST_OF_PIECE
    if some:
        yield _with(request, entries.asked, some)


def _parts(entry: Any, entries: EntryList, repeats: Repeats | None) -> Iterator[Any]:
    """The entry, without what it repeats, and in parts where its own list is long."""
    names = entries.repeats
    known_by = tuple(getattr(entry, name) for name in names) if names else entry
    inner = getattr(entry, entries.inner_asked) if entries.inner_asked else None
    if inner and repeats is not None:
        admitted = repeats.admitted(inner, lambda each: (known_by, each))
        if not admitted:
            return
        if len(admitted) < len(inner):
            entry, inner = _with(entry, entries.inner_asked, admitted), admitted
    elif repeats is not None and not repeats.admits(known_by):
        return
    if not inner or len(inner) <= MOST_OF_PIECE:
        yield entry
        return
    for start in range(0, len(inner), MOST_OF_PIECE):
        yield _with(entry, entries.inner_asked, inner[start : start + MOST_OF_PIECE])


def _with(struct: Any, name: str, value: Any) -> Any:
    changed = copy.copy(struct)
    setattr(changed, name, value)
    return changed


def _add(whole: Any, answer: Any, entries: EntryList) -> None:
    """Put what a piece is answered behind what the pieces before it are."""
    found = getattr(whole, entries.answered)
    more = getattr(answer, entries.answered)
    if (
        entries.names
        and found
        and more
        and all(getattr(found[-1], name) == getattr(more[0], name) for name in entries.names)
    ):
        getattr(found[-1], entries.inner_answered).extend(getattr(more[0], entries.inner_answered))
        more = more[1:]
    found.extend(more)


_TOPICS = EntryList("topics", "topics", "partitions", "partitions", ("name",))

ENTRY_LISTS: dict[str, EntryList] = {
    "ListOffsets": _TOPICS,
    "OffsetCommit": _TOPICS._replace(names=("name", "topic_id"), changes=True),
    "FindCoordinator": EntryList("coordinator_keys", "coordinators"),
    "DescribeGroups": EntryList("groups", "groups", repeats=()),
    "DeleteRecords": _TOPICS._replace(changes=True),
    "OffsetForLeaderEpoch": _TOPICS._replace(names=("topic",)),
    "WriteTxnMarkers": EntryList("markers", "markers", "topics", "topics", ("producer_id",), changes=True),
    "TxnOffsetCommit": _TOPICS._replace(changes=True),
    "DescribeConfigs": EntryList("resources", "results", repeats=("resource_type", "resource_name")),
    "DeleteGroups": EntryList("groups_names", "results", changes=True),
    "DescribeProducers": EntryList(
        "topics", "topics", "partition_indexes", "partitions", ("name",), repeats=("name",)
    ),
    "DescribeTransactions": EntryList("transactional_ids", "transaction_states", repeats=()),
    "ConsumerGroupDescribe": EntryList("group_ids", "groups", repeats=()),
}
"""By the names of APIs."""
