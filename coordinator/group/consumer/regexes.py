"""Subscriptions by regular expression: when they are resolved, which topics they match, and what that changes.

Expressions are RE2's (`coordinator/java/re2.py`). They must match a whole name, and only match topics that
the requesting client may describe. They are resolved in the background. The heartbeat with a new one is
answered first, and long resolutions let others in (Kafka uses a thread). Each group has one resolution at a
time, and the next one starts at least 10 seconds after the last.

The matches become records: at once if they are few, else beside the loop. If the group changes meanwhile the
decision is made again, as for requests (`shard_parts.py`). If they can't be recorded, a later heartbeat has them
matched again. Kafka, too, logs and drops a result that can't be written.

Source: `GroupMetadataManager` (maybeUpdateRegularExpressions, handleRegularExpressionsResult),
`TopicRegexResolver`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from coordinator.group.consumer.decision import Decision, GroupDecision
from coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex, epoch_record, regex_record
from coordinator.group.modern.group import count_subscribers
from coordinator.group.ports import MOST_TRIES, MayDescribe, partitions_of
from coordinator.group.shard_parts import DeferredDecision, ShardParts
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from protocol.waiting import compute

if TYPE_CHECKING:
    from coordinator.java.re2 import Pattern
    from protocol.waiting import Waiting


log = logging.getLogger("barnabas.groups")


# --- resolution -----------------------------------------------------------------------------------------------


MIN_REFRESH_INTERVAL_MS = 10_000
WORK_PER_TURN = 100_000
"""The work of one turn: some 10 ms, in units of 100 ns. Others are served before the rest."""
WORK_PER_NAME = 30
"""The least work for a name."""
WORK_PER_MATCHED = 2
"""The work for each step that matching counts."""
WORK_PER_CHARACTER = 100
"""The work for each character of an expression while it is parsed; a step parses some hundreds of them."""
WORK_PER_COMPILED = 10
"""The work for each step that compiling counts. These steps are longer than those of matching."""


class RegexChange(Enum):
    """What a heartbeat does to its member's regular expression."""

    NONE = "it is the same"
    UPDATED = "it is another one, which has to be resolved first"
    RESOLVED = "it is another one that is resolved already, or none"


class _Resolution:
    """A resolution under way. It matches each expression in turn with each name."""

    __slots__ = (
        "compiled",
        "compiling",
        "found",
        "may_describe",
        "names",
        "next_name",
        "pattern",
        "regex",
        "timestamp_ms",
        "version",
        "waiting",
    )

    def __init__(
        self,
        *,
        version: int,
        timestamp_ms: int,
        names: Sequence[str],
        waiting: list[str],
        compiled: dict[str, Pattern],
        may_describe: MayDescribe,
    ) -> None:
        self.version = version
        self.timestamp_ms = timestamp_ms
        self.names = names
        self.waiting = waiting  # popped from the end
        self.compiled = compiled  # patterns that a heartbeat has just compiled
        self.may_describe = may_describe
        self.found: dict[str, list[str]] = {}
        self.regex = ""
        self.compiling: Waiting[Pattern | None] | None = None
        self.pattern: Pattern | None = None
        self.next_name = 0

    def take_turn(self) -> bool:
        """Work for one turn. Returns True if everything is matched."""
        work = 0
        while work < WORK_PER_TURN:
            if self.pattern is not None:
                work += self._match(self.pattern, WORK_PER_TURN - work)
            elif self.compiling is not None:
                work += self._compile(self.compiling)
            elif not self.waiting:
                return True
            else:
                self.regex = self.waiting.pop()
                self.found[self.regex] = []
                self.next_name = 0
                self.pattern = self.compiled.pop(self.regex, None)
                if self.pattern is None:
                    self.compiling = _compiling(self.regex)
        return False

    def _compile(self, compiling: Waiting[Pattern | None]) -> int:
        """Compile one step further. Returns the work done."""
        try:
            compiling.send(None)
        except StopIteration as end:
            self.pattern, self.compiling = end.value, None
        made = 0 if self.pattern is None else self.pattern.work
        return 1 + len(self.regex) * WORK_PER_CHARACTER + made * WORK_PER_COMPILED

    def _match(self, pattern: Pattern, limit: int) -> int:
        """Match at least one name. Returns the work done."""
        before, first = pattern.work, self.next_name
        work = 0
        found = self.found[self.regex]
        while self.next_name < len(self.names):
            name = self.names[self.next_name]
            self.next_name += 1
            if pattern.matches(name) and self.may_describe(name):
                found.append(name)
            work = (pattern.work - before) * WORK_PER_MATCHED + (self.next_name - first) * WORK_PER_NAME
            if work >= limit:
                break
        if self.next_name == len(self.names):
            self.pattern = None
        return work


