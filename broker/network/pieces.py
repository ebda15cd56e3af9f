"""Requests whose lists are answered entry by entry: a long one is handled piece by piece, in turns of the loop.

Each piece is handled as if it were a request of its own, one after the other, and their answers are put together. So
this fits APIs in which an entry's answer doesn't depend on the other entries. Entries that are repeated too often are
left out before (`Repeats`). A handler that decides over all entries together has to take turns by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from broker.network.answers import MOST_PRODUCED
from protocol.errors import CodecError
from protocol.waiting import Waiting, turn
from protocol.wire.codec import ENTRIES_PER_STEP

if TYPE_CHECKING:
    from protocol.messages.produce import ProduceRequest
    from protocol.wire.schema import Message


# --- Repeated entries of a request are answered only a few times ----------------------------------------------
#
# A name of ten bytes may have an answer of many kilobytes: all settings of a topic, all producers of a
# partition, all members of a group. Kafka answers each time, and a DescribeConfigs that names one topic 100,000
# times gets gigabytes. Kafka's clients send sets, which repeat nothing. So the first repeats are answered as in
# Kafka, and the rest are left out: the cost of a request depends on the names in it, not on how often they
# come.
#
# This is for APIs whose answer to an entry is larger than the entry. Others treat repeated entries as Kafka
# does: as an error (ListOffsets, CreateTopics, DeleteTopics, AlterConfigs…) or as one entry (Metadata, Fetch,
# DeleteRecords, DeleteGroups, DescribeLogDirs…).

T = TypeVar("T")

MOST_REPEATED = 10
"""Repeated entries of a request that are answered."""


class Repeats:
    """Counts the repeated entries of one request, over all its lists."""

    __slots__ = ("_left", "_seen")

    def __init__(self) -> None:
        self._seen: set[Hashable] = set()
        self._left = MOST_REPEATED

    def admits(self, key: Hashable) -> bool:
        """True if the entry with this key is to be answered."""
        if key not in self._seen:
            self._seen.add(key)
            return True
        if not self._left:
            return False
        self._left -= 1
        return True

    def admitted(self, entries: Sequence[T], key: Callable[[T], Hashable]) -> Sequence[T]:
        """The entries to answer, in their order."""
        return [entry for entry in entries if self.admits(key(entry))]


def answered(entries: Sequence[T], key: Callable[[T], Hashable]) -> Sequence[T]:
    """The entries to answer of a request's only list. A short list isn't searched for repeats."""
    return entries if len(entries) <= MOST_REPEATED else Repeats().admitted(entries, key)


# --------------------------------------------------------------------------------------------------------------


MOST_OF_PIECE = 100
"""Entries in one piece, those of inner lists counted as well."""

LIST_BYTES = 1_000
"""A request of at most so many bytes has no long list."""


MOST_DECIDED = 50_000
"""Most entries, in all lists, of a request that is decided or answered as a whole and is longer than 64 KiB. A request
may lead to 10,000 records (Kafka: `QuorumController.MAX_RECORDS_PER_USER_OP`), which never need more. The limit holds
for some APIs that are answered in pieces, too, since no client needs more: freeing 200,000 entries alone takes a turn
of 60 ms."""

MOST_JOINED = 10_000
"""Most protocols of a JoinGroup that is longer than 64 KiB: every decision on the member goes through all of them.
Clients have one for each assignor, so a few."""

MOST_FETCHED = 30_000
"""Most entries, in all lists, of a Fetch that is longer than 64 KiB: it reads all of them, or waits for all."""

MOST_ENTRIES_BY_API: dict[str, int] = {
    **dict.fromkeys(
        (
            *("AddPartitionsToTxn", "AlterClientQuotas", "AlterConfigs", "AlterPartitionReassignments"),
            *("AlterReplicaLogDirs", "AlterUserScramCredentials", "ConsumerGroupHeartbeat"),
            *("CreatePartitions", "CreateTopics", "DeleteAcls", "DeleteTopics", "DescribeLogDirs"),
            *("DescribeProducers", "DescribeQuorum", "DescribeShareGroupOffsets", "DescribeTopicPartitions"),
            *("DescribeUserScramCredentials", "ElectLeaders", "IncrementalAlterConfigs"),
            *("ListGroups", "ListOffsets", "ListPartitionReassignments", "ListTransactions", "OffsetCommit"),
            *("OffsetDelete", "OffsetFetch", "OffsetForLeaderEpoch"),
            *("ShareAcknowledge", "ShareFetch", "StreamsGroupHeartbeat", "SyncGroup", "TxnOffsetCommit"),
            "UpdateFeatures",
        ),
        MOST_DECIDED,
    ),
    "Fetch": MOST_FETCHED,
    "JoinGroup": MOST_JOINED,
    "Produce": MOST_PRODUCED,
}
"""The limits, by API, for those that have one."""


class EntryList(NamedTuple):
    """Names the list in a request, and the list of its answers in the response."""

    asked: str
    answered: str
    inner_asked: str = ""
    """Each entry's own list, if it has one that may be long."""
    inner_answered: str = ""
    names: tuple[str, ...] = ()
    """The fields by which the parts of an entry belong together, in request and answer, if its own list was cut."""
    repeats: tuple[str, ...] | None = None
    """The fields that identify an entry, if repeated ones are left out. Empty: the entry identifies itself."""
    changes: bool = False
    """True if handling goes on even if the client hangs up."""
    at_once: int = MOST_OF_PIECE
    """Entries in one piece. Fewer if an answer may be large: all members of a group, all settings of a topic."""


