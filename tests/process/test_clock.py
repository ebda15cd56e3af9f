"""A broker whose time a test moves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from tests.support.transactional_client import Broker, amid_transaction, eventually
from tests.support.waiting import until
from tests.support.wire import Client, Outcome


@pytest.fixture(scope="module")
def shared() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture
def broker(shared: barnabas.Broker) -> barnabas.Broker:
    shared.reset()
    return shared


def test_a_transaction_times_out(broker: barnabas.Broker) -> None:
    with Client.of(broker.bootstrap) as client:
        amid_transaction(client.ask, "t", "orders", (0,))
        assert Broker(client.ask).end("orders", 0, isolation_level=1) == 0
        broker.clock.advance(minutes=2)
    with Client.of(broker.bootstrap) as client:  # the broker has closed the idle connection of before
        until(lambda: Broker(client.ask).end("orders", 0, isolation_level=1) == 2, "it is aborted")


def test_a_delayed_fetch_is_answered(broker: barnabas.Broker) -> None:
    with Client.of(broker.bootstrap) as client:
        Broker(client.ask).create_topic("orders", 1)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        topics = [FetchTopic(topic="orders", partitions=[wanted])]
        broker.clock.freeze()
        client.tell(FetchRequest(max_wait_ms=5_000, min_bytes=1, topics=topics), 11)
        assert client.receive_frame(within_s=0.05) is Outcome.SILENCE
        broker.clock.advance(seconds=5)
        assert isinstance(client.receive_frame(), bytes)
        assert broker.clock.frozen
        broker.clock.run()
        assert not broker.clock.frozen


def test_a_member_is_gone_once_its_session_has_timed_out(broker: barnabas.Broker) -> None:
    from protocol.messages.groups import DescribeGroupsRequest

    with Client.of(broker.bootstrap) as client:
        Broker(client.ask).find_coordinators("t", "g")
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        eventually(lambda: Error(client.ask(join, 3).error_code))
        [group] = client.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
        assert len(group.members) == 1
        broker.clock.advance(seconds=11)
        [group] = client.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
        assert group.members == []


def test_an_advanced_clock_stays_advanced_until_a_reset(broker: barnabas.Broker) -> None:
    before_s = broker.clock.now
    broker.clock.advance(days=1, hours=1)
    assert broker.clock.now >= before_s + 25 * 3600
    broker.reset()
    assert broker.clock.now < before_s + 3600


def test_moving_time_back_is_refused(broker: barnabas.Broker) -> None:
    with pytest.raises(barnabas.BrokerError, match="milliseconds, from 0"):
        broker.clock.advance(seconds=-1)
