"""Why readers of committed records wait: the partitions whose last stable offset lags, and the transactions that hold
it there.

A transaction hangs if no marker can come any more, by Kafka's own definition: its coordinator doesn't have this
partition in the transaction of this producer id, or no coordinator knows the producer id at all. Something may be in
flight, so the partition is checked before the coordinators and again after them. A transaction that was open both times
was open all along.

Source: `TransactionsCommand.FindHangingTransactionsCommand` of Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cli.client.cluster import KafkaCluster
from cli.client.counting import Counted, Effort, count_records
from cli.client.offsets import (
    EARLIEST,
    LATEST_OFFSET,
    NO_LEADER,
    READ_COMMITTED,
    Partition,
    leaders_of,
    list_offsets,
    stable_and_ends,
)
from cli.client.transactions import (
    CoordinatedTransaction,
    OpenTransaction,
    coordinators_are_complete,
    list_transactions,
    open_transactions,
)
from protocol.messages.metadata import MetadataResponseTopic

TAIL_OFFSETS: Final = 1_000
"""How far back from a partition's end to search for a record that a reader gets."""
UNKNOWN, HANGING, OPEN, ENDING = "unknown", "hanging", "open", "ending"
LARGEST_TIMEOUT_MS: Final = 15 * 60_000
"""The default of `transaction.max.timeout.ms`. If nothing ends a transaction, it hangs once its last record is older
than this. Until then, a coordinator may know it that this user may not ask. Source: Kafka's `find-hanging`."""


@dataclass(frozen=True)
class Blocker:
    """A transaction that is open in a partition, its records there, and its state according to its coordinator."""

    open: OpenTransaction
    records: int
    coordinated: CoordinatedTransaction | None
    verdict: str
    why: str

    def may_be_hidden(self, now_ms: int) -> bool:
        """Return True if a coordinator may still end it, under a transactional id that this user may not describe."""
        if self.verdict != HANGING or self.coordinated is not None:
            return False
        return now_ms - self.open.last_timestamp_ms < LARGEST_TIMEOUT_MS


@dataclass(frozen=True)
class WaitingPartition:
    """A partition whose readers wait. `blockers` are sorted by start: the first one holds the last stable offset, the
    next ones would. It is empty if a transaction has ended and the in-sync replicas don't have its marker yet."""

    partition: Partition
    leader: int
    stable: int
    end: int
    counted: Counted
    blockers: list[Blocker]


@dataclass(frozen=True)
class Tail:
    """The last offsets of a partition, if they hold no record for readers: only markers, records of aborted
    transactions and gaps. Unless `is_all`, it goes back even further."""

    partition: Partition
    offsets: int
    is_all: bool


@dataclass(frozen=True)
class Explanation:
    """`tails` are of partitions that nobody waits in. `without_leader` are partitions that can't be asked."""

    waiting: list[WaitingPartition]
    tails: list[Tail]
    without_leader: list[Partition]
    looked_at: int


def explain(
    cluster: KafkaCluster, topics: list[MetadataResponseTopic], effort: Effort, *, with_tails: bool
) -> Explanation:
    """Explain the waiting in these topics' partitions. Raises CommandError."""
    leaders = leaders_of(topics)
    stable, ends = stable_and_ends(cluster, leaders)
    behind = [each for each in leaders if each in ends and stable.get(each, ends[each]) < ends[each]]
    opened = open_all_along(cluster, behind)
    again = list_offsets(cluster, dict.fromkeys(behind, LATEST_OFFSET), READ_COMMITTED)
    waiting = []
    for partition in behind:
        found = opened.get(partition, [])
        if not found and again.get(partition) != stable[partition]:
            continue  # it ended meanwhile
        at = found[0].open.start_offset if found else stable[partition]
        counted = count_records(cluster, partition, at, at, ends[partition], effort)
        blockers = [replace(one, records=counted.unmarked.get(one.open.producer_id, 0)) for one in found]
        if not counted.is_exact:  # these are known to be open, whatever wasn't read
            counted.undecided = {one.open.producer_id: one.records for one in blockers if one.records}
        waiting.append(
            WaitingPartition(partition, leaders[partition], at, ends[partition], counted, blockers)
        )
    held = {each.partition for each in waiting}
    free = [each for each in leaders if each in ends and each not in held]
    tails = _tails(cluster, free, ends, effort) if with_tails else []
    without_leader = [each for each, leader in leaders.items() if leader == NO_LEADER]
    return Explanation(waiting, tails, without_leader, len(leaders))


