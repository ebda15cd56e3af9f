"""A share partition does whatever is asked of it as one plain object for each offset would, through failing writes,
locks that end meanwhile, deleted records and new leaders; in the end everything is delivered and acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.share_partition.ports import FetchedBatch
from protocol.errors import Error
from tests.support.examples import examples
from tests.unit.coordinator.share_partition.partition import (
    ACCEPT,
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LOCK_MS,
    RELEASE,
    RENEW,
    Shared,
)

LIMIT = 4
MEMBERS = st.sampled_from(["a", "b", "c"])
TYPES = st.sampled_from([0, ACCEPT, ACCEPT, RELEASE, 3, RENEW])
BECOMES = {0: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, 3: ARCHIVED}


@dataclass
class Offset:
    """What the model knows of one offset in flight."""

    state: int
    count: int
    owner: str = ""
    deadline_ms: int = -1
    pending_of: str = ""  # whose acknowledgement waits for its write

    @property
    def told(self) -> tuple[int, int, str]:
        return self.state, self.count, self.owner

    def give_back(self, below_start: bool = False) -> None:
        self.state = ARCHIVED if below_start or self.count >= LIMIT else AVAILABLE
        self.owner = ""


class ShareMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared(delivery_count_limit=LIMIT, partition_max_record_locks=30)
        self.shared.persister.holds = True
        self.shared.persister.go_on()
        self.end = 0  # of the log
        self.log_start = 0
        self.offsets: dict[int, Offset] = {}
        self.waiting: list[dict[int, Offset]] = []  # the changes of each write
        self.done: set[int] = set()  # whose accept or reject was answered
        self.has_restarted = False

    @property
    def start(self) -> int:
        return self.shared.span[0]

    @property
    def now_ms(self) -> int:
        return self.shared.runtime.elapsed_ms

    def took_writes(self, changes: dict[int, Offset] | None = None) -> None:
        """Have the model know of all writes that are held."""
        if changes:
            self.waiting.append(changes)
        while len(self.waiting) < len(self.shared.persister.held):
            self.waiting.append({})

    # --- what happens ---------------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def append(self, sizes: list[int]) -> None:
        for size in sizes:
            self.shared.log.append(FetchedBatch(self.end, self.end + size - 1))
            self.end += size

    @rule(
        member=MEMBERS,
        most=st.integers(1, 20),
        batch_size=st.integers(1, 20),
        limits=st.booleans(),
        read=st.integers(1, 5),
    )
    def fetch(self, member: str, most: int, batch_size: int, limits: bool, read: int) -> None:
        before, wanted = self.shared.span, self.shared.next
        acquired = self.shared.fetch(member, most, batch_size, limits=limits, read=read)
        taken = 0
        following = wanted
        if acquired and acquired[0][0] < wanted:  # with the record batch that the start lies in
            following = acquired[0][0]
            assert before[0] == wanted
        for first, last, count in acquired:
            assert following <= first <= last < self.end
            following = last + 1
            for offset in range(first, last + 1):
                assert offset not in self.done
                known = self.offsets.get(offset)
                if known is None:
                    known = self.offsets[offset] = Offset(AVAILABLE, 0)
                assert (known.state, known.pending_of) == (AVAILABLE, "")
                known.state, known.count, known.owner = ACQUIRED, known.count + 1, member
                known.deadline_ms = self.now_ms + LOCK_MS
                assert known.count == count <= LIMIT
                taken += 1
        if acquired:
            assert acquired[0][0] <= wanted
        else:
            assert wanted >= self.end or (wanted > before[1] and before[1] - before[0] + 1 >= 30)
        if limits:
            assert taken <= most
        for offset in self.shared.states():
            if offset not in self.offsets:  # the rest of a record batch
                assert limits
                self.offsets[offset] = Offset(AVAILABLE, 0)

    @rule(
        member=MEMBERS,
        ats=st.lists(st.tuples(st.integers(-2, 25), st.integers(1, 8), TYPES), min_size=1, max_size=3),
        of_each=st.booleans(),
    )
    def acknowledge(self, member: str, ats: list[tuple[int, int, int]], of_each: bool) -> None:
        parts: list[tuple[int, int, int | list[int]]] = []
        following = 0
        for at, size, kind in ats:
            first = max(following, self.start + at, 0)
            following = first + size
            types = [(kind + place) % 5 for place in range(size)] if of_each and size > 1 else kind
            parts.append((first, first + size - 1, types))
        expected, changes, renewed = self.expect(member, parts)
        told = self.shared.ack(*parts, member=member)
        if expected is None:  # holes in what is in flight: any answer will do, if it is carried out
            expected = told if told else (None if changes else 0)
        assert told == (expected if expected or not changes else None)
        for offset in renewed:
            known = self.offsets[offset]
            if known.state == ACQUIRED and known.owner == member:
                known.deadline_ms = self.now_ms + LOCK_MS
        if not told:
            before = {}
            for offset, to in changes.items():
                known = self.offsets[offset]
                before[offset] = replace(known)
                known.state, known.owner, known.pending_of = to, "", member
                if to == AVAILABLE and known.count >= LIMIT:
                    known.state = ARCHIVED
            self.took_writes(before)

    def expect(
        self, member: str, parts: list[tuple[int, int, int | list[int]]]
    ) -> tuple[Error | int | None, dict[int, int], list[int]]:
        """The answer, None where the model can't say; what changes then; whose locks begin anew."""
        changes: dict[int, int] = {}
        renewed: list[int] = []
        keys = [batch.first_offset for batch in self.shared.partition.records]
        knows = not self.has_restarted
        for first, last, types in parts:
            if last < self.start:
                continue
            if not keys or min(keys) > max(first, self.start if first < self.start else first):
                return (Error.INVALID_RECORD_STATE if knows else None), {}, renewed
            if last not in self.offsets:
                return (Error.INVALID_REQUEST if knows else None), {}, renewed
            for offset in range(max(first, self.start), last + 1):
                known = self.offsets.get(offset)
                if known is None:
                    assert self.has_restarted
                    continue
                if (known.state, known.owner) != (ACQUIRED, member) or offset in changes:
                    return (Error.INVALID_RECORD_STATE if knows else None), {}, renewed
                kind = types if isinstance(types, int) else types[offset - first]
                if kind == RENEW:
                    renewed.append(offset)
                else:
                    changes[offset] = BECOMES[kind]
        return (0 if knows else None), changes, renewed

    @precondition(lambda self: self.waiting)
    @rule(fails=st.booleans(), count=st.integers(1, 4))
    def written(self, fails: bool, count: int) -> None:
        for _ in range(min(count, len(self.waiting))):
            changes = self.waiting.pop(0)
            self.shared.persister.error = Error.NOT_COORDINATOR if fails else None
            self.shared.persister.go_on(1)
            self.shared.persister.error = None
            for offset, before in changes.items():
                known = self.offsets.get(offset)
                if known is None:
                    continue
                known.pending_of = ""
                if not fails:
                    if known.state in (ACKNOWLEDGED, ARCHIVED):
                        self.done.add(offset)
                elif offset >= self.log_start or known.state != ARCHIVED or before.state != AVAILABLE:
                    self.take_back(offset, known, before)
            self.forget()

    def take_back(self, offset: int, known: Offset, before: Offset) -> None:
        if known.deadline_ms <= -2:
            return  # archived for good: the log begins later
        known.state, known.owner = before.state, before.owner
        if known.deadline_ms <= self.now_ms:
            known.give_back(offset < self.start)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        self.shared.leave(member)
        before = {}
        for offset, known in self.offsets.items():
            if (known.state, known.owner) == (ACQUIRED, member):
                before[offset] = replace(known)
                known.give_back(offset < self.start)
                known.pending_of = member
        self.took_writes(before)

    @rule(by_ms=st.sampled_from([1, LOCK_MS // 3, LOCK_MS]))
    def pass_ms(self, by_ms: int) -> None:
        self.shared.runtime.pass_ms(by_ms)
        for offset, known in self.offsets.items():
            if known.state == ACQUIRED and known.deadline_ms <= self.now_ms:
                known.give_back(offset < self.start)
        self.took_writes()

    @precondition(lambda self: self.shared.log)
    @rule(by=st.integers(1, 8))
    def delete_records(self, by: int) -> None:
        self.log_start = min(self.end, self.log_start + by)
        self.shared.log = [batch for batch in self.shared.log if batch.last_offset >= self.log_start]
        start = self.start
        cut = self.shared.partition.records.floor(self.log_start)
        loses_pending = (
            self.log_start > start
            and cut is not None
            and cut.whole is not None
            and cut.whole.is_pending
            and cut.whole.state == AVAILABLE
            and cut.first_offset < self.log_start
        )
        self.shared.partition.begin_at(self.log_start)
        if loses_pending:  # as in Kafka: what is told apart doesn't wait for the write of the whole
            for offset in range(cut.first_offset, cut.last_offset + 1):  # type: ignore[union-attr]
                self.offsets[offset].pending_of = ""
                for changes in self.waiting:
                    changes.pop(offset, None)
        if self.log_start > start:
            for offset, known in self.offsets.items():
                if start <= offset < self.log_start and known.state == AVAILABLE:
                    known.state, known.deadline_ms = ARCHIVED, -2
        self.forget()

    @rule()
    def restart(self) -> None:
        """The writes that are on their way get there first, or never."""
        self.has_restarted = True
        self.waiting.clear()
        self.shared.persister.held.clear()
        self.shared.persister.holds = False
        self.shared = self.shared.restarted()
        self.shared.persister.holds = True
        if self.start < self.log_start:
            self.shared.partition.begin_at(self.log_start)
        self.offsets = {
            offset: Offset(state, count) for offset, (state, count, _) in self.shared.states().items()
        }

    def forget(self) -> None:
        """What left with its batch."""
        here = self.shared.states()
        for offset in [*self.offsets]:
            if offset not in here:
                known = self.offsets.pop(offset)
                assert offset < self.start
                assert known.state in (ACKNOWLEDGED, ARCHIVED) or offset < self.log_start
                assert not known.pending_of

    # --- what holds -----------------------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        here = self.shared.states()
        assert here == {offset: known.told for offset, known in self.offsets.items()}
        start, end, count = self.shared.span
        terminal = [
            offset
            for offset, known in self.offsets.items()
            if offset >= start and known.state in (ACKNOWLEDGED, ARCHIVED)
        ]
        assert count == len(terminal)
        assert end == max(here, default=start) or end == start
        assert self.shared.partition.lock_count <= sum(
            known.state == ACQUIRED or known.pending_of != "" for known in self.offsets.values()
        )

    @invariant()
    def finds_what_is_next(self) -> None:
        free = [
            offset
            for offset, known in self.offsets.items()
            if (known.state, known.pending_of) == (AVAILABLE, "")
        ]
        end = self.shared.span[1]
        if self.has_restarted:
            assert self.shared.next <= min(free, default=end + 1)
        else:
            assert self.shared.next == min(free, default=end + 1 if end in self.offsets else end)

    def teardown(self) -> None:
        """Everything comes to everybody in the end."""
        self.shared.persister.holds = False
        self.shared.persister.go_on()
        self.shared.runtime.pass_ms(LOCK_MS)
        for _ in range(200):
            acquired = self.shared.fetch("last", 7)
            if not acquired:
                before = self.shared.span
                self.shared.runtime.pass_ms(
                    LOCK_MS
                )  # of what lies below the start, where no acknowledgement counts
                if self.shared.span == before:
                    break
                continue
            assert not {o for first, last, _ in acquired for o in range(first, last + 1)} & self.done
            assert (
                self.shared.ack(*[(first, last, ACCEPT) for first, last, _ in acquired], member="last") == 0
            )
        start, end, count = self.shared.span
        assert self.shared.next == self.end
        assert start + count == self.end or (start, end) == (self.end, self.end)
        assert (self.shared.partition.lock_count, len(self.shared.runtime.timers)) == (0, 0)


ShareMachine.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, derandomize=True
)
TestShareMachine = ShareMachine.TestCase
