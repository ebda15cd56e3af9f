"""The operations and observations of clients, as the checker reads them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

Key = int
"""A partition: the workload numbers those of all its topics."""
Value = int


class Outcome(enum.Enum):
    """OK: the commit was acknowledged, or all records sent singly were. FAILED: no commit was tried. UNKNOWN: a commit
    was tried, and its outcome is unknown."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """`source` is the value that this one is a copy of. `offset` is None if no acknowledgement came."""

    key: Key
    value: Value
    offset: int | None = None
    source: Value | None = None


@dataclass(slots=True)
class Record:
    key: Key
    offset: int
    value: Value
    source: Value | None = None


@dataclass(slots=True)
class Poll:
    """The records that a poll returned. `at_ns` is the machine's monotonic clock after the return."""

    records: list[Record] = field(default_factory=list)
    at_ns: int = 0


@dataclass(slots=True)
class Committed:
    """What a group had committed, for each partition where it had anything; asked for at `at_ns`, of a cluster in which
    nobody was left that might not know better."""

    group: str
    ends: dict[Key, int] = field(default_factory=dict)
    at_ns: int = 0


Step = Send | Poll | Committed


@dataclass(slots=True)
class Operation:
    """One transaction of a client; or sends of an idempotent producer, or what a member of a group read before it
    committed the offsets of that; or what the checker itself read and asked for.

    process: a client from its start to its death; whoever comes after it is another one.
    commit_at_ns: on the machine's monotonic clock, before the commit was asked for; None if it never was.
    done_at_ns: after its outcome was known; None if it never was.
    group: the one from which the consumer's partitions and positions came, and which may take them away.
    singly: its sends are no transaction: each is there once if it was acknowledged, and once or never if it wasn't.
    """

    process: int
    outcome: Outcome
    steps: list[Step] = field(default_factory=list)
    commit_at_ns: int | None = None
    group: str = ""
    error: str = ""
    singly: bool = False
    done_at_ns: int | None = None

    @property
    def sends(self) -> Iterator[Send]:
        return (step for step in self.steps if isinstance(step, Send))

    @property
    def polls(self) -> Iterator[Poll]:
        return (step for step in self.steps if isinstance(step, Poll))

    @property
    def records(self) -> Iterator[Record]:
        return (record for poll in self.polls for record in poll.records)

    @property
    def ends(self) -> dict[Key, int]:
        """The offset after the last record read from each partition."""
        return {record.key: record.offset + 1 for record in self.records}

    @property
    def samples(self) -> Iterator[Committed]:
        return (step for step in self.steps if isinstance(step, Committed))

    def __str__(self) -> str:
        steps = []
        for step in self.steps:
            if isinstance(step, Send):
                steps.append(f"send {step.value} to {step.key}@{'?' if step.offset is None else step.offset}")
            elif isinstance(step, Committed):
                steps.append(f"{step.group} has committed {step.ends}")
            else:
                read = ", ".join(f"{each.value} from {each.key}@{each.offset}" for each in step.records)
                steps.append(f"poll {read or 'nothing'}")
        end = f"; {self.error}" if self.error else ""
        who = f"process {self.process}{f' in {self.group}' if self.group else ''}"
        return f"{who}, {self.outcome.value}: {'; '.join(steps)}{end}"


History = list[Operation]
"""Each process' operations in the order in which it began them."""
