"""Where one node on somebody's machine needs another setting than Kafka's default, made for three."""

from __future__ import annotations

from typing import NamedTuple


class OwnDefault(NamedTuple):
    """A default that isn't Kafka's, and why."""

    value: str
    reason: str


DEFAULTS: dict[str, OwnDefault] = {
    "node.id": OwnDefault("1", "Kafka has none and doesn't start without"),
    "process.roles": OwnDefault("broker,controller", "Kafka has none; one node is both"),
    "controller.listener.names": OwnDefault("CONTROLLER", "Kafka has none; the name that its own files use"),
    "listeners": OwnDefault(
        "PLAINTEXT://127.0.0.1:9092", "a broker without passwords stays on its own machine"
    ),
    "offsets.topic.replication.factor": OwnDefault("1", "3 replicas on one node never come to be"),
    "transaction.state.log.replication.factor": OwnDefault("1", "as above: transactions would hang"),
    "transaction.state.log.min.isr": OwnDefault(
        "1", "2 of 1 replica are never in sync: transactions would hang"
    ),
    "share.coordinator.state.topic.replication.factor": OwnDefault("1", "as above: share groups would hang"),
    "share.coordinator.state.topic.min.isr": OwnDefault("1", "as above: share groups would hang"),
    "group.initial.rebalance.delay.ms": OwnDefault(
        "100",
        "3 seconds for a consumer to join, so that others can come; those that a test starts together come within this",
    ),
    "group.streams.initial.rebalance.delay.ms": OwnDefault("0", "as above, for Kafka Streams"),
}
"""Kafka's Docker image and its quick start set most of these in the same way."""

SHOWN_AS_GIVEN = ("node.id", "process.roles", "controller.listener.names")
"""A Kafka that runs has these from its file: described as static, not as defaults."""

AT_MOST_ONE: dict[str, str] = {
    "default.replication.factor": "a topic can't have more replicas than there are brokers",
    "offsets.topic.replication.factor": "a group's offsets could never be stored",
    "transaction.state.log.replication.factor": "transactions would hang",
    "transaction.state.log.min.isr": "transactions would hang",
    "share.coordinator.state.topic.replication.factor": "share groups would hang",
    "share.coordinator.state.topic.min.isr": "share groups would hang",
}
"""What is taken as 1 where the user asks for more, and what would come of it.

Files made for three brokers are the most common reason for a local Kafka that hangs.
"""

REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "authorizer.class.name": (
        (),
        "authorizers aren't built yet, and without one everybody may do everything",
    ),
    "remote.log.storage.system.enable": (("true",), "tiered storage isn't built"),
    "config.providers": ((), "config providers aren't built; write the values themselves"),
}
"""Setting -> (the values that are refused, or none for all but an empty one; why).

Only what somebody would rely on and not get. All else that isn't built is accepted and without effect, so
that a file made for Kafka works.
"""
