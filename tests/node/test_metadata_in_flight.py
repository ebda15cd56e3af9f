"""Changes of the metadata while earlier ones aren't on the disk yet: random requests, whose disk syncs now and then.

A second node that commits at once says what each has to be answered, and what the metadata comes to.
`IN_FLIGHT_ROUNDS=500` tries so many seeds; `IN_FLIGHT_FROM` is the first one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from broker.controller.image_records import image_records
from broker.controller.record_serde import encode_metadata_record
from broker.environment.environment import Environment
from broker.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    init_producer_id,
    metadata,
    unregister_broker,
    update_features,
)
from broker.network.later import Later
from broker.security.principal import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS
from protocol.messages import metadata_records as records
from tests.compare.plain import message_from, plain
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.whole_server import configured, handled, take_turns

FIRST = int(os.environ.get("IN_FLIGHT_FROM", "0"))
ROUNDS = int(os.environ.get("IN_FLIGHT_ROUNDS", "20"))
REQUESTS = 40

NODES_OWN = ("brokers", "cluster_id")
TOPICS = ("a", "b", "c")
TIMEOUT_MS = 1000
TOPIC, BROKER, GROUP, CLIENT_METRICS = 2, 4, 32, 16


class Request(NamedTuple):
    """One of a client's, as a handler, an api key and a version take it."""

    handler: Any
    key: int
    version: int
    fields: dict[str, Any]
    committed_topics: tuple[str, ...] = ()
    """It finds them in what is committed, as in Kafka: so they have to be the same there and in what is written."""


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
        return Request(
            create_topics, 19, 4, fields
        )  # v5 tells the settings that are in force as it is answered

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
        """A topic that isn't there is made by itself."""
        name = self.chance.choice((*TOPICS, "d"))
        fields = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
        return Request(metadata, 3, 9, fields, committed_topics=(name,))


async def started(folder: Path, seed: int) -> tuple[Server, HeldSyncs]:
    syncs = HeldSyncs()
    here = replace(Environment.of_this_machine(ManualClock(), files), background=syncs)
    node = await begin(configured(folder), here)
    chance = Random(seed)  # of its own: what follows from a commit draws numbers, too
    node.topics._new_topic_id = lambda: chance.randbytes(16)
    node.metadata.append([records.RegisterBrokerRecord(broker_id=7, broker_epoch=3, fenced=True)])
    return node, syncs


def asked(node: Server, request: Request) -> Any:
    context = SimpleNamespace(
        api_version=request.version,
        client_id="c",
        principal=ANONYMOUS,
        listener_name="PLAINTEXT",
        peer_host="127.0.0.1",
        computed_s=0.0,
    )
    message = message_from(APIS[request.key].request, request.fields, request.version)
    return handled(node, request.handler, context, message)


def told(request: Request, answer: Any) -> Any:
    """The answer in plain; None where it hasn't come."""
    if isinstance(answer, Later):
        if answer.answer() is answer:
            return None
        answer = answer.result()
    found = plain(answer, request.version)
    return {name: value for name, value in found.items() if name not in NODES_OWN}


def visible(node: Server) -> dict[str, Any]:
    """What other clients see or feel of the metadata."""
    quotas = node.quotas
    return {
        "image": [(type(record).__name__, _encoded(record)) for record in image_records(node.metadata.image)],
        "partitions": {name: sorted(topic.partitions) for name, topic in node.partitions.by_name.items()},
        "folders": sorted(
            os.path.basename(path)
            for path in files.list_directory(node.log_dirs.metadata.path)
            if not path.endswith("-delete") and "-" in path
        ),
        "limits": (quotas.produce.limits._limits, quotas.fetch.limits._limits),
        "addresses": (dict(quotas.connections.limits), quotas.connections.default),
        "retention": node.config.get("log.retention.ms"),
        "epochs": {
            (name, index): partition.role.leader_epoch
            for name, topic in node.partitions.by_name.items()
            for index, partition in topic.partitions.items()
        },
    }


