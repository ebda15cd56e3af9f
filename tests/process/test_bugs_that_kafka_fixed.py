"""Transaction bugs that Apache Kafka or librdkafka had. Faults replay each of them, and none happens here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as ConfluentProducer

import barnabas
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support.transactional_client import Broker, Producer, Reader, eventually, worst
from tests.support.waiting import until
from tests.support.wire import Client

FENCED = (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH)
HOURS_OF_EXPIRATION = 24
"""The default of `producer.id.expiration.ms`, in hours."""


@pytest.fixture
def own() -> Iterator[barnabas.Broker]:
    """Start a broker for one test, which moves its clock or kills it."""
    with barnabas.Broker() as running:
        yield running


@contextmanager
def asking(broker: barnabas.Broker) -> Iterator[Broker]:
    with Client.of(broker.bootstrap) as client:
        yield Broker(client.ask)


@contextmanager
def producing(broker: barnabas.Broker, name: str, version: int = 2) -> Iterator[Producer]:
    """Return an initialized producer, with a topic and a transactional id of that name."""
    with asking(broker) as asked:
        asked.create_topic(name, 1)
        asked.find_coordinators(name, name)
        producer = Producer(asked, name, version)
        eventually(producer.init)
        yield producer


def send(producer: Producer, value: bytes) -> None:
    topic = producer.transactional_id
    if producer.version == 1:
        eventually(lambda: worst(producer.add(topic, (0,))))
    eventually(lambda: worst(producer.produce(topic, {0: value})))


def state(broker: barnabas.Broker, name: str) -> str:
    with asking(broker) as asked:
        return asked.state(name)


def committed(broker: barnabas.Broker, name: str) -> list[bytes]:
    with asking(broker) as asked:
        return Reader(asked, name, 0).read_on()


def is_stable(broker: barnabas.Broker, name: str) -> bool:
    """Check that no transaction is open in the partition."""
    with asking(broker) as asked:
        return asked.end(name, 0, isolation_level=1) == asked.end(name, 0)


def test_17754_a_late_commit_does_not_end_the_next_transaction(broker: barnabas.Broker) -> None:
    with producing(broker, "late-commit") as producer, Client.of(broker.bootstrap) as delayed:
        send(producer, b"first")
        with broker.fault("EndTxn", "hold", transactional_id="late-commit") as fault:
            first = delayed.send(*producer.end_request(commit=True))
            fault.reached()
            # the client's second request overtakes its first one
            assert producer.end(commit=True) is Error.NONE
            until(lambda: state(broker, "late-commit") == "CompleteCommit", "the first one is complete")
            send(producer, b"second")
            fault.release()
            answer = delayed.receive(first).message  # type: ignore[union-attr]
        assert Error(answer.error_code) in FENCED
        assert state(broker, "late-commit") == "Ongoing"
        assert producer.end(commit=False) is Error.NONE
    until(lambda: is_stable(broker, "late-commit"), "the second one is aborted")
    assert committed(broker, "late-commit") == [b"first"]


@pytest.mark.parametrize("version", [1, 2])
def test_14402_a_late_record_does_not_open_a_transaction_after_its_abort(
    broker: barnabas.Broker, version: int
) -> None:
    name = f"late-record-{version}"
    with producing(broker, name, version) as producer:
        send(producer, b"first")
        late: list[list[Error]] = []

        def second() -> None:
            with asking(broker) as asked:
                twin = Producer(asked, name, version)
                twin.producer_id, twin.epoch = producer.producer_id, producer.epoch
                twin.sequences = dict(producer.sequences)
                late.append(twin.produce(name, {0: b"late"}))

        with broker.fault("Produce", "hold", transactional_id=name) as fault:
            thread = threading.Thread(target=second)
            thread.start()
            fault.reached()
            assert producer.end(commit=False) is Error.NONE
            until(lambda: state(broker, name) == "CompleteAbort", "it is aborted")
            fault.release()
            thread.join()
    assert late[0] != [Error.NONE]
    assert is_stable(broker, name)
    assert committed(broker, name) == []


def test_19999_a_repeated_marker_is_recognized(broker: barnabas.Broker) -> None:
    """The first answer was lost. With transactions of version 2 the partition already has the marker's epoch."""
    with (
        producing(broker, "marked-again") as producer,
        broker.fault(
            error="REQUEST_TIMED_OUT", at="marked", transactional_id="marked-again", times=3
        ) as fault,
    ):
        send(producer, b"x")
        assert producer.end(commit=True) is Error.NONE
        fault.wait_until_fired(3)
        until(lambda: state(broker, "marked-again") == "CompleteCommit", "it is complete")
    assert committed(broker, "marked-again") == [b"x"]


def test_19999_a_marker_that_is_sent_again_after_a_crash(own: barnabas.Broker) -> None:
    with producing(own, "reloaded") as producer:
        send(producer, b"x")
        with own.fault(do="crash", at="marked") as fault:
            with suppress(ConnectionError):
                producer.end(commit=True)
            fault.wait_until_fired()
    own.restart()
    until(lambda: state(own, "reloaded") == "CompleteCommit", "it is complete")
    assert committed(own, "reloaded") == [b"x"]


