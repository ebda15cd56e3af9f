"""A migration from one barnabas to a cluster of Apache Kafka, while producers, transactions and a group go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from tests.interop.joining import PATIENCE_S, admin
from tests.support import apache_kafka, waiting
from tests.support.load import PARTITIONS, TOPIC, Sending, end_and_find_all, first_difference, go_on, reassign
from tests.support.ports import free_ports
from tests.support.requirements import need_apache_kafka

OURS, KAFKAS = 1, (2, 3)
INTERNAL = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
PROTOCOLS = "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
GROUP = "moved"
IN_TURN = pytest.mark.one_run_in(3)


def settings(controller: str, clients: int, brokers: int) -> dict[str, object]:
    """The settings of a broker at these ports."""
    return {
        "listeners": f"CLIENTS://127.0.0.1:{clients},BROKERS://127.0.0.1:{brokers}",
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "BROKERS",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
        **INTERNAL,
    }


class Reading(threading.Thread):
    """A member of a group that commits what it has read, until it is ended: `read` are the values, by partition and
    offset. What it hasn't committed when it has to join again it reads again."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.read: dict[int, dict[int, bytes]] = {index: {} for index in range(PARTITIONS)}
        self.error: BaseException | None = None
        self._ends = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        try:
            self._consumer.subscribe([TOPIC])
            while not self._ends:
                for message in self._consumer.consume(500, timeout=0.1):
                    error = message.error()
                    if error is not None:
                        assert error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN, error
                        continue
                    value, offset = message.value() or b"", message.offset() or 0
                    assert self.read[message.partition() or 0].setdefault(offset, value) == value
                self._commit()
            self._consumer.close()
        except BaseException as error:
            self.error = error

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=True)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError._NO_OFFSET:  # nothing was read since
                raise

    def end(self) -> None:
        self._ends = True
        self.join(PATIENCE_S)
        if self.error is not None:
            raise self.error


@pytest.fixture
def nodes() -> Iterator[ExitStack]:
    need_apache_kafka()
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(
    "version", [pytest.param(None, id="4.4"), pytest.param(apache_kafka.BEFORE, id="4.3", marks=IN_TURN)]
)
def test_a_cluster_of_kafka_takes_over_from_one_barnabas_while_clients_go_on(
    tmp_path: Path, nodes: ExitStack, version: str | None
) -> None:
    (controller_port, *ports) = free_ports(7)
    controller = f"127.0.0.1:{controller_port}"
    ours = begun(tmp_path, controller, ports[0], ports[1], version)
    nodes.callback(ours.stop)
    asking = admin(ours.bootstrap)
    asking.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE_S)
    everywhere = ",".join(f"127.0.0.1:{port}" for port in ports[::2])
    sending = [Sending(everywhere), Sending(everywhere, transactional_id="transactional")]
    reading = Reading(everywhere)
    for each in (*sending, reading):
        each.start()
    go_on(sending)

    for node_id, clients, brokers in zip(KAFKAS, ports[2::2], ports[3::2], strict=True):
        given = {"process.roles": "broker", "node.id": node_id, **settings(controller, clients, brokers)}
        nodes.enter_context(apache_kafka.node(tmp_path / str(node_id), given, version=version))
    waiting.until(
        lambda: {*asking.list_topics(timeout=PATIENCE_S).brokers} == {OURS, *KAFKAS},
        "Kafka's brokers are told of",
        PATIENCE_S,
    )
    go_on(sending)
    moved = [TOPIC, "__consumer_offsets", "__transaction_state"]
    for topic in moved:
        reassign(
            ours.bootstrap, [[*KAFKAS], [*KAFKAS[::-1]]] * (len(partitions_of(asking, topic)) // 2), topic
        )
    waiting.until(lambda: all(is_with_kafka(asking, topic) for topic in moved), "all has moved", PATIENCE_S)
    go_on(sending)

    ours.stop()  # brokers serve on, without a controller
    go_on(sending)
    given = {
        "process.roles": "controller",
        "node.id": OURS,
        "listeners": f"CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
        "log.dirs": ours.data,
    }
    nodes.enter_context(apache_kafka.node(tmp_path / "controller", given, version=version))
    waiting.until_answered(
        lambda: created_later(everywhere), "Kafka's controller creates a topic", PATIENCE_S
    )
    go_on(sending)
    end_and_find_all(sending, everywhere)
    waiting.until(lambda: reading.error or has_all(reading, sending), "the group has read all", PATIENCE_S)
    reading.end()
    for partition, by_offset in reading.read.items():
        values = [value for _, value in sorted(by_offset.items())]
        for each, name in zip(sending, ("plain", "transactional"), strict=True):
            read = [int(value.split()[1]) for value in values if value.startswith(name.encode())]
            sent = each.acknowledged(partition)
            assert read == sent, first_difference(partition, name, read, sent)


def created_later(bootstrap: str) -> None:
    """By a client of its own: one that was told of ours as the controller would go on to look for it."""
    asking = admin(bootstrap)
    asking.create_topics([NewTopic("later", 1, 2)], request_timeout=10)["later"].result(PATIENCE_S)


def begun(folder: Path, controller: str, clients: int, brokers: int, version: str | None) -> barnabas.Broker:
    """One barnabas that controls itself, at an address where others can be controlled, too, at the level of that
    Kafka."""
    given = settings(controller, clients, brokers)
    given["listeners"] = f"{given['listeners']},CONTROLLER://{controller}"
    data = folder / "ours"
    file = written(folder, given, data)
    apache_kafka.tool("storage", "format", "-t", CLUSTER_ID, "--standalone", "-c", file, version=version)
    return barnabas.Broker(data=data, config={"node.id": OURS, **given}).start()


def written(folder: Path, given: dict[str, object], data: Path) -> Path:
    file = folder / "ours.properties"
    named = {"process.roles": "broker,controller", "node.id": OURS, "log.dirs": data, **given}
    file.write_text("".join(f"{name}={value}\n" for name, value in named.items()))
    return file


def partitions_of(asking: AdminClient, topic: str) -> dict[int, Any]:
    found: dict[int, Any] = asking.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    return found


def is_with_kafka(asking: AdminClient, topic: str) -> bool:
    return all(
        {*partition.replicas} == {*partition.isrs} == {*KAFKAS} and partition.leader in KAFKAS
        for partition in partitions_of(asking, topic).values()
    )


def has_all(reading: Reading, sending: list[Sending]) -> bool:
    count = sum(map(len, reading.read.values()))
    return count >= sum(each.count() for each in sending)
