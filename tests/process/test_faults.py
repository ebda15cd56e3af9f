"""Faults that a test arms at a broker in a process of its own. The client speaks the protocol itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import barnabas
from barnabas.faults import FaultNeverFiredError
from protocol.errors import Error
from protocol.messages.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from protocol.messages.produce import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.support.transactional_client import Broker, Producer, amid_transaction
from tests.support.waiting import until
from tests.support.wire import Client, Outcome

PARTITIONS = (0, 1, 2)


def connected(broker: barnabas.Broker, client_id: str = "a") -> Client:
    return Client.of(broker.bootstrap, client_id=client_id)


def metadata(client: Client) -> Any:
    return client.ask(MetadataRequest(topics=[]), 13)


def test_an_error_stands_in_the_place_of_the_work(broker: barnabas.Broker) -> None:
    with connected(broker) as client:
        wanted = CreateTopicsRequest(
            topics=[CreatableTopic(name="refused", num_partitions=1, replication_factor=1)], timeout_ms=1000
        )
        with broker.fault("CreateTopics", error="POLICY_VIOLATION", message="not today") as fault:
            [refused] = client.ask(wanted, 7).topics
            assert (refused.name, refused.error_code) == ("refused", Error.POLICY_VIOLATION)
            assert refused.error_message == "not today"
            assert (fault.seen, fault.fired) == (1, 1)
            [made] = client.ask(wanted, 7).topics  # the fault was for one request
            assert made.error_code == Error.NONE


def test_an_error_after_the_work_hides_that_it_is_done(broker: barnabas.Broker) -> None:
    with connected(broker) as client:
        wanted = CreateTopicsRequest(
            topics=[CreatableTopic(name="hidden", num_partitions=1, replication_factor=1)], timeout_ms=1000
        )
        with broker.fault("CreateTopics", error="REQUEST_TIMED_OUT", at="answer"):
            [answer] = client.ask(wanted, 7).topics
            assert answer.error_code == Error.REQUEST_TIMED_OUT
        [again] = client.ask(wanted, 7).topics
        assert again.error_code == Error.TOPIC_ALREADY_EXISTS


def test_from_the_nth_on_for_a_number_of_times(broker: barnabas.Broker) -> None:
    with (
        connected(broker) as client,
        broker.fault("Metadata", error="UNKNOWN_SERVER_ERROR", nth=2, times=2) as fault,
    ):
        errors = [metadata(client).error_code for _ in range(4)]
        assert [bool(each) for each in errors] == [False, True, True, False]
        assert (fault.seen, fault.fired) == (3, 2)


def test_each_until_it_is_disarmed(broker: barnabas.Broker) -> None:
    with connected(broker) as client:
        fault = broker.fault("Metadata", error="UNKNOWN_SERVER_ERROR", times=None)
        assert all(metadata(client).error_code for _ in range(5))
        assert broker.disarm_faults() == [fault]
        assert not metadata(client).error_code
        assert fault.fired == 5


def test_a_seed_draws_the_same_requests(broker: barnabas.Broker) -> None:
    drawn = []
    with connected(broker) as client:
        for seed in (3, 3, 4):
            with broker.fault(
                "Metadata", error="UNKNOWN_SERVER_ERROR", times=None, probability=0.5, seed=seed
            ):
                drawn.append([bool(metadata(client).error_code) for _ in range(30)])
    assert drawn[0] == drawn[1] != drawn[2]
    assert 5 < sum(drawn[0]) < 25


@pytest.mark.parametrize(
    "which",
    [
        {"client_id": "a"},
        {"principal": "User:ANONYMOUS"},
        {"transactional_id": "t"},
        {"fields": {"key_type": 1}},
        {"fields": {"coordinator_keys": "t"}},
        {"api": ["Metadata", "findcoordinator"]},
        {"api": None},
    ],
)
def test_the_requests_that_a_fault_is_about(broker: barnabas.Broker, which: dict[str, Any]) -> None:
    with (
        connected(broker) as client,
        connected(broker, "b") as other,
        broker.fault(
            **{"api": "FindCoordinator", "error": "COORDINATOR_NOT_AVAILABLE", "times": None, **which}
        ),
    ):  # type: ignore[arg-type]
        about = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
        assert client.ask(about, 4).coordinators[0].error_code == Error.COORDINATOR_NOT_AVAILABLE
        if "client_id" in which:
            assert not other.ask(about, 4).coordinators[0].error_code
        if "transactional_id" in which or "fields" in which:
            group = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            assert not client.ask(group, 4).coordinators[0].error_code


def test_a_request_is_held_until_it_is_released(broker: barnabas.Broker) -> None:
    with connected(broker) as client, connected(broker) as other, broker.fault("Metadata", "hold") as fault:
        client.tell(MetadataRequest(topics=[]), 12)
        assert fault.reached().standing == 1
        assert not metadata(other).error_code  # no other client waits
        assert fault.release() == 1
        assert isinstance(client.receive_frame(), bytes)
        assert fault.standing == 0


def test_a_held_request_goes_on_when_the_fault_is_disarmed(broker: barnabas.Broker) -> None:
    with connected(broker) as client:
        fault = broker.fault("Metadata", "hold", at="answer")
        client.tell(MetadataRequest(topics=[]), 12)
        fault.reached().disarm()
        assert isinstance(client.receive_frame(), bytes)


def test_a_client_that_goes_while_it_is_held_leaves_the_work_to_be_done(broker: barnabas.Broker) -> None:
    wanted = CreateTopicsRequest(
        topics=[CreatableTopic(name="left", num_partitions=1, replication_factor=1)], timeout_ms=1000
    )
    with broker.fault("CreateTopics", "hold") as fault:
        with connected(broker) as client:
            client.tell(wanted, 7)
            fault.reached()
        fault.release()
    with connected(broker) as client:
        until(lambda: client.ask(wanted, 7).topics[0].error_code == Error.TOPIC_ALREADY_EXISTS, "it is there")


def test_a_delay_is_over_in_time(broker: barnabas.Broker) -> None:
    with connected(broker) as client, broker.fault("Metadata", "delay", delay=0.02):
        assert not metadata(client).error_code


@pytest.mark.parametrize("at", ["request", "answer"])
def test_the_connection_is_closed(broker: barnabas.Broker, at: str) -> None:
    with broker.fault("Metadata", "close", at=at), connected(broker) as client:
        client.tell(MetadataRequest(topics=[]), 12)
        assert client.receive_frame() is Outcome.CLOSED


def test_the_connection_is_cut_in_the_middle_of_the_answer(broker: barnabas.Broker) -> None:
    with broker.fault("ApiVersions", "cut"), connected(broker) as client:
        client.tell(ApiVersionsRequest(), 0)
        assert client.receive_frame() is Outcome.CLOSED
        assert 4 < client._have < 4 + int.from_bytes(client._buffer[:4])  # part of the answer has come


@pytest.mark.parametrize("at", ["request", "answer"])
def test_nothing_is_answered(broker: barnabas.Broker, at: str) -> None:
    with broker.fault("Metadata", "drop", at=at) as fault, connected(broker) as client:
        client.tell(MetadataRequest(topics=[]), 12)
        fault.wait_until_fired()
        assert client.receive_frame(within_s=0.05) is Outcome.SILENCE
    with connected(broker) as client:
        assert not metadata(client).error_code


def test_the_broker_crashes(tmp_path: Any) -> None:
    with barnabas.Broker(data=tmp_path / "data") as broker:
        with broker.fault("Metadata", "crash") as fault, connected(broker) as client:
            client.tell(MetadataRequest(topics=[]), 12)
            assert client.receive_frame() is Outcome.CLOSED
            broker.kill()  # the broker is already dead; this notices its end
            assert fault.fired == 1
        broker.start()
        with connected(broker) as client:
            assert not metadata(client).error_code  # faults end with the process


def test_a_broker_that_a_fault_has_crashed_does_not_run_and_its_end_is_no_failure(tmp_path: Any) -> None:
    with (
        barnabas.Broker(data=tmp_path / "data") as broker,
        broker.fault("Metadata", "crash") as fault,
        connected(broker) as client,
    ):
        client.tell(MetadataRequest(topics=[]), 12)
        fault.wait_until_fired()
        assert not broker.running
    # a broker that had ended by itself would have raised BrokerError here


def test_a_crash_that_nobody_asked_about_before_the_restart_has_happened(tmp_path: Any) -> None:
    with (
        barnabas.Broker(data=tmp_path / "data") as broker,
        broker.fault("Metadata", "crash") as fault,
    ):
        with connected(broker) as client:
            client.tell(MetadataRequest(topics=[]), 12)
            assert client.receive_frame() is Outcome.CLOSED
        broker.restart()
        assert fault.fired == 1


@pytest.mark.parametrize("again", ["restart", "kill and start"])
def test_a_broker_that_the_test_itself_ends_has_not_crashed(tmp_path: Any, again: str) -> None:
    never = pytest.raises(FaultNeverFiredError, match="do='crash'")
    with barnabas.Broker(data=tmp_path / "data") as broker, never, broker.fault("Metadata", "crash"):
        if again == "restart":
            broker.restart()
        else:
            broker.kill()
            broker.start()


def test_a_fault_that_had_to_fire_and_did_not_fails_the_test(broker: barnabas.Broker) -> None:
    never = pytest.raises(FaultNeverFiredError, match="has never fired: it matched 0 times")
    with never, broker.fault("EndTxn", "hold"):
        pass
    with broker.fault("EndTxn", "hold", may_not_fire=True):
        pass


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"api": "EndTransaction", "do": "hold"}, "there is no API EndTransaction; there are .*EndTxn"),
        ({"api": [], "do": "hold"}, "it has to be the name of an API, or several names"),
        ({"do": "explode"}, "do='explode': it can be error, delay, hold"),
        ({"do": "hold", "at": "noon"}, "at='noon': it can be request, answer, prepare, prepared"),
        ({"do": "error"}, "error=None: it has to be Kafka's name of an error, such as"),
        ({"error": "NOT_COORDINATO"}, "is it NOT_COORDINATOR?"),
        ({"error": "NONE"}, "error='NONE'"),
        ({"do": "delay", "delay": -1}, "delay_ms=-1000: it has to be a number from 0"),
        ({"do": "hold", "partition": 0}, "partition=... needs topic=..."),
        ({"do": "hold", "nth": 0}, "nth=0: it has to be a number from 1"),
        ({"do": "hold", "times": 0}, "times=0: it has to be a number from 1"),
        ({"do": "hold", "probability": 2}, "it has to be above 0 and at most 1"),
        (
            {"do": "close", "at": "marker"},
            "do='close' isn't for at='marker', but for request, answer; at='marker' takes crash",
        ),
        ({"api": "EndTxn", "do": "hold", "at": "marker"}, "takes no api"),
    ],
)
def test_nonsense_is_refused_with_the_possible_values(
    broker: barnabas.Broker, said: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        broker.fault(**said)


# --- transactions -------------------------------------------------------------------------------------------


@contextmanager
def transactional(broker: barnabas.Broker, name: str) -> Iterator[Producer]:
    """Return a producer amid a transaction. Each of three partitions of a topic of that name has a record of it."""
    with connected(broker) as client:
        yield amid_transaction(client.ask, name, name, PARTITIONS)


def stable(broker: barnabas.Broker, topic: str) -> list[int]:
    """Return the last stable offset of each of the topic's partitions."""
    with connected(broker) as client:
        return [Broker(client.ask).end(topic, index, isolation_level=1) for index in PARTITIONS]


