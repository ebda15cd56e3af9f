"""A fourth broker, played by a script: what it tells the controller, which must forget it afterwards."""

from __future__ import annotations

from typing import Any

from .play import Play
from .requests import metadata
from .waiting import ScriptStuck

ID = 4
INCARNATION = b"4" * 16
DIRECTORY = b"directory of 4.."
CAUGHT_UP = 10**12
FEATURES = (
    ("metadata.version", 7, 33),
    ("kraft.version", 0, 1),
    ("transaction.version", 0, 2),
    ("group.version", 0, 1),
    ("eligible.leader.replicas.version", 0, 1),
    ("share.version", 0, 2),
    ("streams.version", 0, 1),
)


def ranges(*features: tuple[str, int, int]) -> list[dict[str, Any]]:
    return [
        {"name": name, "min_supported_version": low, "max_supported_version": high}
        for name, low, high in features
    ]


def listener(name: str, port: int = 1) -> dict[str, Any]:
    return {"name": name, "host": "127.0.0.1", "port": port, "security_protocol": 0}


class PlayedBroker:
    """Its requests go to the controller."""

    def __init__(self, play: Play, broker_id: int = ID) -> None:
        self.play = play
        self.broker_id = broker_id
        self.epoch = -1
        self.cluster_id = play.quietly("DescribeCluster", 0, {}).cluster_id

    def registration(self, **fields: Any) -> dict[str, Any]:
        return {
            "broker_id": self.broker_id,
            "cluster_id": self.cluster_id,
            "incarnation_id": INCARNATION,
            "listeners": [listener("PLAINTEXT"), listener("INTERNAL")],
            "features": ranges(*FEATURES),
            "rack": "d",
            "log_dirs": [DIRECTORY],
        } | fields

    def register(self, case: str, version: int = 4, **fields: Any) -> Any:
        """Register. The broker takes the epoch from an answer without an error."""
        answer = self.play.ask(
            case, "BrokerRegistration", version, self.registration(**fields), on="controller"
        )
        if answer.error_code == 0:
            self.epoch = answer.broker_epoch
        return answer

    def beat(self, case: str = "", version: int = 2, **fields: Any) -> Any:
        """Send a heartbeat, which is in the transcript if it is a case."""
        asked = {
            "broker_id": self.broker_id,
            "broker_epoch": self.epoch,
            "current_metadata_offset": CAUGHT_UP,
        } | fields
        if case:
            return self.play.ask(case, "BrokerHeartbeat", version, asked, on="controller")
        return self.play.quietly("BrokerHeartbeat", version, asked, on="controller: scene")

    def begin(self) -> PlayedBroker:
        """Register quietly: it counts as alive until it is silent for too long."""
        asked = self.registration()
        answer = self.play.quietly("BrokerRegistration", 4, asked, on="controller: scene")
        if answer.error_code != 0:
            raise ScriptStuck(f"broker {self.broker_id} can't be registered: {answer.error_code}")
        self.epoch = answer.broker_epoch
        self.until_fenced(False)
        return self

    def until_fenced(self, fenced: bool) -> None:
        self.play.until(
            f"broker {self.broker_id} is fenced: {fenced}",
            lambda: self.beat(want_fence=fenced).is_fenced is fenced,
        )

    def lead(self, suffix: str, *others: int) -> bytes:
        """Create a topic whose only partition it leads, though nobody listens there. Return its id."""
        placed = [{"partition_index": 0, "broker_ids": [self.broker_id, *others]}]
        name = self.play.name(suffix)
        topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": placed}
        asked = {"topics": [topic], "timeout_ms": 30_000}
        answer = self.play.quietly("CreateTopics", 7, asked, on="controller: scene")
        (made,) = answer.topics
        if made.error_code != 0:
            raise ScriptStuck(f"{name} can't be made: {made.error_code}")
        self.play.names.given.setdefault("topic id", {})[made.topic_id.hex()] = f"<id of {suffix}>"
        self.beat()

        def known() -> bool:
            (found,) = self.play.quietly("Metadata", 12, metadata(name)).topics
            return bool(found.partitions)

        self.play.until(f"{name} is known", known)
        self.beat()
        return bytes(made.topic_id)

    def end(self, *suffixes: str) -> None:
        """Delete its topics, and then everything that is known of it."""
        names = [self.play.name(suffix) for suffix in suffixes]
        if names:
            asked = {"topic_names": names, "timeout_ms": 30_000}
            self.play.quietly("DeleteTopics", 5, asked, on="controller: scene")
            self.play.until_gone(*names)
        self.play.quietly("UnregisterBroker", 0, {"broker_id": self.broker_id}, on="controller: scene")
        self.play.until(
            "nobody knows of it",
            lambda: all(self.broker_id not in each.brokers for each in self.play.cluster.state.seen()),
        )