def _encoded(record: Any) -> bytes:
    if isinstance(record, records.RegisterBrokerRecord):
        record.incarnation_id, record.log_dirs, record.end_points = bytes(16), [], []
    if isinstance(record, records.PartitionRecord):
        record.directories = []
    return encode_metadata_record(record, type(record).VERSIONS[1])


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
async def test_what_is_in_flight_is_told_to_nobody_and_counts_for_what_comes_after_it(
    seed: int, tmp_path: Path
) -> None:
    chance = Random(seed)
    node, syncs = await started(tmp_path / "held", seed)
    at_once, _ = await started(tmp_path / "at-once", seed)
    node.metadata.commit_when_synced()
    syncs.is_held = True
    requests = Requests(chance)
    in_flight: list[tuple[Request, Any, Any]] = []

    def sync() -> None:
        syncs.run_one()
        take_turns(node)
        in_flight[:] = [each for each in in_flight if not _is_told(*each)]

    for _ in range(REQUESTS):
        request = requests.draw()
        while any(_is_changing(node, name) for name in request.committed_topics):
            sync()
        expected = told(request, asked(at_once, request))
        assert expected is not None
        seen, next_offset = visible(node), node.metadata.next_offset
        answer = asked(node, request)
        assert visible(node) == seen, request
        if node.metadata.next_offset > next_offset:
            assert told(request, answer) is None, request
        if not _is_told(request, answer, expected):
            in_flight.append((request, answer, expected))
        while request.handler is metadata and in_flight and in_flight[-1][1] is answer:
            sync()  # it tells what is committed by then, which may be more than what it has made
        while syncs.waiting and chance.random() < 0.3:
            sync()
    while syncs.waiting:
        sync()
    assert not in_flight
    assert visible(node) == visible(at_once)
    await node.stop()
    await at_once.stop()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
async def test_where_the_disk_fails_all_that_is_in_flight_is_refused_and_nothing_else_is_taken(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chance = Random(seed)
    node, syncs = await started(tmp_path, seed)
    requests = Requests(chance)
    for _ in range(chance.randrange(REQUESTS)):
        asked(node, requests.draw())
    node.metadata.commit_when_synced()
    syncs.is_held = True
    answers = []
    while len(answers) < 5:
        seen, next_offset, request = visible(node), node.metadata.next_offset, requests.draw()
        answer = asked(node, request)
        if node.metadata.next_offset > next_offset:
            answers.append((request, answer))
    caplog.clear()
    syncs.fail_one()
    take_turns(node)
    assert "is not appended to any more: the disk is gone" in caplog.text
    assert visible(node) == seen
    for name in set(TOPICS) - node.metadata.image.topics.keys():  # though it may have been asked for in vain
        wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
        request = Request(create_topics, 19, 4, {"topics": wanted, "timeout_ms": TIMEOUT_MS})
        answers.append((request, asked(node, request)))
    for request, answer in answers:
        found = told(request, answer)
        assert found is not None
        if request.handler not in (metadata, init_producer_id):  # they have other words for it
            assert _errors(found) & {"56 KAFKA_STORAGE_ERROR"}, (request, found)
        assert not _errors(found) & {"0 NONE"} or request.handler in (metadata, update_features), found
    assert visible(node) == seen
    await node.stop()
    assert node.failure is not None


def _is_changing(node: Server, name: str) -> bool:
    committed, written = (image.topics.get(name) for image in (node.metadata.image, node.metadata.written))
    if committed is None or written is None:
        return committed is not written
    return (committed.topic_id, *committed.partitions) != (written.topic_id, *written.partitions)


def _errors(found: Any) -> set[str]:
    """All error codes in an answer."""
    if isinstance(found, list):
        return set().union(*map(_errors, found))
    if not isinstance(found, dict):
        return set()
    own = {found["error_code"]} if "error_code" in found else set()
    return own.union(*map(_errors, found.values()))


def _is_told(request: Request, answer: Any, expected: Any) -> bool:
    found = told(request, answer)
    if found is None:
        return False
    assert found == expected, request
    return True
