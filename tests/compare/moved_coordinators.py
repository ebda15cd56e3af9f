"""Coordinators of a cluster that aren't all on broker 1, and clients that know where they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from .cluster_properties import BROKERS
from .play import Play
from .scripts.replicas import election, reassignment
from .transaction_log import PARTITIONS

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
NOT_YET = (14, 15, 16)
OF_GROUPS = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "TxnOffsetCommit")


def coordinated_by(
    play: Play, topic: str, broker: int, *partitions: int, followers: Sequence[int] = ()
) -> None:
    """Let a broker lead partitions of an internal topic, or all of them, and wait until all brokers know it."""
    replicas = [broker, *(followers or (each for each in BROKERS if each != broker))]
    wanted = partitions or range(PARTITIONS)
    moved = reassignment(*((topic, index, replicas) for index in wanted))
    play.quietly("AlterPartitionReassignments", 1, moved, on="controller: scene")
    play.quietly("ElectLeaders", 2, election((topic, [*wanted])), on="controller: scene")
    for index in wanted:
        play.cluster.until_led(topic, by=broker, partition=index)

    def known() -> bool:
        for seen in play.cluster.state.seen():
            if any(seen.partitions[topic, index].replica_nodes != replicas for index in wanted):
                return False
        return True

    play.until(f"{topic} is on {replicas}", known)


def coordinated_as_before(play: Play) -> None:
    for topic in (OFFSETS, TRANSACTIONS):
        coordinated_by(play, topic, 1)


class Routed:
    """A play whose quiet requests go where a client would send them."""

    def __init__(
        self, play: Play, *, transactions: int = 1, groups: int = 1, leaders: Mapping[str, int]
    ) -> None:
        self._play = play
        self.transactions = transactions
        self.groups = groups
        self.leaders = leaders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._play, name)

    def quietly(self, api: str, version: int, fields: Mapping[str, Any], **how: Any) -> Any:
        if api == "Produce":
            broker = self.leaders[fields["topic_data"][0]["name"]]
        else:
            broker = self.groups if api in OF_GROUPS else self.transactions
        return self._play.quietly(api, version, fields, **{"on": f"broker {broker}: scene"} | how)

    def as_play(self) -> Play:
        return cast(Play, self)


def on_all(case: str) -> Sequence[tuple[str, str]]:
    return [(f"{case}, of broker {each}", f"broker {each}") for each in BROKERS]