class Regexes:
    """The regular expressions of a shard's groups."""

    def __init__(self, parts: ShardParts) -> None:
        self._groups = parts.store.consumer
        self._runtime = parts.runtime
        self._topics = parts.topics
        self._refresh_interval_ms = parts.settings.consumer_regex_refresh_interval_ms
        self._results = RegexResults(parts)
        self.resolving: set[str] = set()
        """Groups whose regular expressions are being resolved, or whose matches are being recorded."""
        self._topics_created_version = 0
        """The version of the metadata that last added a topic."""
        self.topics_were_created()

    def topics_were_created(self) -> None:
        """Note that topics were added, so resolved expressions may be incomplete."""
        self._topics_created_version = self._topics.version

    def follow(self, decision: Decision) -> RegexChange:
        """Follow a member's change. If a resolution is due, it starts when the decision is taken.

        Raises KafkaError (INVALID_REGULAR_EXPRESSION) for a new expression that is malformed.
        """
        group, old, new = decision.group, decision.old, decision.new
        change = RegexChange.NONE
        is_new = False
        compiled: dict[str, Pattern] = {}
        if old.regex != new.regex:
            change = RegexChange.UPDATED
            was, now = old.regex or None, new.regex or None
            if was is not None and group.regexes[was] == 1:
                decision.records.append(regex_record(group.group_id, was, None))
            if now is not None and group.regexes[now] == 0:
                compiled[now] = checked(now)
                is_new = True
            elif (now is not None and now in group.resolved) or (now is None and was is not None):
                change = RegexChange.RESOLVED
        if (is_new or group.regexes) and group.group_id not in self.resolving:
            regexes = group.regexes_with(old, new)
            if regexes and self._is_due(group, is_new, len(regexes)):
                begin = partial(self._begin, group.group_id, [*regexes], compiled, decision.may_describe)
                decision.effects.append(partial(self._resolve, group.group_id, begin))
        return change

    def _resolve(self, group_id: str, begin: Callable[[], None]) -> None:
        if group_id in self.resolving:
            return  # one has started since this was decided; the next one catches up after it
        self.resolving.add(group_id)
        self._schedule(group_id, begin)

    def _is_due(self, group: ConsumerGroup, is_new: bool, count: int) -> bool:
        last = next(iter(group.resolved.values()), None)
        now_ms = self._runtime.now_ms()
        if last is not None and now_ms <= last.timestamp_ms + MIN_REFRESH_INTERVAL_MS:
            return False
        if is_new or count != len(group.resolved) or last is None:
            return True
        return (
            last.version < self._topics_created_version
            or now_ms > last.timestamp_ms + self._refresh_interval_ms
        )

    def _schedule(self, group_id: str, callback: Callable[[], None]) -> None:
        def step() -> None:
            try:
                callback()
            except BaseException:  # an unexpected failure must not end all resolutions
                self.resolving.discard(group_id)
                raise

        self._runtime.schedule(("regexes", group_id), 0, step)

    def _begin(
        self,
        group_id: str,
        regexes: Sequence[str],
        compiled: dict[str, Pattern],
        may_describe: MayDescribe,
    ) -> None:
        """Start a resolution with the current topics and time, however long it takes."""
        resolution = _Resolution(
            version=self._topics.version,
            timestamp_ms=self._runtime.now_ms(),
            names=[*self._topics.names()],
            waiting=[*reversed(regexes)],
            compiled=compiled,
            may_describe=may_describe,
        )
        self._go_on(group_id, resolution)

    def _go_on(self, group_id: str, resolution: _Resolution) -> None:
        if resolution.take_turn():
            self._schedule(group_id, partial(self._record, group_id, resolution))  # a turn of its own
        else:
            self._schedule(group_id, partial(self._go_on, group_id, resolution))

    def _record(self, group_id: str, resolution: _Resolution) -> None:
        matched = Matched(resolution.found, resolution.version, resolution.timestamp_ms)
        self._results.record(group_id, matched, partial(self.resolving.discard, group_id))