def test_between_two_markers_readers_see_the_partitions_marked_so_far(broker: barnabas.Broker) -> None:
    with (
        transactional(broker, "between") as producer,
        broker.fault(do="hold", at="marker", nth=2, transactional_id="between") as fault,
    ):
        # the transaction is committed, whatever happens to its markers
        assert producer.end(commit=True) is Error.NONE
        fault.reached()
        assert stable(broker, "between") == [2, 0, 0]
        fault.release()
    until(lambda: stable(broker, "between") == [2, 2, 2], "all markers are written")


def test_the_coordinator_sends_a_marker_again_that_was_refused(broker: barnabas.Broker) -> None:
    with (
        transactional(broker, "again") as producer,
        broker.fault(error="NOT_LEADER_OR_FOLLOWER", at="marker", topic="again", partition=1) as fault,
    ):
        assert producer.end(commit=False) is Error.NONE
        fault.wait_until_fired()
        until(lambda: stable(broker, "again") == [2, 2, 2], "all markers are written")


def test_a_crash_between_two_markers_is_made_up_for(tmp_path: Any) -> None:
    with barnabas.Broker(data=tmp_path / "data") as broker:
        with (
            transactional(broker, "torn") as producer,
            broker.fault(do="crash", at="marked", nth=2) as fault,
        ):
            with suppress(ConnectionError):  # the answer may come before the crash
                assert producer.end(commit=True) is Error.NONE
            fault.wait_until_fired()
        broker.kill()
        broker.start()
        until(lambda: min(stable(broker, "torn")) >= 2, "all markers are written")


def test_a_producer_is_refused_an_id_a_number_of_times(broker: barnabas.Broker) -> None:
    with (
        connected(broker) as client,
        broker.fault("InitProducerId", error="COORDINATOR_LOAD_IN_PROGRESS", times=2),
    ):
        wanted = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        errors = [Error(client.ask(wanted, 4).error_code) for _ in range(3)]
        assert errors == [Error.COORDINATOR_LOAD_IN_PROGRESS] * 2 + [Error.NONE]
