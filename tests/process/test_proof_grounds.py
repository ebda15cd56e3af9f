"""The brokers of a proof are replaced by new ones with the same state if they can't be put back."""

from __future__ import annotations

import socket

from barnabas.proving.grounds import Ground, OneBroker, SeveralBrokers


def with_a_topic(ground: Ground) -> Ground:
    ground.kafka.create_topics({"bills": 1})
    ground.keep()
    ground.begin()
    return ground


def test_a_broker_that_cannot_start_any_more_is_replaced() -> None:
    with OneBroker() as ground:
        broker = with_a_topic(ground)._broker  # type: ignore[attr-defined]
        broker.kill()
        properties = broker.data / "meta.properties"
        properties.write_text(properties.read_text("utf-8").replace("node.id=", "node.id=7"), "utf-8")
        ground.begin()
        assert ground.kafka is not broker
        assert ground.kafka.records("bills") == []
        new = ground.kafka
        ground.begin()
        assert ground.kafka is new
        assert not broker.running


def test_a_broker_that_nobody_trusts_any_more_is_replaced() -> None:
    with OneBroker() as ground:
        broker = with_a_topic(ground).kafka
        ground.distrust()
        ground.begin()
        assert ground.kafka is not broker
        assert ground.kafka.records("bills") == []


def test_a_cluster_whose_port_somebody_else_has_is_replaced() -> None:
    with SeveralBrokers(1) as ground:
        cluster = with_a_topic(ground).kafka
        broker = cluster[1]  # type: ignore[index]
        address = ("127.0.0.1", broker.port)
        broker.kill()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(address)
            other.listen()
            ground.begin()
        assert ground.kafka is not cluster
        assert ground.kafka.records("bills") == []