def checked(regex: str) -> Pattern:
    """Compile an expression. Raises KafkaError. For a long one call this beside the loop (`shard_parts.py`)."""
    # Imported here: few groups use regular expressions, so a start doesn't load them.
    from coordinator.java.re2 import PatternSyntaxError, compile_pattern

    try:
        return compile_pattern(regex)
    except PatternSyntaxError as error:
        raise KafkaError(
            Error.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None


async def _compiling(regex: str) -> Pattern | None:
    """Compile an expression in steps. Returns None for one in the log that isn't valid any more; it matches
    nothing."""
    from coordinator.java.re2 import PatternSyntaxError, compiling

    try:
        return await compiling(regex)
    except PatternSyntaxError as error:
        log.error("the regular expression %r is ignored: %s", regex, error)
        return None


# --- matches become records -----------------------------------------------------------------------------------

MOST_RECORDED_IN_PASSING = 10_000
"""The most work to record at once: some 10 ms, in units of about a microsecond."""

_PER_TOPIC, _PER_PARTITION = 40, 8

Recorded = Callable[[], None]
"""Called when a result is settled, recorded or not."""


class Matched(NamedTuple):
    """The topics that each expression of a group has matched, at a version of the metadata."""

    found: Mapping[str, Sequence[str]]
    version: int
    timestamp_ms: int


class RegexResults:
    """Records matches, and bumps the group's epoch if its topics have changed."""

    def __init__(self, parts: ShardParts) -> None:
        self._parts = parts
        self._groups = parts.store.consumer
        self._runtime = parts.runtime
        self._topics = parts.topics
        self._hashes = parts.hashes

    def record(self, group_id: str, matched: Matched, recorded: Recorded) -> None:
        """Record matches, in this call or a later one."""
        group = self._groups.get(group_id)
        if group is not None and not self._is_little(group, matched):
            self._runtime.carry_out(group_id, self._beside(group_id, matched, recorded))
            return
        try:
            if group is not None:
                self._in_passing(group, matched)
        finally:
            recorded()

    def _is_little(self, group: ConsumerGroup, matched: Matched) -> bool:
        """Judge by the number of topics and expressions. If these are few, count the topics' partitions as well."""
        lists = (group.topics, *matched.found.values())
        work = (sum(map(len, lists)) + len(matched.found)) * _PER_TOPIC
        if work > MOST_RECORDED_IN_PASSING:
            return False
        work += partitions_of(chain.from_iterable(lists), self._topics) * _PER_PARTITION
        return work <= MOST_RECORDED_IN_PASSING

    def _in_passing(self, group: ConsumerGroup, matched: Matched) -> None:
        decision = GroupDecision(group, [])
        self._decide(decision, matched)
        decision.take_effect()
        try:
            self._parts.journal.write(decision.records)
        except KafkaError as error:
            _complain(group.group_id, error)

    async def _beside(self, group_id: str, matched: Matched, recorded: Recorded) -> None:
        try:
            for _ in range(MOST_TRIES):
                group = self._groups.get(group_id)
                if group is None:
                    return  # deleted, converted to the classic protocol, or coordinated elsewhere
                decision = GroupDecision(group, [])
                deferred = DeferredDecision(self._parts, decision, partial(self._decide, decision, matched))
                await compute(deferred.decide)
                if deferred.settle():
                    return
            _complain(group_id, "it changes all the time")
        except KafkaError as error:
            _complain(group_id, error)
        finally:
            recorded()

    def _decide(self, decision: GroupDecision, matched: Matched) -> bool:
        """Decide what to record. Only changes the decision. Always returns True, for a decision that was made."""
        group = decision.group
        resolved: JavaMap[str, ResolvedRegex] = JavaMap(len(matched.found))
        for regex, names in matched.found.items():
            resolved[regex] = ResolvedRegex(JavaSet.of(names), matched.version, matched.timestamp_ms)
        topics = dict(group.topics)
        bump = False
        for regex, now in resolved.items():
            if not group.regexes[regex]:
                continue  # nobody subscribes to it any more
            before = group.resolved.get(regex)
            old_topics = JavaSet[str]() if before is None else before.topics
            if old_topics != now.topics:
                bump = True
                for topic in old_topics:
                    count_subscribers(topics, topic, by_regex=-1)
                for topic in now.topics:
                    count_subscribers(topics, topic, by_regex=1)
            decision.records.append(regex_record(group.group_id, regex, now))
        hashed = self._hashes.look(topics)
        decision.effects.append(partial(self._hashes.keep, hashed))
        if bump:
            decision.effects.append(self._parts.member_memory.may_be_more)
        if bump or hashed.value != group.metadata_hash:
            epoch = group.epoch + 1
            decision.records.append(epoch_record(group.group_id, epoch, hashed.value))
            decision.effects.append(partial(group.was_refreshed, self._runtime.now_ms(), epoch))
        return True


def _complain(group_id: str, why: object) -> None:
    log.warning("group %s: can't record the topics of its regular expressions: %s", group_id, why)
