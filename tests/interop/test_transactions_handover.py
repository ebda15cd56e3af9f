"""Transactions as barnabas and Apache Kafka take turns on one folder: each finishes what the other began.

Producers of both versions of transactions go on over every change, by requests of their own: so each step is known to
be open, prepared or done when its broker ends.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.server import Server
from protocol.errors import Error
from tests.interop.nodes import Turns
from tests.interop.test_dump_log import dump
from tests.node import transactional
from tests.support import kafka_folders, wire
from tests.support.disk import files
from tests.support.requirements import need_apache_kafka
from tests.support.transactional_client import (
    READ_COMMITTED,
    Broker,
    Producer,
    Reader,
    connected,
    eventually,
    system_time_ms,
    worst,
)
from tests.support.waiting import until
from tests.support.whole_server import clock_of, in_loop, started

TOPIC = "t"
PARTITIONS = range(2)
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
ONE_PARTITION = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
LONG_MS = 900_000
SHORT_MS = 1_000
ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(1, 6)
FENCED = {1: Error.PRODUCER_FENCED, 2: Error.INVALID_TXN_STATE}
"""What a commit is told that comes after the coordinator's own abort."""


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


class Client:
    """A producer that outlives the brokers, a group of its own, and what it committed."""

    def __init__(self, transactional_id: str, version: int, timeout_ms: int = LONG_MS) -> None:
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer: Producer | None = None
        self.sent = 0
        self.open: list[int] = []
        self.committed: list[int] = []

    def at(self, broker: Broker) -> Producer:
        """The same producer, connected to this broker."""
        if self.producer is None:
            self.producer = Producer(broker, self.transactional_id, self.version)
            broker.find_coordinators(self.transactional_id, self.group_id)
            producer = self.producer
            eventually(lambda: producer.init(timeout_ms=self.timeout_ms))
        self.producer.broker = broker
        return self.producer

    @property
    def group_id(self) -> str:
        return f"group of {self.transactional_id}"

    def value(self, number: int, partition: int) -> bytes:
        return b"%s: %d in %d" % (self.transactional_id.encode(), number, partition)

    def send(self, broker: Broker) -> None:
        """One more record to each partition, and an offset."""
        number = self.sent
        self.sent += 1
        self.open.append(number)
        values = {partition: self.value(number, partition) for partition in PARTITIONS}
        self.at(broker).send(TOPIC, values, self.group_id, number)

    def end(self, broker: Broker, *, commit: bool = True, is_answered: bool = True) -> None:
        """Ask for it, or ask again. Where the answer is lost the producer doesn't know of its next epoch."""
        producer = self.at(broker)
        before = producer.producer_id, producer.epoch
        eventually(lambda: producer.end(commit=commit))
        if not is_answered:
            producer.producer_id, producer.epoch = before
        if commit:
            self.committed += self.open
        self.open = []

    def transact(self, broker: Broker) -> None:
        self.send(broker)
        self.end(broker)

    def is_as_it_should_be(self, broker: Broker) -> bool:
        """Whether what a read_committed consumer and its group's next member find is what was committed."""
        found = [Reader(broker, TOPIC, partition).read_on() for partition in PARTITIONS]
        own = self.transactional_id.encode() + b":"
        for partition, values in zip(PARTITIONS, found, strict=True):
            mine = [value for value in values if value.startswith(own)]
            if mine != [self.value(number, partition) for number in self.committed]:
                return False
        offset = max(self.committed, default=-1)
        return broker.committed_offset(self.group_id, TOPIC) == (offset, Error.NONE)


def clients(*names: str, timeout_ms: int = LONG_MS) -> list[Client]:
    """Of each name one of each version."""
    return [Client(f"{name}-v{version}", version, timeout_ms) for name in names for version in (1, 2)]


def is_at_rest(broker: Broker) -> bool:
    return all(
        broker.end(TOPIC, partition) == broker.end(TOPIC, partition, isolation_level=READ_COMMITTED)
        for partition in PARTITIONS
    )


