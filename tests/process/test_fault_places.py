"""Faults inside the broker: at a transaction's records, while a coordinator loads, in the middle of a rebalance, at
file operations. And a broker that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import barnabas
from protocol.errors import Error
from protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.records.batch import build_batch
from tests.support.transactional_client import Broker, Producer, Reader, amid_transaction, eventually
from tests.support.waiting import until
from tests.support.wire import Client, Outcome


@pytest.fixture(scope="module")
def shared() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


def connected(broker: barnabas.Broker) -> Client:
    return Client.of(broker.bootstrap)


@contextmanager
def transactional(broker: barnabas.Broker, name: str) -> Iterator[Producer]:
    with connected(broker) as client:
        yield amid_transaction(client.ask, name, name, (0,))


def state(broker: barnabas.Broker, transactional_id: str) -> str:
    with connected(broker) as client:
        return Broker(client.ask).state(transactional_id)


def committed(broker: barnabas.Broker, topic: str) -> int:
    """Return how many records a read_committed reader sees."""
    with connected(broker) as client:
        return len(Reader(Broker(client.ask), topic, 0).read_on())


def end_in_background(producer: Producer, broker: barnabas.Broker, *, commit: bool = True) -> Client:
    """Ask to end the transaction, and return the connection on which the answer comes."""
    client = connected(broker)
    client.tell(*producer.end_request(commit=commit))
    return client


# --- a transaction's records --------------------------------------------------------------------------------

STEPS = {
    "prepare": "Ongoing",
    "prepared": "PrepareCommit",
    "complete": "PrepareCommit",
    "completed": "CompleteCommit",
}
"""Place → the state in which others find the transaction while it is held there."""


@pytest.mark.parametrize("place", STEPS)
def test_a_commit_is_held_at_each_step(broker: barnabas.Broker, place: str) -> None:
    name = f"held-{place}"
    with (
        transactional(broker, name) as producer,
        broker.fault(do="hold", at=place, transactional_id=name) as fault,
        end_in_background(producer, broker) as ending,
    ):
        fault.reached()
        assert state(broker, name) == STEPS[place]
        assert committed(broker, name) == (1 if place in ("complete", "completed") else 0)
        is_answered = place in ("complete", "completed")
        if not is_answered:
            assert ending.receive_frame(within_s=0.02) is Outcome.SILENCE
        fault.release()
        assert isinstance(ending.receive_frame(), bytes)
    until(lambda: state(broker, name) == "CompleteCommit", "the transaction is complete")
    assert committed(broker, name) == 1


@pytest.mark.parametrize("place", STEPS)
@pytest.mark.parametrize("commit", [True, False])
def test_a_crash_at_each_step_is_made_up_for(tmp_path: Path, place: str, commit: bool) -> None:
    with barnabas.Broker(data=tmp_path / "data") as broker:
        with (
            transactional(broker, "t") as producer,
            broker.fault(do="crash", at=place) as fault,
            end_in_background(producer, broker, commit=commit) as ending,
        ):
            fault.wait_until_fired()
            while isinstance(ending.receive_frame(), bytes):  # it may have got an answer before
                pass
        broker.kill()
        broker.start()
        if place == "prepare":  # nothing was written, so the transaction is still open
            assert state(broker, "t") == "Ongoing"
            with connected(broker) as client:
                producer.broker = Broker(client.ask)
                eventually(lambda: producer.end(commit=commit))
        wanted = "CompleteCommit" if commit else "CompleteAbort"
        until(lambda: state(broker, "t") == wanted, "the transaction is complete")
        assert committed(broker, "t") == (1 if commit else 0)


def test_a_commit_that_cannot_be_written_leaves_the_transaction_open(broker: barnabas.Broker) -> None:
    with (
        transactional(broker, "unwritten") as producer,
        broker.fault(error="COORDINATOR_NOT_AVAILABLE", at="prepare", fields={"state": "PrepareCommit"}),
    ):
        assert producer.end(commit=True) is Error.COORDINATOR_NOT_AVAILABLE
        assert state(broker, "unwritten") == "Ongoing"
        assert producer.end(commit=True) is Error.NONE
    until(lambda: committed(broker, "unwritten") == 1, "it is committed")


def test_a_completion_that_cannot_be_written_is_written_later(broker: barnabas.Broker) -> None:
    with (
        transactional(broker, "later") as producer,
        broker.fault(error="COORDINATOR_NOT_AVAILABLE", at="complete", times=2) as fault,
    ):
        assert producer.end(commit=True) is Error.NONE
        fault.wait_until_fired(2)
        until(lambda: state(broker, "later") == "CompleteCommit", "the transaction is complete")


def test_others_are_served_while_one_transaction_is_held(broker: barnabas.Broker) -> None:
    with (
        transactional(broker, "one") as one,
        transactional(broker, "two") as two,
        broker.fault(do="hold", at="prepare", transactional_id="one") as fault,
        end_in_background(one, broker) as ending,
    ):
        fault.reached()
        assert two.end(commit=True) is Error.NONE
        assert one.end(commit=True) is Error.CONCURRENT_TRANSACTIONS  # its own commit is still under way
        fault.release()
        assert isinstance(ending.receive_frame(), bytes)


def test_a_held_request_goes_on_when_the_broker_restarts() -> None:
    with barnabas.Broker() as broker:
        with transactional(broker, "reset") as producer:
            fault = broker.fault(do="hold", at="prepare")
            with end_in_background(producer, broker) as ending:
                fault.reached()
                broker.reset()
                while isinstance(ending.receive_frame(), bytes):
                    pass
        with transactional(broker, "reset") as producer:
            assert producer.end(commit=True) is Error.NONE


# --- a coordinator that loads -------------------------------------------------------------------------------


def test_a_coordinator_is_held_while_it_loads() -> None:
    with barnabas.Broker() as broker, connected(broker) as client, connected(broker) as other:
        asked = FindCoordinatorRequest(key="t", key_type=1)
        with broker.fault(do="hold", at="load", topic="__transaction_state", times=None) as fault:
            with suppress(AssertionError):
                other.ask(asked, 3)  # this creates the topic
            fault.reached()
            client.tell(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
            # it waits until the coordinator has loaded
            assert client.receive_frame(within_s=0.05) is Outcome.SILENCE
            fault.release()
        frame = client.receive_frame()
        assert isinstance(frame, bytes)


# --- in the middle of a rebalance ---------------------------------------------------------------------------


def test_a_rebalance_is_held_when_all_have_joined(broker: barnabas.Broker) -> None:
    def join(member_id: str = "") -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    with (
        connected(broker) as client,
        broker.fault(do="hold", at="rebalance", group="g") as fault,
    ):
        Broker(client.ask).find_coordinators("x", "g")
        member_id = client.ask(join(), 4).member_id
        sent = client.send(join(member_id), 4)
        fault.reached()
        assert client.receive_frame(within_s=0.02) is Outcome.SILENCE
        fault.release()
        answer = client.receive(sent)
        assert answer.message.generation_id == 1  # type: ignore[union-attr]


# --- files --------------------------------------------------------------------------------------------------


def produce(client: Client, topic: str, value: bytes = b"x") -> Error:
    records = memoryview(build_batch([(1, None, value, ())]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 11)
    return Error(answer.responses[0].partition_responses[0].error_code)


def test_a_disk_that_is_full_loses_nothing(tmp_path: Path) -> None:
    with barnabas.Broker(data=tmp_path / "data") as broker:
        with connected(broker) as client:
            Broker(client.ask).create_topic("t", 1)
            assert produce(client, "t", b"kept") is Error.NONE
            with broker.fault(at="file", error="ENOSPC", operation="append", topic="t", file="*.log"):
                assert produce(client, "t") is Error.KAFKA_STORAGE_ERROR
        broker.restart()
        with connected(broker) as client:
            assert produce(client, "t", b"later") is Error.NONE
            assert Reader(Broker(client.ask), "t", 0).read_on() == [b"kept", b"later"]


def test_a_disk_is_slow(broker: barnabas.Broker) -> None:
    with connected(broker) as client:
        Broker(client.ask).create_topic("slow", 1)
        with broker.fault(at="file", do="delay", delay=0.02, operation="append", topic="slow") as fault:
            assert produce(client, "slow") is Error.NONE
            assert fault.fired == 1


def test_a_byte_is_flipped_on_the_disk(tmp_path: Path) -> None:
    with barnabas.Broker(data=tmp_path / "data") as broker, connected(broker) as client:
        Broker(client.ask).create_topic("t", 1)
        for index in range(20):
            produce(client, "t", b"%d" % index * 1000)
        path = tmp_path / "data" / "t-0" / "00000000000000000000.log"
        before = path.read_bytes()
        with broker.fault(do="flip", operation="read", topic="t", file="*.log") as fault:
            with suppress(AssertionError, ConnectionError, ValueError):
                Reader(Broker(client.ask), "t", 0).read_on()
            fault.wait_until_fired()
        after = path.read_bytes()
        assert len(after) == len(before)
        assert sum(a != b for a, b in zip(after, before, strict=True)) == 1


def test_a_crash_before_an_operation_on_a_file(tmp_path: Path) -> None:
    with barnabas.Broker(data=tmp_path / "data") as broker:
        with connected(broker) as client:
            Broker(client.ask).create_topic("t", 1)
            with broker.fault(at="file", do="crash", operation="append", topic="t", file="*.log") as fault:
                with suppress(ConnectionError):
                    produce(client, "t")
                fault.wait_until_fired()
        broker.kill()
        broker.start()
        with connected(broker) as client:
            assert Broker(client.ask).end("t", 0) == 0


# --- a broker that stands still -----------------------------------------------------------------------------


def test_a_broker_stands_still_until_it_is_released(broker: barnabas.Broker) -> None:
    with connected(broker) as client, broker.fault("Metadata", "pause") as fault:
        client.tell(MetadataRequest(topics=[]), 12)
        fault.reached()
        assert broker.paused
        assert client.receive_frame(within_s=0.02) is Outcome.SILENCE
        fault.release()
        assert isinstance(client.receive_frame(), bytes)
        assert not broker.paused
        assert fault.fired == 1
