"""What clients did and saw, as the checker takes it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field

Key = int
"""A partition: the workload numbers those of all its topics."""
Value = int


class Outcome(enum.Enum):
    """OK: the commit was acknowledged. FAILED: no commit was tried. UNKNOWN: one was, and nobody knows."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """`source` is the value of which this one is a copy; `offset` is None where no acknowledgement came."""

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
    """What a poll returned; `at_ns` on the machine's monotonic clock, after it had returned."""

    records: list[Record] = field(default_factory=list)
    at_ns: int = 0


Step = Send | Poll


@dataclass(slots=True)
class Operation:
    """One transaction of a client, or the reading at the end.

    process: a client from its start to its death; whoever comes after it is another one.
    commit_at_ns: on the machine's monotonic clock, before the commit was asked for; None if it never was.
    in_group: the consumer's partitions and positions came from its group, which may take them away.
    """

    process: int
    outcome: Outcome
    steps: list[Step] = field(default_factory=list)
    commit_at_ns: int | None = None
    in_group: bool = False
    error: str = ""

    @property
    def sends(self) -> Iterator[Send]:
        return (step for step in self.steps if isinstance(step, Send))

    @property
    def polls(self) -> Iterator[Poll]:
        return (step for step in self.steps if isinstance(step, Poll))

    @property
    def records(self) -> Iterator[Record]:
        return (record for poll in self.polls for record in poll.records)

    def __str__(self) -> str:
        steps = []
        for step in self.steps:
            if isinstance(step, Send):
                steps.append(f"send {step.value} to {step.key}@{'?' if step.offset is None else step.offset}")
            else:
                read = ", ".join(f"{each.value} from {each.key}@{each.offset}" for each in step.records)
                steps.append(f"poll {read or 'nothing'}")
        end = f"; {self.error}" if self.error else ""
        return f"process {self.process}, {self.outcome.value}: {'; '.join(steps)}{end}"


History = list[Operation]
"""Each process' operations in the order in which it began them."""
