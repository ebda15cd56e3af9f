"""Metrics of groups: their number by state, their committed offsets, and their lag.

A node reports the groups that it coordinates. It asks other leaders for the ends of their partitions, all at once and
within the time that a scrape may take. Sources: `GroupCoordinatorMetrics`, `GroupMetadataManager`, and kafka_exporter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from broker.replicas.leader import Leader
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.coordination.coordinators import Coordinators
    from broker.environment.scheduler import Scheduler
    from broker.metrics.families import Families
    from broker.replicas.partitions import Partitions
    from protocol.topic_partition import TopicPartition
    from protocol.waiting import Pause

PATIENCE_S = 2.0
"""How long other nodes may take to report the ends of their partitions. Partitions without an answer have no lag in
this scrape, and their topics no sum."""

STATES = {
    "classic": ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable", "Dead"),
    "share": ("Empty", "Stable", "Dead"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead"),
}
"""The states that Kafka reports, by protocol."""

_OF_COORDINATOR: Final = "kafka_server_group_coordinator_metrics_"


class WatchedGroups(Protocol):
    """The parts of a broker that these metrics come from."""

    partitions: Partitions
    coordinators: Coordinators
    scheduler: Scheduler


class _Committed(NamedTuple):
    """One group's offset in one partition."""

    group_id: str
    partition: TopicPartition
    offset: int


async def count_groups(families: Families, node: WatchedGroups, pause: Pause) -> None:
    """Add all metrics of the groups that this node coordinates."""
    by_state: Counter[tuple[str, str]] = Counter()
    committed: list[_Committed] = []
    for shard in node.coordinators.groups.hosted.readable():
        for group in shard.groups.all_with_offsets():
            if pause.is_due(5):
                await turn()
            listed = group.listed()
            by_state[listed.group_type, listed.group_state] += 1
            families.gauge(
                "kafka_consumergroup_members",
                "Members of a group",
                group.member_count,
                consumergroup=group.group_id,
            )
            for topic, partitions in [*shard.offsets.of_group(group.group_id).items()]:
                if pause.is_due(len(partitions)):
                    await turn()
                committed += [
                    _Committed(group.group_id, (topic, index), each.offset)
                    for index, each in partitions.items()
                ]
    _groups(families, by_state, len(committed))
    for protocol, count in (
        ("group_completed", "classic"),
        ("consumer_group", "consumer"),
        ("share_group", "share"),
        ("streams_group", "streams"),
    ):
        families.gauge(
            f"{_OF_COORDINATOR}{protocol}_rebalance_count",
            "Rebalances since the start: completed ones of classic groups, new group epochs of others",
            node.coordinators.groups.statistics.rebalances[count],
        )
    await _offsets(families, node, committed, pause)


def _groups(families: Families, by_state: Counter[tuple[str, str]], offsets: int) -> None:
    families.gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups", sum(by_state.values()))
    families.gauge("kafka_coordinator_group_groupmetadatamanager_numoffsets", "Offsets", offsets)
    for protocol, states in STATES.items():
        counts = {state: by_state[protocol, state] for state in states}
        families.gauge(
            _OF_COORDINATOR + "group_count",
            "Groups, by protocol",
            sum(count for (of, _), count in by_state.items() if of == protocol),
            protocol=protocol,
        )
        for state, count in counts.items():
            families.gauge(
                f"{_OF_COORDINATOR}{protocol}_group_count",
                f"Groups of {protocol}, by state",
                count,
                state=state,
            )


# --- Committed offsets and lag ------------------------------------------------------------------------------------


async def _offsets(
    families: Families, node: WatchedGroups, committed: list[_Committed], pause: Pause
) -> None:
    ends: dict[TopicPartition, int] = {}
    elsewhere: dict[TopicPartition, None] = {}
    for each in committed:
        if pause.is_due():
            await turn()
        if each.partition in ends or each.partition in elsewhere:
            continue
        end = _end_here(node.partitions, each.partition)
        if end is None:
            elsewhere[each.partition] = None
        else:
            ends[each.partition] = end
    if elsewhere:
        latest = node.coordinators.latest_offsets
        ends.update(await latest.of_many(elsewhere, node.scheduler, PATIENCE_S))
    offsets: defaultdict[tuple[str, str], int] = defaultdict(int)
    lags: dict[tuple[str, str], int | None] = {}
    for group_id, (topic, index), offset in committed:
        if pause.is_due(5):
            await turn()
        labels = {"consumergroup": group_id, "topic": topic, "partition": str(index)}
        families.gauge_of(labels, "kafka_consumergroup_current_offset", "A group's committed offset", offset)
        offsets[group_id, topic] += offset
        so_far = lags.setdefault((group_id, topic), 0)
        end = ends.get((topic, index))
        if end is None:
            lags[group_id, topic] = None  # a partial sum would look as if the group had caught up
        else:
            lag = max(0, end - offset)
            if so_far is not None:
                lags[group_id, topic] = so_far + lag
            families.gauge_of(
                labels, "kafka_consumergroup_lag", "Offsets that a group hasn't consumed yet", lag
            )
    for (group_id, topic), sum_of_lags in lags.items():
        if pause.is_due(2):
            await turn()
        labels = {"consumergroup": group_id, "topic": topic}
        families.gauge(
            "kafka_consumergroup_current_offset_sum",
            "The sum of a group's committed offsets in a topic",
            offsets[group_id, topic],
            **labels,
        )
        if sum_of_lags is not None:
            families.gauge(
                "kafka_consumergroup_lag_sum",
                "Offsets of a topic that a group hasn't consumed yet",
                sum_of_lags,
                **labels,
            )


def _end_here(partitions: Partitions, partition: TopicPartition) -> int | None:
    """The high watermark, as in kafka-consumer-groups; None if this node doesn't lead the partition."""
    found = partitions.find(*partition)
    return found.log.high_watermark if found is not None and isinstance(found.role, Leader) else None
