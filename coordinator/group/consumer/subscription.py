"""The first step of a decision: what a member subscribes to, and whether the group is to be assigned anew for it.

Source: `GroupMetadataManager` (hasMemberSubscriptionChanged and what follows it in consumerGroupHeartbeat).
"""

from __future__ import annotations

import logging
from functools import partial

from coordinator.group.consumer.decision import Decision
from coordinator.group.consumer.records import epoch_record, member_record, partition_metadata_tombstone
from coordinator.group.consumer.regexes import RegexChange, Regexes
from coordinator.group.parts import ShardParts

log = logging.getLogger("barnabas.groups")


class SubscriptionStep:
    """Records what changed of the member, and gives the group its next epoch where its topics did."""

    def __init__(self, parts: ShardParts, regexes: Regexes) -> None:
        self._groups = parts.store.consumer
        self._runtime = parts.runtime
        self._hashes = parts.hashes
        self._regexes = regexes

    def take(self, decision: Decision) -> None:
        """Raises KafkaError (INVALID_REGULAR_EXPRESSION)."""
        old, new = decision.old, decision.new
        names_changed = False
        if new != old:
            decision.records.append(member_record(decision.group.group_id, new))
            names_changed = new.names != old.names
        regex_change = self._regexes.follow(decision)
        decision.subscription_changed = names_changed or regex_change is not RegexChange.NONE
        if new.is_classic:
            bump = decision.subscription_changed
        else:
            bump = names_changed or regex_change is RegexChange.RESOLVED
        if bump or decision.group.needs_refresh(self._runtime.now_ms()):
            self._refresh(decision, bump=bump)

    def _refresh(self, decision: Decision, *, bump: bool) -> None:
        """The group's epoch grows where its topics changed, or `bump` says so."""
        group = decision.group
        topics, decision.homogeneous = group.subscriptions_with(decision.old, decision.new)
        hashed = self._hashes.look(topics)
        decision.effects.append(partial(self._hashes.keep, hashed))
        metadata_hash = hashed.value
        if bump or metadata_hash != group.metadata_hash:
            decision.epoch = group.epoch + 1
            decision.records.append(epoch_record(group.group_id, decision.epoch, metadata_hash))
            decision.effects.append(
                partial(log.info, "group %s is at epoch %d", group.group_id, decision.epoch)
            )
        refreshed = partial(self._was_refreshed, group.group_id, self._runtime.now_ms(), decision.epoch)
        decision.effects.append(refreshed)
        if group.has_partition_metadata:
            decision.records.append(partition_metadata_tombstone(group.group_id))

    def _was_refreshed(self, group_id: str, now_ms: int, epoch: int) -> None:
        """A group that isn't there yet looks once more at its next heartbeat."""
        group = self._groups.get(group_id)
        if group is not None:
            group.was_refreshed(now_ms, epoch)
