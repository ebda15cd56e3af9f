"""Which nodes the clients of a listener are told about: the cases that Kafka's KRaftMetadataCache distinguishes."""

from __future__ import annotations

import pytest

from broker.controller.image import (
    LOST,
    MIGRATING,
    NO_LEADER,
    UNASSIGNED,
    BrokerNode,
    ClusterImage,
    ListenerView,
    PartitionImage,
    alive_node,
)
from protocol.messages import metadata_records as records

OUTER, INNER = "OUTER", "INNER"
ALIVE, FENCED, INNER_ONLY, WITHOUT_DIRECTORIES, GONE = 1, 2, 3, 4, 5
ONLINE, OFFLINE = b"online__________", b"offline_________"


def cluster() -> ClusterImage:
    image = ClusterImage()
    for node_id, listeners, fenced, log_dirs in (
        (ALIVE, (OUTER, INNER), False, [ONLINE]),
        (FENCED, (OUTER,), True, [ONLINE]),
        (INNER_ONLY, (INNER,), False, [ONLINE]),
        (WITHOUT_DIRECTORIES, (OUTER,), False, []),
    ):
        image.apply(
            records.RegisterBrokerRecord(
                broker_id=node_id,
                end_points=[
                    records.BrokerEndpoint(name=name, host=f"{name.lower()}.{node_id}", port=node_id)
                    for name in listeners
                ],
                rack=f"rack-{node_id}",
                fenced=fenced,
                log_dirs=log_dirs,
            )
        )
    return image


def partition(
    *replicas: int, leader: int = NO_LEADER, directories: list[bytes] | None = None
) -> PartitionImage:
    return PartitionImage(
        records.PartitionRecord(
            replicas=[*replicas], isr=[*replicas], leader=leader, directories=directories or []
        )
    )


def node(node_id: int, *, fenced: bool = False) -> BrokerNode:
    return BrokerNode(node_id, f"outer.{node_id}", node_id, f"rack-{node_id}", fenced)


def test_brokers_are_listed_by_id_whoever_registered_first() -> None:
    image = cluster()
    late = records.RegisterBrokerRecord(
        broker_id=0, end_points=[records.BrokerEndpoint(name=OUTER, host="outer.0", port=1)], fenced=False
    )
    image.apply(late)
    view = ListenerView(image, OUTER)
    assert [*view.nodes] == [0, ALIVE, FENCED, WITHOUT_DIRECTORIES]
    assert [node.node_id for node in view.alive_nodes()] == [0, ALIVE, WITHOUT_DIRECTORIES]


def test_unfenced_brokers_that_advertise_to_the_listener_are_alive() -> None:
    view = ListenerView(cluster(), OUTER)
    assert view.alive_nodes() == [node(ALIVE), node(WITHOUT_DIRECTORIES)]
    assert [*view.nodes.values()] == [node(ALIVE), node(FENCED, fenced=True), node(WITHOUT_DIRECTORIES)]
    assert view.reachable([GONE, INNER_ONLY, WITHOUT_DIRECTORIES, FENCED, ALIVE]) == [
        WITHOUT_DIRECTORIES,
        ALIVE,
    ]


@pytest.mark.parametrize("node_id", [FENCED, INNER_ONLY, GONE])
def test_a_broker_that_is_not_alive_is_no_node(node_id: int) -> None:
    assert alive_node(cluster(), node_id, OUTER) is None


def test_a_live_broker_is_found_by_the_address_of_the_listener() -> None:
    assert alive_node(cluster(), ALIVE, OUTER) == node(ALIVE)
    assert alive_node(cluster(), ALIVE, INNER) == BrokerNode(ALIVE, "inner.1", ALIVE, "rack-1")


@pytest.mark.parametrize(
    ("leader", "told", "is_elsewhere"),
    [
        (ALIVE, ALIVE, True),
        (FENCED, FENCED, True),  # it is about to lose the leadership, and Kafka names it until then
        (INNER_ONLY, NO_LEADER, True),
        (GONE, NO_LEADER, False),
        (NO_LEADER, NO_LEADER, False),
    ],
)
def test_the_leader_in_the_answer(leader: int, told: int, is_elsewhere: bool) -> None:
    view, led = ListenerView(cluster(), OUTER), partition(leader, leader=leader)
    assert (view.leader(led), view.has_leader_elsewhere(led)) == (told, is_elsewhere)


@pytest.mark.parametrize(
    ("directory_id", "offline"),
    [
        (ONLINE, [FENCED, INNER_ONLY, GONE]),
        (UNASSIGNED, [FENCED, INNER_ONLY, GONE]),
        (MIGRATING, [FENCED, INNER_ONLY, GONE]),
        (None, [FENCED, INNER_ONLY, GONE]),  # a record from before directories existed
        (OFFLINE, [ALIVE, FENCED, INNER_ONLY, GONE]),
        (LOST, [ALIVE, FENCED, INNER_ONLY, WITHOUT_DIRECTORIES, GONE]),
    ],
)
def test_replicas_are_offline_with_their_broker_or_their_directory(
    directory_id: bytes | None, offline: list[int]
) -> None:
    replicas = (ALIVE, FENCED, INNER_ONLY, WITHOUT_DIRECTORIES, GONE)
    directories = None if directory_id is None else [directory_id] * len(replicas)
    view = ListenerView(cluster(), OUTER)
    assert view.offline_replicas(partition(*replicas, directories=directories)) == offline