# --- 18660, 19367, 20090, 20310: the last epochs -------------------------------------------------------------

LAST_USED = 32_765


@pytest.fixture(scope="module")
def near_the_end() -> Iterator[tuple[barnabas.Broker, barnabas.Snapshot, int]]:
    """Return a broker, a snapshot of it, and the id of a producer that has epoch 32,765 in that snapshot."""
    name, at_a_time = "last", 1_000
    with barnabas.Broker() as running:
        with producing(running, name) as producer, Client.of(running.bootstrap) as client:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            while producer.epoch < LAST_USED:
                count = min(at_a_time, LAST_USED - producer.epoch)
                sent, frame = client.made(request, 5)
                client.send_bytes(frame * count)
                for _ in range(count):
                    producer.epoch = client.receive(sent).message.producer_epoch  # type: ignore[union-attr]
        yield running, running.snapshot(), producer.producer_id


@pytest.mark.parametrize("ending", ["commit", "abort", "timeout", "fenced", "answer lost", "crash"])
def test_18660_the_last_epochs_are_used_up_and_work_goes_on(
    near_the_end: tuple[barnabas.Broker, barnabas.Snapshot, int], ending: str
) -> None:
    broker, snapshot, producer_id = near_the_end
    broker.restore(snapshot)
    commit = ending in ("commit", "answer lost", "crash")
    sent, wanted = [], []
    with asking(broker) as asked:
        asked.find_coordinators("last", "last")
        producer = Producer(asked, "last", 2)
        producer.producer_id, producer.epoch = producer_id, LAST_USED
        for number in range(4):  # the epochs go through 32,766 and 32,767 to a new producer id
            value = b"%d" % number
            send(producer, value)
            sent.append(value)
            if ending == "timeout":
                broker.clock.advance(minutes=2)
                until(lambda: state(broker, "last") == "CompleteAbort", "it is aborted")
                eventually(producer.init)
            elif ending == "fenced":
                eventually(producer.init)
            elif ending == "answer lost":
                with broker.fault("EndTxn", error="COORDINATOR_NOT_AVAILABLE", at="answer"):
                    assert producer.end(commit=True) is Error.COORDINATOR_NOT_AVAILABLE
                eventually(lambda: producer.end(commit=True))
            elif ending == "crash":
                with broker.fault(do="crash", at="marked") as fault:
                    with suppress(ConnectionError):
                        producer.end(commit=True)
                    fault.wait_until_fired()
                broker.restart()
                with asking(broker) as again:
                    producer.broker.ask = again.ask
                    until(lambda: state(broker, "last") == "CompleteCommit", "it is complete")
                    eventually(producer.init)
                break
            else:
                eventually(lambda: producer.end(commit=commit))
            done = "CompleteCommit" if commit else "CompleteAbort"
            until(lambda done=done: state(broker, "last") in (done, "Empty"), "it is complete")  # type: ignore[misc]
        wanted = sent if commit else []
    assert ending == "crash" or producer.producer_id != producer_id
    assert producer.epoch <= LAST_USED + 1
    assert committed(broker, "last") == wanted
    assert is_stable(broker, "last")


# ------------------------------------------------------------------------------------------------------------


def test_18464_an_empty_abort_after_a_commit_does_not_fence_its_producer(broker: barnabas.Broker) -> None:
    with producing(broker, "empty-abort") as producer:
        send(producer, b"x")
        with broker.fault(do="hold", at="marker", transactional_id="empty-abort") as fault:
            assert producer.end(commit=True) is Error.NONE
            fault.reached()
            assert producer.end(commit=False) is Error.CONCURRENT_TRANSACTIONS  # the producer isn't fenced
            fault.release()
        eventually(lambda: producer.end(commit=False))
    assert committed(broker, "empty-abort") == [b"x"]


def test_16352_no_transaction_stays_prepared_when_its_coordinator_reloads(
    own: barnabas.Broker,
) -> None:
    with producing(own, "prepared") as producer:
        send(producer, b"x")
        with own.fault(do="hold", at="marker") as fault:
            assert producer.end(commit=True) is Error.NONE
            fault.reached()
            own.kill()
            own.start()
    until(lambda: state(own, "prepared") == "CompleteCommit", "it is complete")
    assert committed(own, "prepared") == [b"x"]


def test_17507_offsets_exist_once_their_marker_is_acknowledged(broker: barnabas.Broker) -> None:
    with producing(broker, "offsets") as producer, asking(broker) as asked:
        send(producer, b"x")
        eventually(lambda: producer.commit_offset("offsets", "offsets", 1))
        with broker.fault(do="hold", at="marked", topic="__consumer_offsets") as fault:
            assert producer.end(commit=True) is Error.NONE
            fault.reached()
            assert asked.committed_offset("offsets", "offsets") == (1, Error.NONE)
            fault.release()
        send(producer, b"y")  # the next transaction's offsets wait for the end of this one
        eventually(lambda: producer.commit_offset("offsets", "offsets", 2))
        assert asked.committed_offset("offsets", "offsets")[1] is Error.UNSTABLE_OFFSET_COMMIT
        assert producer.end(commit=False) is Error.NONE
        until(lambda: asked.committed_offset("offsets", "offsets")[1] is Error.NONE, "it is aborted")
        assert asked.committed_offset("offsets", "offsets") == (1, Error.NONE)


