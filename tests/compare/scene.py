"""The scene of a script: a broker, connections to it, and preparations that aren't compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.support.wire import Answer

from .cluster import Cluster
from .cluster_properties import BROKERS
from .frames import Client, connect, signed_in
from .mask_actions import Names
from .waiting import PATIENCE_S, ScriptStuck, until


class Broker(Protocol):
    """The broker that a script is played to."""

    port: int

    @property
    def sasl_port(self) -> int:
        """The port of the listener where clients sign in, if the properties have one."""
        ...

    @property
    def data(self) -> Path: ...

    def restart(self, *, kill: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes


class Scene:
    """Nothing that happens here is in a transcript. `prefix` begins the names of the script's own topics."""

    def __init__(self, broker: Broker, prefix: str) -> None:
        self.broker = broker
        self.prefix = prefix
        self.now_ms = int(time.time() * 1000)
        self.names = Names(broker.port, prefix, self.now_ms)
        self.on_cluster = isinstance(broker, Cluster)
        if self.on_cluster:
            self.names.other_ports |= {
                port: f"<port of {listener}>" for listener, port in self.cluster.ports.items()
            }
        self._clients: dict[str, Client] = {}
        self._users: dict[str, tuple[str, str]] = {}

    @property
    def cluster(self) -> Cluster:
        """The cluster that the broker belongs to."""
        assert isinstance(self.broker, Cluster), "this script is played to a single broker"
        return self.broker

    # --- connections -------------------------------------------------------------------------------------------

    def client(self, on: str = "main", *, from_host: str = "127.0.0.1") -> Client:
        """Return the connection of that name. Opens it if there is none, or the broker has closed it.

        In a cluster it goes to broker 1, unless its name is that of another listener, or begins with it and a colon:
        "broker 2", "broker 2 inter-broker", "controller", "broker 3: another".
        """
        client = self._clients.get(on)
        if client is None or client.closed:
            if on in self._users:
                client = self._clients[on] = signed_in(self.broker.sasl_port, *self._users[on])
                return client
            ports = self.cluster.ports if self.on_cluster else {}
            port = ports.get(on.partition(":")[0], self.broker.port)
            client = self._clients[on] = connect(port, from_host=from_host)
        return client

    def sign_in(self, on: str, user: str, password: str) -> None:
        """Have the connection of that name sign in as the user, with SASL PLAIN, when it is opened."""
        self._users[on] = (user, password)

    def drop(self, on: str) -> None:
        client = self._clients.pop(on, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for name in list(self._clients):
            self.drop(name)

    # --- preparations ------------------------------------------------------------------------------------------

    def quietly(
        self, api: str, version: int, fields: Mapping[str, Any], *, on: str = "scene", **how: Any
    ) -> Any:
        """Send a request whose answer isn't recorded, and return the answer."""
        client = self.client(on)
        answer = client.receive(client.say(api, version, fields, **how))
        if not isinstance(answer, Answer):
            raise ScriptStuck(f"{api} v{version} to set the scene: {answer.value}")
        return answer.message

    def name(self, suffix: str) -> str:
        """Return a topic name that no other script uses."""
        return self.prefix + suffix

    def topic(
        self, suffix: str, partitions: int = 1, *, replicas: Sequence[int] = BROKERS, **configs: str
    ) -> Topic:
        """Create a topic, and return when it is there. A config's dots are underscores here.

        replicas: each partition's replicas in a cluster, the leader first.
        """
        name = self.name(suffix)
        placed = [{"partition_index": index, "broker_ids": list(replicas)} for index in range(partitions)]
        answer = self.quietly(
            "CreateTopics",
            7,
            {
                "topics": [
                    {
                        "name": name,
                        "num_partitions": -1 if self.on_cluster else partitions,
                        "replication_factor": -1 if self.on_cluster else 1,
                        "assignments": placed if self.on_cluster else [],
                        "configs": [
                            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
                        ],
                    }
                ],
                "timeout_ms": 20_000,
            },
        )
        (created,) = answer.topics
        if created.error_code != 0:
            raise ScriptStuck(f"topic {name} can't be created: {created.error_code} {created.error_message}")
        self.until_there(name, partitions)
        self.names.given.setdefault("topic id", {})[created.topic_id.hex()] = f"<id of {suffix}>"
        return Topic(name, bytes(created.topic_id))

    def until_there(self, name: str, partitions: int = 1) -> None:
        """Wait until the topic's partitions answer: in Kafka a moment after their creation."""
        if self.on_cluster:
            for index in range(partitions):
                self.cluster.until_led(name, partition=index)
            return
        asked = {
            "replica_id": -1,
            "topics": [
                {
                    "name": name,
                    "partitions": [{"partition_index": i, "timestamp": -1} for i in range(partitions)],
                }
            ],
        }

        def there() -> bool:
            (topic,) = self.quietly("ListOffsets", 4, asked).topics
            return all(partition.error_code == 0 for partition in topic.partitions)

        self.until(f"topic {name} is there", there)

    def until_gone(self, *names: str) -> None:
        """Wait until Metadata no longer knows these topics: in Kafka a moment after their deletion."""
        asked = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}

        def gone() -> bool:
            return all(topic.error_code == 3 for topic in self.quietly("Metadata", 9, asked).topics)

        self.until(f"{', '.join(names)} are gone", gone)

    def until(self, what: str, holds: Callable[[], bool], *, within_s: float = PATIENCE_S) -> None:
        until(what, holds, within_s=within_s)

    def tick(self) -> None:
        """Let the clock go on by two milliseconds, if the broker's times must differ."""
        start_s = time.time()
        self.until("the clock has gone on", lambda: time.time() - start_s > 0.002)

    def write(self, topic: str, *batches: bytes, partition: int = 0) -> int:
        """Append batches, one request each. Return the base offset of the last one."""
        base_offset = -1
        for data in batches:
            answer = self.quietly(
                "Produce",
                9,
                {
                    "acks": -1,
                    "timeout_ms": 10_000,
                    "topic_data": [
                        {"name": topic, "partition_data": [{"index": partition, "records": data}]}
                    ],
                },
            )
            produced = answer.responses[0].partition_responses[0]
            if produced.error_code != 0:
                raise ScriptStuck(
                    f"a batch for {topic}-{partition}: {produced.error_code} {produced.error_message}"
                )
            base_offset = produced.base_offset
        return base_offset

    def restart(self, *, kill: bool = False) -> None:
        """Stop the broker, and start it on the same folder."""
        self.close()
        self.broker.restart(kill=kill)

    def file(self, topic: str, partition: int, name: str) -> bytes:
        """Return the present content of a file in a partition's folder."""
        return (self.broker.data / f"{topic}-{partition}" / name).read_bytes()
