"""A running broker is emptied, copied, put back and forked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import DeleteTopicsRequest
from protocol.records.batch import build_batch
from tests.support.transactional_client import Broker, amid_transaction, eventually
from tests.support.waiting import until
from tests.support.wire import Client, Outcome


@pytest.fixture(scope="module")
def shared() -> Iterator[barnabas.Broker]:
    with barnabas.Broker() as running:
        yield running


@pytest.fixture
def broker(shared: barnabas.Broker) -> barnabas.Broker:
    shared.reset()
    return shared


def topics(broker: barnabas.Broker) -> list[str]:
    with Client.of(broker.bootstrap) as client:
        return sorted(each.name for each in client.ask(MetadataRequest(topics=None), 12).topics)


def with_topic(broker: barnabas.Broker, name: str) -> None:
    with Client.of(broker.bootstrap) as client:
        Broker(client.ask).create_topic(name, 1)


def produce_one(client: Client, topic: str, value: bytes) -> None:
    records = memoryview(build_batch([(1, None, value, ())]))
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 11)
    assert answer.responses[0].partition_responses[0].error_code == Error.NONE


def ends(broker: barnabas.Broker, topic: str) -> tuple[int, int]:
    """Return the log's end and its last stable offset."""
    with Client.of(broker.bootstrap) as client:
        asked = Broker(client.ask)
        return asked.end(topic, 0), asked.end(topic, 0, isolation_level=1)


def test_a_reset_broker_is_empty_in_the_same_process_at_the_same_place(broker: barnabas.Broker) -> None:
    with_topic(broker, "orders")
    pid, bootstrap = broker.pid, broker.bootstrap
    with Client.of(broker.bootstrap) as client:
        broker.reset()
        assert client.receive_frame() is Outcome.CLOSED
    assert (broker.pid, broker.bootstrap) == (pid, bootstrap)
    assert topics(broker) == []
    with_topic(broker, "orders")


def test_no_fault_is_armed_after_it(broker: barnabas.Broker) -> None:
    broker.fault("Metadata", error="UNKNOWN_SERVER_ERROR", times=None)
    broker.reset()
    assert topics(broker) == []
    assert broker.disarm_faults() == []


def test_settings_that_were_altered_are_as_they_were(broker: barnabas.Broker) -> None:
    from protocol.messages.configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        IncrementalAlterableConfig,
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResource,
    )

    change = IncrementalAlterableConfig(name="log.retention.ms", config_operation=0, value="77")
    of_all = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    shown = DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=["log.retention.ms"]
    )
    with Client.of(broker.bootstrap) as client:
        client.ask(IncrementalAlterConfigsRequest(resources=[of_all]), 1)
        [result] = client.ask(DescribeConfigsRequest(resources=[shown]), 4).results
        assert [each.value for each in result.configs] == ["77"]
    broker.reset()
    with Client.of(broker.bootstrap) as client:
        [result] = client.ask(DescribeConfigsRequest(resources=[shown]), 4).results
        assert [each.value for each in result.configs] == [None]


def test_an_open_transaction_goes_on_from_a_snapshot_here_and_elsewhere(broker: barnabas.Broker) -> None:
    with Client.of(broker.bootstrap) as client:
        producer = amid_transaction(client.ask, "t", "orders", (0,))
        taken = broker.snapshot()
        assert producer.end(commit=True) is Error.NONE
    assert ends(broker, "orders") == (2, 2)

    broker.restore(taken)
    assert ends(broker, "orders") == (1, 0)
    with broker.fork(taken) as other, Client.of(other.bootstrap) as client:
        producer.broker = Broker(client.ask)
        eventually(lambda: producer.end(commit=False))
        assert ends(other, "orders") == (2, 2)
        assert other.bootstrap != broker.bootstrap
    assert ends(broker, "orders") == (1, 0)


def test_a_fork_leaves_nothing_behind(broker: barnabas.Broker) -> None:
    with_topic(broker, "orders")
    with broker.fork() as other:
        folder = other.data
        assert topics(other) == ["orders"]
        with_topic(other, "more")
    assert not folder.exists()
    assert topics(broker) == ["orders"]


def test_a_snapshot_goes_when_it_isnt_wanted_any_more(broker: barnabas.Broker) -> None:
    taken = broker.snapshot()
    assert (taken.path / "meta.properties").exists()
    assert not (taken.path / ".lock").exists()
    taken.remove()
    assert not taken.path.parent.exists()
    with pytest.raises(barnabas.BrokerError, match="there is no folder"):
        broker.restore(taken)


def test_users_are_restored_and_rules_are_not() -> None:
    with barnabas.Broker(security="sasl_plaintext", users=["alice"]) as broker:
        pytest.importorskip("confluent_kafka")
        from confluent_kafka.admin import AdminClient

        broker.allow("alice", "describe", topic="orders")
        broker.reset()
        with pytest.raises(LookupError):
            broker.revoke("alice")
        admin = AdminClient(broker.client_config("alice", mechanism="SCRAM-SHA-256"))
        assert admin.list_topics(timeout=30).topics == {}
        with broker.fork() as other:
            admin = AdminClient({**broker.client_config("alice"), "bootstrap.servers": other.bootstrap})
            assert admin.list_topics(timeout=30).topics == {}


def test_a_broker_that_does_not_run_cannot_be_reset(tmp_path: Path) -> None:
    broker = barnabas.Broker(data=tmp_path / "data")
    with pytest.raises(barnabas.BrokerError, match="doesn't run"):
        broker.reset()


def test_threads_work_for_the_next_node_as_well(broker: barnabas.Broker) -> None:
    """A node's threads end with it. Without new ones, the second node's delayed deletions would never happen."""
    with_topic(broker, "orders")
    with Client.of(broker.bootstrap) as client:
        produce_one(client, "orders", b"x")
        client.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=10_000), 3)
    assert [*broker.data.glob("orders-0.*-delete")]
    broker.clock.advance(minutes=2)
    until(lambda: not [*broker.data.glob("orders-0.*-delete")], "its folder is gone")


def test_a_large_log_is_copied_as_far_as_it_went(broker: barnabas.Broker) -> None:
    with_topic(broker, "orders")
    with Client.of(broker.bootstrap) as client:
        for _ in range(5):
            produce_one(client, "orders", b"x" * 100_000)
        taken = broker.snapshot()
        produce_one(client, "orders", b"x" * 100_000)
    assert ends(broker, "orders") == (6, 6)
    with broker.fork(taken) as other, Client.of(other.bootstrap) as client:
        assert ends(other, "orders") == (5, 5)
        produce_one(client, "orders", b"y")
    assert ends(broker, "orders") == (6, 6)


def test_a_second_fork_has_been_started_already(broker: barnabas.Broker) -> None:
    with_topic(broker, "orders")
    with broker.fork() as first, broker.fork() as second:
        assert topics(first) == topics(second) == ["orders"]
        assert len({broker.bootstrap, first.bootstrap, second.bootstrap}) == 3


def test_a_process_started_for_the_next_fork_goes_with_its_broker() -> None:
    with barnabas.Broker() as broker:
        broker.fork().close()
        spare = broker._spare
        assert spare is not None
        assert spare.running
        folder = spare.data
    assert not spare.running
    assert not folder.exists()
