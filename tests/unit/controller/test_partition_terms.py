"""Who could lead a partition, and which settings apply to it."""

from __future__ import annotations

import pytest

from broker.controller.image import LOST, MIGRATING, UNASSIGNED
from broker.controller.partition_changes import (
    Election,
    LeaderAcceptor,
    OwnSettings,
    PartitionTerms,
    partition_named,
)
from protocol.errors import Error, KafkaError
from tests.unit.controller.partitions import OWN, Cluster, directory

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1, 2, 3)
    cluster.topic("t", [1, 2, 3], [3])
    return cluster


def accepted(cluster: Cluster, acceptor: LeaderAcceptor) -> list[int]:
    return [broker_id for broker_id in range(5) if acceptor.accepts(cluster.partition(), broker_id)]


def test_active_brokers_with_a_replica_could_lead(cluster: Cluster) -> None:
    cluster.register(4)
    cluster.unfence(4)
    assert accepted(cluster, LeaderAcceptor(cluster.image)) == [1, 2, 3]
    cluster.fence(2)
    cluster.shut_down(3)
    assert accepted(cluster, LeaderAcceptor(cluster.image)) == [1]


def test_a_decision_under_way_counts_before_its_records_exist(cluster: Cluster) -> None:
    cluster.fence(2)
    assert accepted(cluster, LeaderAcceptor(cluster.image, added=2)) == [1, 2, 3]
    assert accepted(cluster, LeaderAcceptor(cluster.image, without=[1])) == [3]
    assert accepted(cluster, LeaderAcceptor(cluster.image, added=2, without=[2])) == [1, 3]


@pytest.mark.parametrize(
    ("where", "is_one"),
    [(directory(2), True), (directory(2, 1), False), (UNASSIGNED, True), (MIGRATING, True), (LOST, False)],
)
def test_a_directory_that_is_offline_keeps_its_broker_from_leading(
    cluster: Cluster, where: bytes, is_one: bool
) -> None:
    cluster.change(directories=[directory(1), where, directory(3)])
    assert (2 in accepted(cluster, LeaderAcceptor(cluster.image))) is is_one


@pytest.mark.parametrize(("where", "is_one"), [(directory(2, 1), True), (UNASSIGNED, True), (LOST, False)])
def test_a_broker_without_registered_directories_has_all_but_lost_ones(
    cluster: Cluster, where: bytes, is_one: bool
) -> None:
    """KAFKA-16162: the broker registered before records could name directories."""
    cluster.register(2, directories=0)
    cluster.unfence(2)
    cluster.change(directories=[directory(1), where, directory(3)])
    assert (2 in accepted(cluster, LeaderAcceptor(cluster.image))) is is_one


def test_without_directories_in_the_records_every_replica_is_online(cluster: Cluster) -> None:
    cluster.change(directories=[])
    assert accepted(cluster, LeaderAcceptor(cluster.image)) == [1, 2, 3]


@pytest.mark.parametrize(
    ("topic", "node", "all_of_them", "static", "counts"),
    [
        ("2", "3", "3", "3", 2),
        (None, "2", "3", "3", 2),
        (None, None, "2", "3", 2),
        (None, None, None, "2", 2),
        (None, None, None, None, 1),
        ("5", None, None, None, 3),  # at most the number of replicas
        ("many", None, None, None, 1),
    ],
)
def test_the_nearest_setting_counts(
    cluster: Cluster,
    topic: str | None,
    node: str | None,
    all_of_them: str | None,
    static: str | None,
    counts: int,
) -> None:
    if topic is not None:
        cluster.configure(MIN_ISR, topic)
    if node is not None:
        cluster.configure(MIN_ISR, node, None, "9")
    if all_of_them is not None:
        cluster.configure(MIN_ISR, all_of_them, None)
    cluster.configure(MIN_ISR, "3", None, "8")  # this node isn't the controller
    own = OwnSettings(9, {} if static is None else {MIN_ISR: static})
    assert PartitionTerms(cluster.image, own).of(cluster.image.topics["t"]).min_isr == counts


def test_a_topic_without_partitions_counts_as_having_one_replica(cluster: Cluster) -> None:
    cluster.topic("u")
    cluster.configure(MIN_ISR, "2", None)
    assert PartitionTerms(cluster.image, OWN).of(cluster.image.topics["u"]).min_isr == 1


def test_a_topics_first_partition_counts_for_all_of_them(cluster: Cluster) -> None:
    cluster.topic("u", [1], [1, 2, 3])
    cluster.configure(MIN_ISR, "2", None)
    terms = PartitionTerms(cluster.image, OWN)
    assert terms.of(cluster.image.topics["u"]).min_isr == 1
    assert terms.of(cluster.image.topics["t"]).min_isr == 2


@pytest.mark.parametrize(
    ("text", "election"),
    [
        ("true", Election.UNCLEAN),
        ("TRUE", Election.UNCLEAN),
        ("false", Election.ONLINE),
        ("", Election.ONLINE),
    ],
)
def test_settings_allow_unclean_elections(cluster: Cluster, text: str, election: Election) -> None:
    topic = cluster.image.topics["t"]
    assert PartitionTerms(cluster.image, OWN).of(topic).election is Election.ONLINE
    assert PartitionTerms(cluster.image, OwnSettings(None, {UNCLEAN: text})).of(topic).election is election
    cluster.configure(UNCLEAN, text, None)
    assert PartitionTerms(cluster.image, OWN).of(topic).election is election
    cluster.configure(UNCLEAN, "false")
    assert PartitionTerms(cluster.image, OWN).of(topic).election is Election.ONLINE


def test_a_replica_that_is_new_on_a_broker_has_its_only_directory(cluster: Cluster) -> None:
    cluster.register(2, directories=2)
    cluster.register(3, directories=0)
    default = PartitionTerms(cluster.image, OWN).of(cluster.image.topics["t"]).default_directory
    assert [default(broker_id) for broker_id in (1, 2, 3, 4)] == [
        directory(1),
        UNASSIGNED,
        MIGRATING,
        UNASSIGNED,
    ]


def test_features_count_for_all_topics(cluster: Cluster) -> None:
    terms = PartitionTerms(cluster.image, OWN).of(cluster.image.topics["t"])
    assert (terms.metadata_version, terms.elr_enabled) == (33, True)
    cluster = Cluster(1, elr=False, level=15)
    cluster.topic("t", [1])
    terms = PartitionTerms(cluster.image, OWN).of(cluster.image.topics["t"])
    assert (terms.metadata_version, terms.elr_enabled) == (15, False)


def test_a_partition_is_known_by_name_and_number(cluster: Cluster) -> None:
    topic, partition = partition_named(cluster.image, "t", 1)
    assert (topic.name, partition.replicas) == ("t", [3])


@pytest.mark.parametrize(("name", "index"), [("u", 0), ("t", 2), ("t", -1)])
def test_a_missing_partition_is_refused(cluster: Cluster, name: str, index: int) -> None:
    with pytest.raises(KafkaError) as refused:
        partition_named(cluster.image, name, index)
    assert refused.value.error is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert refused.value.message