def test_14920_a_batch_after_an_unverified_one_is_not_let_in(broker: barnabas.Broker) -> None:
    with producing(broker, "unverified", version=1) as producer:
        first = producer.produce("unverified", {0: b"first"})  # the partition isn't in the transaction yet
        producer.sequences["unverified", 0] = 1
        second = producer.produce("unverified", {0: b"second"})
        assert Error.NONE not in (*first, *second)
        producer.sequences = {}
        eventually(lambda: worst(producer.add("unverified", (0,))))
        assert producer.produce("unverified", {0: b"first"}) == [Error.NONE]
        assert producer.produce("unverified", {0: b"second"}) == [Error.NONE]
        assert producer.end(commit=True) is Error.NONE
    until(lambda: committed(broker, "unverified") == [b"first", b"second"], "both are committed")


def test_5376_a_waiting_fetch_lists_transactions_aborted_meanwhile(broker: barnabas.Broker) -> None:
    with producing(broker, "waiting") as producer, Client.of(broker.bootstrap) as waiting:
        send(producer, b"aborted")
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=30_000,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=1,
            topics=[FetchTopic(topic="waiting", partitions=[asked])],
        )
        with broker.fault("Fetch", "delay", delay=0, may_not_fire=False) as fault:
            sent = waiting.send(request, 11)
            fault.wait_until_fired()
        assert producer.end(commit=False) is Error.NONE
        found = waiting.receive(sent).message.responses[0].partitions[0]  # type: ignore[union-attr]
    assert [each.producer_id for each in found.aborted_transactions] == [producer.producer_id]
    assert found.last_stable_offset == found.high_watermark


def test_9144_a_marker_keeps_the_coordinators_epoch_from_being_forgotten(own: barnabas.Broker) -> None:
    with producing(own, "expiring") as producer:
        eventually(lambda: producer.init(timeout_ms=900_000))
        send(producer, b"x")
        own.clock.freeze()
        assert producer.end(commit=True) is Error.NONE
        until(lambda: is_stable(own, "expiring"), "its marker is there")
        own.clock.advance(hours=HOURS_OF_EXPIRATION - 1)
        topic = WritableTxnMarkerTopic(name="expiring", partition_indexes=[0])

        def mark(coordinator_epoch: int) -> Error:
            marker = WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=True,
                topics=[topic],
                coordinator_epoch=coordinator_epoch,
            )
            with asking(own) as again:  # the broker has closed connections that were idle for so long
                answer = again.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
            return Error(answer.markers[0].topics[0].partitions[0].error_code)

        assert mark(7) is Error.NONE
        own.clock.advance(hours=2)  # the partition has forgotten the last record, but not the last marker
        assert mark(6) is Error.TRANSACTION_COORDINATOR_FENCED


def test_19163_offsets_of_an_open_transaction_outlive_their_groups_retention(tmp_path: Path) -> None:
    config = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 60_000}
    with (
        barnabas.Broker(data=tmp_path / "data", config=config) as own,
        producing(own, "kept") as producer,
        asking(own) as asked,
    ):
        eventually(lambda: producer.init(timeout_ms=900_000))
        send(producer, b"x")
        eventually(lambda: producer.commit_offset("kept", "kept", 1))
        own.clock.advance(minutes=5)
        assert producer.end(commit=True) is Error.NONE
        until(lambda: asked.committed_offset("kept", "kept") == (1, Error.NONE), "the offset is there")


def test_librdkafka_5511_offsets_are_committed_after_their_coordinator_has_left_the_metadata() -> None:
    """An application could wait for ever for a group's coordinator that was gone."""
    with barnabas.Cluster(
        brokers=3, topics={"in": 1, "out": 1}, config={"broker.session.timeout.ms": 2_000}
    ) as own:
        client = {"bootstrap.servers": own.bootstrap, "log_level": 0}
        first = ConfluentProducer({**client, "transactional.id": "makes the topic"})
        first.init_transactions(30)
        first.begin_transaction()
        first.produce("in", b"a")
        first.commit_transaction(30)
        reading = {**client, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer(reading)
        consumer.subscribe(["in"])
        [read] = consumer.consume(1, timeout=30)
        gone = own.coordinator_of(group="g")
        name = next(
            name for name in map(str, range(100)) if own.coordinator_of(transactional_id=name) is not gone
        )
        producer = ConfluentProducer({**client, "transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("out", read.value())
        gone.kill()
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
        producer.commit_transaction(60)
        consumer.close()
        assert own.coordinator_of(group="g") is not gone
        assert [each.value for each in own.records("out")] == [b"a"]
        assert own.lag("g") == 0