class Begun:
    """The transactions that barnabas leaves behind, in every state.

    By a stop, which gives up its leadership in the metadata log, and writes no more markers. After a kill Kafka loses
    markers itself now and then, its own folder's as well: it coordinates in the epoch of before until its registration
    takes the leadership away, then takes partitions without a leader for deleted ones and completes without markers.
    """

    def __init__(self) -> None:
        self.done = clients("done")
        self.aborted = clients("aborted")
        self.commits = clients("prepared-commit")
        self.aborts = clients("prepared-abort")
        self.open = clients("open")
        self.late = clients("late", timeout_ms=SHORT_MS)

    @property
    def everybody(self) -> list[Client]:
        return [*self.done, *self.aborted, *self.commits, *self.aborts, *self.open, *self.late]

    async def leave(self, data: Path) -> None:
        """Begin all of them in this process, hold the markers of the prepared ones, and stop."""
        node = await started(data, *ONE_PARTITION, now_ms=system_time_ms())
        broker = of(node)
        broker.create_topic(TOPIC, len(PARTITIONS))
        for client in self.everybody:
            client.send(broker)
        for client in self.done:
            client.end(broker)
        for client in self.aborted:
            client.end(broker, commit=False)
        files.set_fault_hook(refuse_markers)
        for client in self.commits:
            client.end(broker, is_answered=False)
        for client in self.aborts:
            client.end(broker, commit=False, is_answered=False)
        files.set_fault_hook(None)
        states = {client.transactional_id: broker.state(client.transactional_id) for client in self.everybody}
        assert states == self.states | {
            **{client.transactional_id: "PrepareCommit" for client in self.commits},
            **{client.transactional_id: "PrepareAbort" for client in self.aborts},
            **{client.transactional_id: "Ongoing" for client in self.late},
        }
        await node.stop()

    @property
    def states(self) -> dict[str, str]:
        """The states that the next broker brings them to without requests."""
        return {
            client.transactional_id: state
            for state, members in (
                ("CompleteCommit", [*self.done, *self.commits]),
                ("CompleteAbort", [*self.aborted, *self.aborts, *self.late]),
                ("Ongoing", self.open),
            )
            for client in members
        }


def of(node: Server) -> Broker:
    def ask(request: Any, version: int) -> Any:
        return transactional.ask(node, request, version)

    return Broker(ask, node.clock.now_ms)


def refuse_markers(operation: str, path: str, size: int) -> int | None:
    if operation == "append" and (f"/{TOPIC}-" in path or "__consumer_offsets" in path):
        raise OSError(errno.ENOSPC, "no space left", path)
    return None


# --- Apache Kafka after barnabas, barnabas after Apache Kafka -----------------------------------------------


@pytest.mark.timeout(600)
def test_each_broker_finishes_the_others_transactions(tmp_path: Path) -> None:
    need_apache_kafka()
    begun = Begun()
    with Turns(tmp_path, SETTINGS) as turns:
        in_loop(begun.leave)(turns.data)

        turns.start("kafka")
        with connected(turns.port) as broker:
            finish_begun(broker, begun)
            everybody = begun.everybody
            opened, ending = clients("kafka-open"), clients("kafka-ending")
            for client in [*opened, *ending]:
                client.transact(broker)
                client.send(broker)
            assert not is_at_rest(broker)
            connections = [wire.Client.connect(turns.port) for _ in ending]
            for connection, client in zip(connections, ending, strict=True):
                connection.tell(*client.at(broker).end_request(commit=True))
            turns.kill()
            for connection in connections:
                connection.close()
        assert not turns.kafka_errors

        turns.start("barnabas")
        with connected(turns.port) as broker:
            everybody += [*opened, *ending]
            for client in everybody:
                state = broker.state(client.transactional_id)
                if client in opened:
                    assert state == "Ongoing"
                elif client in ending:
                    assert state in ("Ongoing", "CompleteCommit"), "whatever Kafka had come to"
                else:
                    assert state in ("CompleteCommit", "CompleteAbort")
            assert not is_at_rest(broker), "what is open under Kafka holds the last stable offset here"
            for client in ending:
                client.end(broker)
            for client in opened:
                client.send(broker)
                client.end(broker)
            until(lambda: is_at_rest(broker), "nothing is open any more")
            for client in everybody:
                if client not in begun.late:
                    client.transact(broker)
                assert client.is_as_it_should_be(broker), client.transactional_id


def finish_begun(broker: Broker, begun: Begun) -> None:
    """Let Kafka finish the transactions that barnabas left."""
    names = [client.transactional_id for client in begun.everybody]
    until(
        lambda: {name: broker.state(name) for name in names} == begun.states,
        "Kafka has finished what was prepared, and aborted what is late",
    )
    for client in begun.open:
        described = broker.describe(client.transactional_id)
        assert (described.producer_id, described.producer_epoch) == (
            client.at(broker).producer_id,
            client.at(broker).epoch,
        )
        assert described.transaction_timeout_ms == LONG_MS
        partitions = {topic.topic: sorted(topic.partitions) for topic in described.topics}
        assert partitions == {TOPIC: [*PARTITIONS], "__consumer_offsets": [0]}
    held = [broker.end(TOPIC, partition, isolation_level=READ_COMMITTED) for partition in PARTITIONS]
    assert not is_at_rest(broker), "what is open under barnabas holds the last stable offset here"

    for client in begun.late:
        assert client.at(broker).end(commit=True) is FENCED[client.version]
    for client in begun.open:
        client.send(broker)  # with the sequence after those that barnabas accepted
        client.end(broker)
    until(lambda: is_at_rest(broker), "the last stable offset has moved")
    assert all(
        broker.end(TOPIC, partition, isolation_level=READ_COMMITTED) > before
        for partition, before in zip(PARTITIONS, held, strict=True)
    )
    for client in begun.everybody:
        if client not in begun.late:
            if client in [*begun.commits, *begun.aborts]:
                client.end(broker, commit=client in begun.commits)
            client.transact(broker)
        until(partial(client.is_as_it_should_be, broker), client.transactional_id)