def bounded(request: type[Message], decoding: Waiting[T]) -> Waiting[T]:
    """Decode the request; raise CodecError once it has too many entries."""
    most = MOST_ENTRIES_BY_API.get(request.__name__.removesuffix("Request"))
    if most is None:
        return decoding
    return _bounded(decoding, most)


async def _bounded(decoding: Waiting[T], most: int) -> T:
    found = 0
    while True:
        try:
            decoding.send(None)
        except StopIteration as end:
            return cast("T", end.value)
        found += ENTRIES_PER_STEP
        if found > most:
            raise CodecError(f"more than {most} entries")
        await turn()


def produced(request: ProduceRequest) -> int:
    """A Produce's entries: its topics and partitions."""
    topics = request.topic_data
    return len(topics) + sum([len(topic.partition_data) for topic in topics])


def is_long(request: Any, entries: EntryList) -> bool:
    """True if the request has more than one piece."""
    asked = getattr(request, entries.asked)
    if not asked:
        return False
    if len(asked) > entries.at_once:
        return True
    if entries.inner_asked:
        for entry in asked:
            if len(getattr(entry, entries.inner_asked) or ()) > entries.at_once:
                return True
    return False


async def in_pieces(request: Any, entries: EntryList, handle: Callable[[Any], Any]) -> Any:
    """Handle the request piece by piece. Returns the joined answer, or that of a piece that fails as a whole."""
    whole: Any = None
    for piece, goes_on in pieces(request, entries):
        if piece is None:
            await turn()
            continue
        answer = handle(piece)
        if hasattr(answer, "__await__"):
            answer = await answer
        if whole is None:
            whole = answer
        elif answer is not None:
            if getattr(answer, "error_code", 0):
                return answer
            _add(whole, answer, entries, goes_on)
        await turn()
    return whole


def pieces(request: Any, entries: EntryList) -> Iterator[tuple[Any, bool]]:
    """Yield (piece, whether it begins within an entry). The piece is None after many left-out entries: end the turn."""
    repeats = Repeats() if entries.repeats is not None else None
    some: list[Any] = []
    room = entries.at_once
    left_out = 0
    goes_on = False
    for entry in getattr(request, entries.asked):
        for number, part in enumerate(_parts(entry, entries, repeats)):
            if part is None:
                left_out += 1
                if left_out == MOST_OF_PIECE:
                    left_out = 0
                    yield None, False
                continue
            if not some:
                goes_on = number > 0
            some.append(part)
            room -= 1 + (len(getattr(part, entries.inner_asked) or ()) if entries.inner_asked else 0)
            if room <= 0:
                yield _with(request, entries.asked, some), goes_on
                some, room = [], entries.at_once
    if some:
        yield _with(request, entries.asked, some), goes_on


def _parts(entry: Any, entries: EntryList, repeats: Repeats | None) -> Iterator[Any]:
    """Yield the entry, in parts if its own list is long. A part that only repeats others is None."""
    names = entries.repeats
    known_by = tuple(getattr(entry, name) for name in names) if names else entry
    inner = getattr(entry, entries.inner_asked) if entries.inner_asked else None
    if not inner:
        yield entry if repeats is None or repeats.admits(known_by) else None
        return
    for start in range(0, len(inner), entries.at_once):
        some = inner[start : start + entries.at_once]
        if repeats is not None:
            some = repeats.admitted(some, lambda each: (known_by, each))
        yield _with(entry, entries.inner_asked, some) if some else None


def _with(struct: Any, name: str, value: Any) -> Any:
    changed = copy.copy(struct)
    setattr(changed, name, value)
    return changed


def _add(whole: Any, answer: Any, entries: EntryList, goes_on: bool) -> None:
    """Append the answer to a piece to that of the earlier pieces."""
    found = getattr(whole, entries.answered)
    more = getattr(answer, entries.answered)
    if (
        goes_on
        and entries.names
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
    "FindCoordinator": EntryList("coordinator_keys", "coordinators"),
    "DescribeGroups": EntryList("groups", "groups", repeats=(), at_once=10),
    "OffsetForLeaderEpoch": _TOPICS._replace(names=("topic",)),
    "WriteTxnMarkers": EntryList("markers", "markers", "topics", "topics", ("producer_id",), changes=True),
    "DescribeConfigs": EntryList(
        "resources", "results", repeats=("resource_type", "resource_name"), at_once=10
    ),
    "CreateAcls": EntryList("creations", "results"),
    "DeleteAcls": EntryList("filters", "filter_results", changes=True),
    "ListPartitionReassignments": EntryList(
        "topics", "topics", "partition_indexes", "partitions", ("name",), repeats=("name",)
    ),
    "DeleteGroups": EntryList("groups_names", "results", changes=True),
    "DescribeProducers": EntryList(
        "topics", "topics", "partition_indexes", "partitions", ("name",), repeats=("name",), at_once=1
    ),
    "DescribeTransactions": EntryList("transactional_ids", "transaction_states", repeats=()),
    **dict.fromkeys(
        ("ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe"),
        EntryList("group_ids", "groups", repeats=(), at_once=10),
    ),
}
"""The lists of requests that are handled in pieces, by API."""
