"""Requests that read and change the metadata, drawn by chance, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

from broker.controller.image import ClusterImage
from broker.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_topics,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topic_partitions,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_partition_reassignments,
    metadata,
    unregister_broker,
    update_features,
)
from broker.network.dispatch import with_ports
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS
from protocol.waiting import Later
from tests.compare.plain import message_from, plain
from tests.support.whole_server import handled

NODES_OWN = ("brokers", "cluster_id")
TOPICS = ("a", "b", "c")
TIMEOUT_MS = 1000
TOPIC, BROKER, GROUP, CLIENT_METRICS = 2, 4, 32, 16


class Request(NamedTuple):
    """A client's request: the handler that takes it, its API key, its version and its fields."""

    handler: Any
    key: int
    version: int
    fields: dict[str, Any]
    committed_topics: tuple[str, ...] = ()
    """The request looks these topics up in the committed metadata, as in Kafka. So they have to be the same there and
    in the written metadata."""


class Requests:
    """Draws requests that change a few things again and again."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def draw(self) -> Request:
        kinds: tuple[Callable[[], Request], ...] = (
            self.create,
            self.create,
            self.delete,
            self.grow,
            self.alter,
            self.alter,
            self.set,
            self.limit,
            self.store,
            self.update,
            self.begin,
            self.elect,
            self.reassign,
            self.unregister,
            self.ask,
        )
        return self.chance.choice(kinds)()

    def topics(self) -> list[str]:
        return self.chance.sample(TOPICS, self.chance.randint(1, 2))

    def only(self) -> bool:
        return self.chance.random() < 0.2

    def create(self) -> Request:
        wanted = [
            {
                "name": name,
                "num_partitions": self.chance.choice((1, 3)),
                "replication_factor": 1,
                "configs": self.chance.choice(([], [{"name": "retention.ms", "value": "5000"}])),
            }
            for name in self.topics()
        ]
        fields = {"topics": wanted, "timeout_ms": TIMEOUT_MS, "validate_only": self.only()}
        return Request(create_topics, 19, 4, fields)  # v5 answers with the settings then in force

    def delete(self) -> Request:
        names = self.topics()
        wanted = [{"name": name, "topic_id": bytes(16)} for name in names]
        fields = {"topics": wanted, "timeout_ms": TIMEOUT_MS}
        return Request(delete_topics, 20, 6, fields, committed_topics=tuple(names))

    def grow(self) -> Request:
        wanted = [
            {"name": name, "count": self.chance.randint(1, 5), "assignments": None} for name in self.topics()
        ]
        fields = {"topics": wanted, "timeout_ms": TIMEOUT_MS, "validate_only": self.only()}
        return Request(create_partitions, 37, 3, fields)

    def config(self) -> tuple[int, str, str, str]:
        chance = self.chance
        return chance.choice(
            (
                (TOPIC, chance.choice(TOPICS), "retention.ms", chance.choice(("1000", "x"))),
                (TOPIC, chance.choice(TOPICS), "cleanup.policy", chance.choice(("compact", "delete"))),
                (BROKER, "", "log.retention.ms", chance.choice(("1000", "2000"))),
                (BROKER, "1", "log.cleaner.threads", "2"),
                (BROKER, "", "min.insync.replicas", chance.choice(("1", "2"))),
                (GROUP, "g", "consumer.session.timeout.ms", chance.choice(("50000", "1"))),
                (CLIENT_METRICS, "m", "interval.ms", "1000"),
            )
        )

    def alter(self) -> Request:
        kind, name, key, value = self.config()
        operation = self.chance.choice((0, 0, 1, 2, 3) if key == "cleanup.policy" else (0, 0, 1))
        configs = [{"name": key, "config_operation": operation, "value": value}]
        wanted = [{"resource_type": kind, "resource_name": name, "configs": configs}]
        return Request(incremental_alter_configs, 44, 1, {"resources": wanted, "validate_only": self.only()})

    def set(self) -> Request:
        kind, name, key, value = self.config()
        wanted = [{"resource_type": kind, "resource_name": name, "configs": [{"name": key, "value": value}]}]
        return Request(alter_configs, 33, 2, {"resources": wanted, "validate_only": self.only()})

    def limit(self) -> Request:
        entity, key = self.chance.choice(
            (
                ([("user", "u")], "producer_byte_rate"),
                ([("client-id", "other")], "consumer_byte_rate"),
                ([("ip", "127.0.0.9")], "connection_creation_rate"),
                ([("ip", None)], "connection_creation_rate"),
            )
        )
        op = {"key": key, "value": self.chance.choice((5.0, 7.0)), "remove": self.only()}
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [op],
        }
        return Request(alter_client_quotas, 49, 1, {"entries": [entry], "validate_only": self.only()})

    def store(self) -> Request:
        user = self.chance.choice("vw")
        new = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
        fields = self.chance.choice(
            (
                {"deletions": [], "upsertions": [{"name": user, **new}]},
                {"deletions": [{"name": user, "mechanism": 1}], "upsertions": []},
            )
        )
        return Request(alter_user_scram_credentials, 51, 0, fields)

    def update(self) -> Request:
        feature = self.chance.choice(("group.version", "transaction.version", "share.version"))
        update = {
            "feature": feature,
            "max_version_level": self.chance.randint(0, 1),
            "upgrade_type": self.chance.choice((1, 2)),
        }
        fields = {
            "timeout_ms": TIMEOUT_MS,
            "feature_updates": [update],
            "validate_only": self.only(),
        }
        return Request(update_features, 57, 1, fields)

    def begin(self) -> Request:
        return Request(init_producer_id, 22, 4, {"transactional_id": None, "transaction_timeout_ms": 1000})

    def elect(self) -> Request:
        topics = [{"topic": name, "partitions": [0, 1]} for name in self.topics()]
        fields = {"election_type": 0, "topic_partitions": topics, "timeout_ms": TIMEOUT_MS}
        return Request(elect_leaders, 43, 2, fields)

    def reassign(self) -> Request:
        replicas = self.chance.choice(([1], [7], None))
        topics = [
            {"name": name, "partitions": [{"partition_index": 0, "replicas": replicas}]}
            for name in self.topics()
        ]
        fields = {"timeout_ms": TIMEOUT_MS, "allow_replication_factor_change": True, "topics": topics}
        return Request(alter_partition_reassignments, 45, 1, fields)

    def unregister(self) -> Request:
        return Request(unregister_broker, 64, 0, {"broker_id": self.chance.choice((1, 7))})

    def ask(self) -> Request:
        """Return a Metadata request that creates its topic if there is none."""
        name = self.chance.choice((*TOPICS, "d"))
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        return Request(metadata, 3, 9, fields, committed_topics=(name,))


def of_all(image: ClusterImage) -> Iterator[Request]:
    """Yield requests that read everything that the metadata has."""
    yield Request(metadata, 3, 9, {"topics": None})
    yield Request(describe_cluster, 60, 1, {})
    yield Request(list_partition_reassignments, 46, 0, {"timeout_ms": TIMEOUT_MS, "topics": None})
    yield Request(describe_log_dirs, 35, 4, {"topics": None})
    yield Request(describe_client_quotas, 48, 1, {"components": [], "strict": False})
    yield Request(describe_user_scram_credentials, 50, 0, {"users": None})
    yield Request(list_config_resources, 74, 1, {"resource_types": []})
    yield Request(describe_topic_partitions, 75, 0, {"topics": [], "response_partition_limit": 2000})
    resources = {*image.configs, *((TOPIC, name) for name in image.topics)}
    wanted = [{"resource_type": kind, "resource_name": name} for kind, name in sorted(resources)]
    yield Request(describe_configs, 32, 4, {"resources": wanted, "include_synonyms": True})
    fields = {"election_type": 0, "topic_partitions": None, "timeout_ms": TIMEOUT_MS}
    yield Request(elect_leaders, 43, 2, fields)


def context_of(request: Request) -> Any:
    return SimpleNamespace(
        api_version=request.version,
        client_id="c",
        principal=ANONYMOUS,
        listener_name="PLAINTEXT",
        peer_host="127.0.0.1",
        computed_s=0.0,
    )


def begun(node: Server, request: Request) -> Any:
    """Return the answer as it is before any turn of the loop is taken."""
    message = message_from(APIS[request.key].request, request.fields, request.version)
    return with_ports(request.handler.handle, node)(context_of(request), message)


def asked(node: Server, request: Request) -> Any:
    """Return the answer once all turns are taken."""
    message = message_from(APIS[request.key].request, request.fields, request.version)
    return handled(node, request.handler, context_of(request), message)


def told(request: Request, answer: Any) -> Any:
    """Return the answer as a dict without the node's own fields, or None if it hasn't come."""
    if isinstance(answer, Later):
        if answer.answer() is answer:
            return None
        answer = answer.result()
    found = plain(answer, request.version)
    return {name: value for name, value in found.items() if name not in NODES_OWN}