# --- the folder that a killed Apache Kafka left -------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_a_killed_kafka_left_open_is_fenced_and_its_id_used_on(
    tmp_path: Path, version: int
) -> None:
    @in_loop
    async def run() -> None:
        data = kafka_folders.unpack(kafka_folders.KILL, tmp_path)
        node = await started(data, now_ms=kafka_folders.NOW_MS)
        broker = of(node)
        before = broker.describe("tx-c")
        assert before.transaction_state == "Ongoing"

        producer = Producer(broker, "tx-c", version)
        eventually(producer.init)

        assert (producer.producer_id, broker.state("tx-c")) == (before.producer_id, "Empty")
        assert producer.epoch == before.producer_epoch + 2, "the fence took one, the new instance the next"
        logs = [partition.log for partition in node.partitions.by_name["txn"].partitions.values()]
        assert [log.last_stable_offset for log in logs] == [log.log_end_offset for log in logs]
        producer.send("txn", {0: b"ours", 1: b"ours"}, "g", 5)
        assert producer.end(commit=True) is Error.NONE
        found = kafka_folders.contents(kafka_folders.KILL)
        for partition in (0, 1):
            values = [each.decode()[:20] for each in Reader(broker, "txn", partition).read_on()]
            after = ["after the open one"] * (partition == 0)
            assert values == [*found["committed"][str(partition)], *after, "ours"]
        await node.stop()

    run()


@in_loop
async def test_the_producer_that_a_killed_kafka_left_in_mid_transaction_commits_it_here(
    tmp_path: Path,
) -> None:
    data = kafka_folders.unpack(kafka_folders.KILL, tmp_path)
    node = await started(data, now_ms=kafka_folders.NOW_MS)
    broker = of(node)
    described = broker.describe("tx-c")
    producer = Producer(broker, "tx-c", 2)
    producer.producer_id, producer.epoch = described.producer_id, described.producer_epoch
    for partition in (0, 1):
        known = node.partitions.get("txn", partition).log.producers.producers[producer.producer_id]
        producer.sequences["txn", partition] = known.batches[-1].last_sequence + 1

    assert worst(producer.produce("txn", {0: b"ours", 1: b"ours"})) is Error.NONE
    assert producer.end(commit=True) is Error.NONE

    found = kafka_folders.contents(kafka_folders.KILL)
    for partition in (0, 1):
        values = [each.decode()[:20] for each in Reader(broker, "txn", partition).read_on()]
        assert sorted(values) == sorted(
            [*found["committed"][str(partition)], *found["open"][str(partition)], "ours"]
            + ["after the open one"] * (partition == 0)
        )
    clock_of(node).advance_ms(LONG_MS * 10)
    node.timers.fire_due()
    assert broker.state("tx-c") == "CompleteCommit"
    await node.stop()


# --- what Kafka's tools say of the files --------------------------------------------------------------------


def test_kafkas_dump_tool_decodes_the_transaction_log_and_the_files_beside_the_data(tmp_path: Path) -> None:
    need_apache_kafka()
    begun = Begun()
    in_loop(begun.leave)(tmp_path)

    printed = dump((tmp_path / "__transaction_state-0").glob("*.log"), "--transaction-log-decoder")

    last = dict(re.findall(r'"transactionalId":"([^"]+)".*"transactionStatus":"(\w+)"', printed))
    assert last == {
        client.transactional_id: status
        for status, members in (
            ("Ongoing", [*begun.open, *begun.late]),
            ("PrepareCommit", begun.commits),
            ("PrepareAbort", begun.aborts),
            ("CompleteCommit", begun.done),
            ("CompleteAbort", begun.aborted),
        )
        for client in members
    }

    in_loop(stop_and_start)(tmp_path)
    paths = [path for path in tmp_path.glob(f"{TOPIC}-?/*") if path.suffix in (".txnindex", ".snapshot")]
    assert {path.suffix for path in paths} == {".txnindex", ".snapshot"}
    printed = dump(paths)
    aborted = begun.aborted[0].producer
    assert aborted is not None
    assert f"producerId: {aborted.producer_id}" in printed
    assert re.search(r"lastStableOffset: \d+", printed)


async def stop_and_start(data: Path) -> None:
    """Finish the prepared transactions, and write the snapshots of a clean stop."""
    node = await started(data, now_ms=system_time_ms())
    await node.stop()
