"""Subscriptions by regular expression: when they are resolved, and what comes of it.

Expressions are RE2's (`coordinator/re2`), matched whole, over all topics. They are resolved in the background: the
heartbeat that brings a new one is answered before. One resolution of a group at a time, the next one at the earliest 10
seconds after the last.
Source: `GroupMetadataManager.maybeUpdateRegularExpressions`, handleRegularExpressionsResult, `TopicRegexResolver`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from coordinator.group.consumer.group import ConsumerGroup, ResolvedRegex, changed, regex_of
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.metadata_hash import group_hash
from coordinator.group.consumer.records import epoch_record, regex_record
from coordinator.group.records import AnyRecord
from coordinator.java_maps import JavaMap, JavaSet
from coordinator.re2 import PatternSyntaxError, compile_pattern
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard

log = logging.getLogger("barnabas.groups")

MIN_INTERVAL_MS = 10_000
METADATA_REFRESH_INTERVAL_MS = 2**31 - 1


class RegexChange(Enum):
    """What a heartbeat did to its member's regular expression."""

    NONE = "it is the same"
    UPDATED = "it is another one, which has to be resolved first"
    RESOLVED = "it is another one that is resolved already, or none"


def update(
    shard: GroupShard,
    group: ConsumerGroup,
    old: ConsumerMember,
    new: ConsumerMember,
    records: list[AnyRecord],
) -> RegexChange:
    """Follow a member's change, and begin a resolution where one is due.

    Raises KafkaError (INVALID_REGULAR_EXPRESSION) for a new one that makes no sense.
    """
    change = RegexChange.NONE
    is_new = False
    was, now = regex_of(old), regex_of(new)
    if old.regex != new.regex:
        change = RegexChange.UPDATED
        if was is not None and group.regexes[was] == 1:
            records.append(regex_record(group.group_id, was, None))
        if now is not None and group.regexes[now] == 0:
            _check(now)
            is_new = True
        elif (now is not None and now in group.resolved) or (now is None and was is not None):
            change = RegexChange.RESOLVED
    if (is_new or group.regexes) and group.group_id not in shard.resolving:
        regexes = group.regexes_with(old, new)
        if regexes and _is_due(shard, group, is_new, len(regexes)):
            shard.resolving.add(group.group_id)
            callback = partial(_resolve, shard, group.group_id, [*regexes])
            shard.world.schedule(("regexes", group.group_id), 0, callback)
    return change


def _check(regex: str) -> None:
    try:
        compile_pattern(regex)
    except PatternSyntaxError as error:
        raise KafkaError(
            Error.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None


def _is_due(shard: GroupShard, group: ConsumerGroup, is_new: bool, count: int) -> bool:
    last = next(iter(group.resolved.values()), None)
    now_ms = shard.world.now_ms()
    if last is not None and now_ms <= last.timestamp_ms + MIN_INTERVAL_MS:
        return False
    if is_new or count != len(group.resolved) or last is None:
        return True
    return (
        last.version < shard.topics_created_version
        or now_ms > last.timestamp_ms + shard.settings.consumer_regex_refresh_interval_ms
    )


def _resolve(shard: GroupShard, group_id: str, regexes: Sequence[str]) -> None:
    shard.resolving.discard(group_id)
    group = shard.consumer_groups.get(group_id)
    if group is None:
        return
    now_ms = shard.world.now_ms()
    version = shard.topics.version
    matched: JavaMap[str, ResolvedRegex] = JavaMap(len(regexes))
    for regex in regexes:
        matched[regex] = ResolvedRegex(_topics_of(regex, shard.topics.names()), version, now_ms)
    records: list[AnyRecord] = []
    topics = dict(group.topics)
    bump = False
    for regex, resolved in matched.items():
        if not group.regexes[regex]:
            continue  # nobody subscribes to it any more
        before = group.resolved.get(regex)
        old_topics = JavaSet[str]() if before is None else before.topics
        if old_topics != resolved.topics:
            bump = True
            for topic in old_topics:
                changed(topics, topic, by_regex=-1)
            for topic in resolved.topics:
                changed(topics, topic, by_regex=1)
        records.append(regex_record(group_id, regex, resolved))
    metadata_hash = group_hash(topics, shard.topics, shard.topic_hashes)
    if bump or metadata_hash != group.metadata_hash:
        records.append(epoch_record(group_id, group.epoch + 1, metadata_hash))
        group.refresh_deadline_ms = now_ms + METADATA_REFRESH_INTERVAL_MS
        group.refresh_epoch = group.epoch + 1
    try:
        shard.commit(records)
    except KafkaError as error:
        log.warning("group %s: its regular expressions aren't recorded: %s", group_id, error)


def _topics_of(regex: str, names: Iterable[str]) -> JavaSet[str]:
    try:
        pattern = compile_pattern(regex)
    except PatternSyntaxError as error:
        log.error("the regular expression %r is ignored: %s", regex, error)
        return JavaSet()
    return JavaSet.of(sorted(name for name in names if pattern.matches(name)))
