"""How many records a group has left to read, partition by partition."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from cli.client.cluster import KafkaCluster
from cli.client.counting import Counted, Effort, count_records
from cli.client.groups import DescribedGroup, committed_offsets, share_offsets, unstable_offsets
from cli.client.offsets import EARLIEST, Partition, list_offsets, stable_and_ends, that_are_there

UNSTABLE: Final = (
    "an open transaction is about to commit another offset, and consumers that start here wait for its end:"
    " barnabas transactions explain --internal says which"
)
IN_ALL_S: Final = 60.0
"""The time limit for all partitions of a group together. What isn't counted by then is "at least" 0. `--exact` has no
limit."""


@dataclass(frozen=True)
class LagOfPartition:
    """The records that a group has left to read in a partition.

    lag: a reader of committed records gets them now. waiting: it gets them once the open transactions before them have
    ended. open: records of open transactions. all_records: all of them, for a reader of everything. Numbers are None if
    nothing is committed, or the partition has no leader. For a share group, `committed` is the start offset.
    """

    partition: Partition
    committed: int | None
    stable: int | None
    end: int | None
    lag: int | None
    waiting: int | None
    open: int | None
    all_records: int | None
    is_exact: bool
    member: str | None
    note: str = ""
    is_unstable: bool = False

    @property
    def offsets(self) -> int | None:
        """The difference that other tools call the lag."""
        return None if self.committed is None or self.end is None else self.end - self.committed


def lags_of(cluster: KafkaCluster, group: DescribedGroup, effort: Effort) -> list[LagOfPartition]:
    """Return the lag of the partitions that it has committed, or that its members have. Raises CommandError."""
    committed = committed_offsets(cluster, group.listed.name)
    members = _members_of(group)
    partitions = that_are_there(cluster, {*committed, *members})
    starts = list_offsets(cluster, dict.fromkeys(partitions, EARLIEST))
    stable, ends = stable_and_ends(cluster, partitions)
    until_s = time.monotonic() + max(IN_ALL_S, effort.max_seconds)
    unstable = unstable_offsets(cluster, group.listed.name, partitions)
    lags = []
    for partition in sorted({*committed, *members}):
        offset, end = committed.get(partition), ends.get(partition)
        member = members.get(partition)
        is_unstable = partition in unstable
        if offset is None or end is None:
            note = "the topic is gone" if partition not in partitions else UNSTABLE if is_unstable else ""
            lags.append(
                LagOfPartition(
                    partition,
                    offset,
                    stable.get(partition),
                    end,
                    None,
                    None,
                    None,
                    None,
                    True,
                    member,
                    note,
                    is_unstable,
                )
            )
            continue
        start, stable_end = starts.get(partition, 0), stable.get(partition, end)
        left = Effort(effort.max_bytes, min(effort.max_seconds, until_s - time.monotonic()))
        counted = count_records(cluster, partition, max(offset, start), stable_end, end, left)
        note = UNSTABLE if is_unstable else note_of_offset(offset, start, end)
        lags.append(
            counted_lag(
                partition, offset, stable_end, end, counted, member, note=note, is_unstable=is_unstable
            )
        )
    return lags


def counted_lag(
    partition: Partition,
    offset: int,
    stable: int,
    end: int,
    counted: Counted,
    member: str | None,
    *,
    note: str = "",
    is_unstable: bool = False,
) -> LagOfPartition:
    """Return the lag that follows from a count of records after a committed offset."""
    return LagOfPartition(
        partition,
        offset,
        stable,
        end,
        counted.given,
        counted.waiting,
        sum(counted.undecided.values()),
        counted.records,
        counted.is_exact,
        member,
        note,
        is_unstable,
    )


def share_lags(cluster: KafkaCluster, group: DescribedGroup) -> list[LagOfPartition]:
    """Return the lags according to the coordinator: only it knows what was delivered out of order. Raises
    CommandError."""
    found = share_offsets(cluster, group.listed.name)
    members = _members_of(group)
    partitions = that_are_there(cluster, found)
    stable, ends = stable_and_ends(cluster, partitions)
    return [
        LagOfPartition(
            partition,
            start if start >= 0 else None,
            stable.get(partition),
            ends.get(partition),
            lag if lag >= 0 else None,
            None,
            None,
            None,
            True,
            members.get(partition),
        )
        for partition, (start, lag) in sorted(found.items())
    ]


def _members_of(group: DescribedGroup) -> dict[Partition, str]:
    return {partition: member.member_id for member in group.members for partition in member.partitions}


def note_of_offset(offset: int, start: int, end: int) -> str:
    """Return a note if the committed offset is outside of the log."""
    if offset < start:
        return f"the committed offset {offset} is gone, the log starts at {start}: auto.offset.reset decides"
    if offset > end:
        return f"the committed offset {offset} is after the end {end}: auto.offset.reset decides"
    return ""