Key = tuple[Partition, int, int]


def key_of(one: OpenTransaction) -> Key:
    """Return what identifies a transaction: only one begins at its offset."""
    return one.partition, one.producer_id, one.start_offset


def open_all_along(cluster: KafkaCluster, partitions: Iterable[Partition]) -> dict[Partition, list[Blocker]]:
    """Return each partition's open transactions, sorted by start, with a verdict on each but without counts. They were
    open before their coordinators were asked, and after. Raises CommandError."""
    asked = [*partitions]
    opened = open_transactions(cluster, asked)
    coordinated = _by_producer_id(cluster, opened.values())
    still = {key_of(one) for found in open_transactions(cluster, asked).values() for one in found}
    complete = coordinators_are_complete(cluster) if opened else True
    return {
        partition: [
            _judged(one, coordinated.get(one.producer_id), complete) for one in found if key_of(one) in still
        ]
        for partition, found in opened.items()
    }


def verdict_of(
    one: OpenTransaction, coordinated: CoordinatedTransaction | None, *, complete: bool
) -> tuple[str, str]:
    """Return what will become of it, and why: HANGING if no marker will come. `complete`: True if all coordinators
    could be asked."""
    if coordinated is None:
        if not complete:
            return (
                UNKNOWN,
                "a coordinator that may know it is missing: a partition of __transaction_state has no leader",
            )
        unknown = f"no coordinator knows producer id {one.producer_id}"
        return HANGING, f"{unknown} for a transactional id that you may describe"
    if one.partition not in coordinated.partitions:
        doing = f"is {coordinated.state}" + (", in other partitions" if coordinated.partitions else "")
        return HANGING, f"its coordinator doesn't have this partition in the transaction: {doing}"
    if coordinated.is_ending:
        return ENDING, "its outcome is certain, and markers are on their way"
    return OPEN, "its application has neither committed nor aborted it yet"


def _by_producer_id(
    cluster: KafkaCluster, found: Iterable[list[OpenTransaction]]
) -> dict[int, CoordinatedTransaction]:
    producer_ids = {one.producer_id for of_partition in found for one in of_partition}
    if not producer_ids:
        return {}
    listed = list_transactions(cluster, producer_ids)
    return {each.producer_id: each for each in listed if each.producer_id in producer_ids}


def _judged(one: OpenTransaction, coordinated: CoordinatedTransaction | None, complete: bool) -> Blocker:
    verdict, why = verdict_of(one, coordinated, complete=complete)
    return Blocker(one, 0, coordinated, verdict, why)


def _tails(
    cluster: KafkaCluster, partitions: Iterable[Partition], ends: Mapping[Partition, int], effort: Effort
) -> list[Tail]:
    """Return the tails of those partitions whose last offsets hold nothing for readers."""
    starts: dict[Partition, int] = defaultdict(int)
    starts |= list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    tails = []
    for partition in partitions:
        end = ends[partition]
        first = max(starts[partition], end - TAIL_OFFSETS)
        counted = count_records(cluster, partition, first, end, end, effort)
        free = end - max(counted.last_given + 1, first)
        if free > 0 and counted.is_exact:
            is_all = counted.last_given >= 0 or first == starts[partition]
            tails.append(Tail(partition, free, is_all))
    return tails
