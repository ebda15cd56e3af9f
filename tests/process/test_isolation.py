"""Nodes of a cluster that are cut off from others, paused or slowed down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas
from barnabas.cluster import ClusterNode
from protocol.errors import Error
from tests.process.clusters import QUICK, create, produced, topics_at
from tests.support.waiting import until


@pytest.fixture(scope="module")
def cluster() -> Iterator[barnabas.Cluster]:
    """One cluster for all tests. After each test its nodes are connected and in sync again."""
    with barnabas.Cluster(brokers=3, config=QUICK) as running:
        create(running, "t")
        yield running


@pytest.fixture(autouse=True)
def _whole_again(cluster: barnabas.Cluster) -> Iterator[None]:
    yield
    for node in (cluster.controller, *cluster):
        node.resume()
        node.heal()
    cluster.wait_until_in_sync(120)


def in_sync(cluster: barnabas.Cluster) -> set[int]:
    return {node.node_id for node in cluster.in_sync_replicas_of("t")}


def led_by(cluster: barnabas.Cluster, node_id: int) -> tuple[ClusterNode, ClusterNode, ClusterNode]:
    """Make this node the leader, and return it and its two followers."""
    cluster.move_leader("t", 0, node_id, timeout_s=120)
    one, other = (node for node in cluster if node.node_id != node_id)
    return cluster[node_id], one, other


def test_a_leader_that_is_cut_off_is_replaced_and_clients_still_reach_it(cluster: barnabas.Cluster) -> None:
    leader, *_ = led_by(cluster, 2)
    leader.isolate()
    until(lambda: cluster.leader_of("t", 0) is not leader, "another broker leads")
    assert leader.running
    assert topics_at(leader) == {"t"}
    assert produced(leader, "t", acks=1) is Error.NONE  # this record gets lost later
    assert produced(cluster.leader_of("t", 0), "t", acks=-1) is Error.NONE
    leader.heal()
    cluster.wait_until_in_sync(120)
    assert in_sync(cluster) == {1, 2, 3}
    assert produced(leader, "t") is Error.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_reaches_the_controller_but_not_its_leader_falls_out_of_sync(
    cluster: barnabas.Cluster,
) -> None:
    leader, cut, other = led_by(cluster, 1)
    cut.isolate(from_=[leader])
    assert produced(leader, "t") is Error.NONE  # without a new record the follower would lack nothing
    until(lambda: cut.node_id not in in_sync(cluster), "it is out of sync")
    assert in_sync(cluster) == {leader.node_id, other.node_id}
    assert cut.node_id in cluster.controller.ask({"ask": "brokers"})  # the broker isn't fenced
    cut.heal(from_=[leader.node_id])
    cluster.wait_until_in_sync(120)


@pytest.mark.parametrize("incoming", [True, False])
def test_one_direction_is_enough_for_a_follower_to_lose_its_leader(
    cluster: barnabas.Cluster, incoming: bool
) -> None:
    """Either its requests get lost, or their answers do. The connection stays open."""
    leader, cut, _ = led_by(cluster, 1)
    cut.isolate(from_=[leader], incoming=incoming, outgoing=not incoming)
    assert produced(leader, "t") is Error.NONE
    until(lambda: cut.node_id not in in_sync(cluster), "it is out of sync")
    cut.heal()
    cluster.wait_until_in_sync(120)


def test_a_broker_whose_heartbeats_are_lost_is_fenced(cluster: barnabas.Cluster) -> None:
    """The broker's heartbeats get lost, but it still gets the controller's answers to earlier requests."""
    leader, *_ = led_by(cluster, 3)
    leader.isolate(from_=[cluster.controller], incoming=False)
    until(lambda: leader.node_id not in cluster.controller.ask({"ask": "brokers"}), "it is fenced")
    assert cluster.leader_of("t", 0) is not leader


def test_a_controller_that_is_cut_off_does_not_stop_producers(cluster: barnabas.Cluster) -> None:
    leader, *_ = led_by(cluster, 1)
    cluster.controller.isolate()
    assert produced(leader, "t", acks=-1) is Error.NONE
    cluster.controller.heal()
    cluster.wait_until_in_sync(120)


def test_a_node_that_starts_is_cut_off_from_its_first_moment(cluster: barnabas.Cluster) -> None:
    leader, cut, _ = led_by(cluster, 1)
    cut.stop()
    cut.isolate(from_=[leader])
    cut.start()
    until(lambda: cut.node_id in cluster.controller.ask({"ask": "brokers"}), "it is unfenced")
    assert cut.node_id not in in_sync(cluster)
    cut.heal()
    cluster.wait_until_in_sync(120)


def test_a_node_that_is_cut_off_stops_without_waiting_for_nodes_it_cannot_reach(
    cluster: barnabas.Cluster,
) -> None:
    leader, *_ = led_by(cluster, 2)
    leader.isolate()
    leader.stop()
    assert not leader.running
    leader.heal()
    leader.start()


def test_a_paused_broker_is_fenced_and_goes_on_when_it_is_resumed(cluster: barnabas.Cluster) -> None:
    leader, *_ = led_by(cluster, 2)
    leader.pause()
    assert leader.paused
    until(lambda: cluster.leader_of("t", 0) is not leader, "another broker leads")
    assert leader.running
    leader.isolate()  # this takes effect once the broker is resumed
    leader.heal()
    leader.resume()
    cluster.wait_until_in_sync(120)
    assert not leader.paused


def test_a_node_cannot_be_cut_off_from_itself_or_from_nodes_that_do_not_exist(
    cluster: barnabas.Cluster,
) -> None:
    with pytest.raises(ValueError, match="7 is no other node"):
        cluster[1].isolate(from_=[7])
    with pytest.raises(ValueError, match="1 is no other node"):
        cluster[1].isolate(from_=[1])


def test_a_slow_network_loses_nothing(cluster: barnabas.Cluster) -> None:
    leader, *_ = led_by(cluster, 2)
    leader.slow_down(0.05)
    assert produced(leader, "t", acks=-1) is Error.NONE
    leader.slow_down(0.02, [1])
    leader.heal()
    assert produced(leader, "t", acks=-1) is Error.NONE
    assert in_sync(cluster) == {1, 2, 3}
