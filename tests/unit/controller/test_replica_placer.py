"""Where new replicas go: the cases of Kafka's StripedReplicaPlacerTest, and results of the real placer."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from broker.controller.image import LOST, MIGRATING, UNASSIGNED
from broker.controller.replica_placer import (
    Placement,
    StripedReplicaPlacer,
    UsableBroker,
    default_directory,
    usable_brokers,
)
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.wire.primitives import uuid_to_text
from tests.unit.controller.clusters import cluster, directory, first_of, placed, register
from tests.unit.controller.java_randoms import JavaRandom, MockRandom

PLACED_BY_KAFKA = Path(__file__).parent / "data" / "striped_placements.jsonl"
"""Results of StripedReplicaPlacer 4.3.1 with java.util.Random(seed): {seed, factor, brokers as for `cluster`, placed}.
"""


def refusal(brokers: str, replication_factor: int) -> str | None:
    with pytest.raises(KafkaError) as refused:
        StripedReplicaPlacer(first_of).place(cluster(brokers), 1, replication_factor)
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
    return refused.value.message


# --- as Kafka's ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("brokers", "replication_factor", "expected"),
    [
        ("3 1! 0 4 2", 4, "3,4,0,2 4,0,2,3 0,2,3,4 2,3,4,0 0,4,3,2"),
        ("0 1!", 1, "0 0 0"),
        ("3 1! 2", 3, "3,2,1 2,3,1 3,2,1 2,3,1"),
        ("11/1 10/1 30/3 31/3 21/2 20/2!", 4, "11,21,31,10 21,30,10,20 31,11,21,30"),
        ("11/1 10/1 30/3! 31/3! 20/2! 21/2! 41/4 40/4!", 4, "41,11,21,30 10,20,31,41 41,21,30,11"),
        ("0 3 2 1", 3, "2,3,0 3,0,1 0,1,2 1,2,3 1,0,2"),
    ],
    ids=["a fenced one", "one unfenced", "a fenced one is needed", "racks", "fenced racks", "no rack"],
)
def test_replicas_of_kafkas_own_cases(brokers: str, replication_factor: int, expected: str) -> None:
    placer = StripedReplicaPlacer(MockRandom().draw)
    count = len(expected.split())
    assert placed(placer, cluster(brokers), count, replication_factor) == expected


def test_each_pair_of_brokers_has_as_many_of_200_partitions_as_in_kafka() -> None:
    pairs = Counter(placed(StripedReplicaPlacer(MockRandom().draw), cluster("0 1 2 3"), 200, 2).split())
    as_in_kafka = {
        0: {1: 14, 2: 22, 3: 14},
        1: {0: 17, 2: 17, 3: 16},
        2: {0: 13, 1: 17, 3: 20},
        3: {0: 20, 1: 19, 2: 11},
    }
    assert pairs == {
        f"{leader},{other}": times
        for leader, others in as_in_kafka.items()
        for other, times in others.items()
    }


@pytest.mark.parametrize("line", PLACED_BY_KAFKA.read_text("utf-8").splitlines())
def test_the_same_draws_come_to_the_same_replicas_as_in_kafka(line: str) -> None:
    """The cases have racks with the same hash, or that Java and Python sort differently. They have fenced brokers.
    They have one broker in each rack, where partitions of one replica skip a broker that has had a turn of the same
    number."""
    expected = json.loads(line)
    placer = StripedReplicaPlacer(JavaRandom(expected["seed"]).draw)
    count = len(expected["placed"].split())
    assert placed(placer, cluster(expected["brokers"]), count, expected["factor"]) == expected["placed"]


# --- what is refused ----------------------------------------------------------------------------------------


def test_too_few_brokers_are_reported_with_their_number() -> None:
    assert refusal("10/1 11/1", 3) == (
        "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some "
        "brokers have all their log directories cordoned."
    )


@pytest.mark.parametrize("brokers", ["", "10/1! 11/1!", "10~", "10! 11~"])
def test_a_leader_needs_a_usable_broker(brokers: str) -> None:
    told = "All brokers are currently fenced, or have all their log directories cordoned."
    assert refusal(brokers, 1) == refusal(brokers, 3) == told


@pytest.mark.parametrize("replication_factor", [0, -1])
def test_a_factor_has_to_be_positive_before_anything_else(replication_factor: int) -> None:
    told = f"Invalid replication factor {replication_factor}: the replication factor must be positive."
    assert refusal("1 2", replication_factor) == refusal("1!", replication_factor) == told


def test_however_many_are_wanted_they_are_made_as_they_are_taken() -> None:
    partitions = StripedReplicaPlacer(first_of).place(cluster("1 2 3"), 2**31, 2)
    assert [*islice(partitions, 3)] == [[1, 2], [2, 3], [3, 1]]


# --- who can be used ----------------------------------------------------------------------------------------


def test_a_broker_about_to_go_is_not_used_and_a_gone_one_counts_as_fenced() -> None:
    assert usable_brokers(cluster("1/a 2~ 3!~ 4!")) == [
        UsableBroker(1, "a", fenced=False),
        UsableBroker(3, None, fenced=True),
        UsableBroker(4, None, fenced=True),
    ]


def test_brokers_with_only_cordoned_directories_are_not_used() -> None:
    image = cluster()
    first, second = directory(1, 1), directory(1, 2)
    register(image, 1, directories=[first, second], cordoned=[second, first])
    register(image, 2, directories=[first, second], cordoned=[second])
    register(image, 3, directories=[first, second], cordoned=[])
    register(image, 4, directories=[first], cordoned=None)
    register(image, 5, directories=[], cordoned=[first])
    assert [broker.broker_id for broker in usable_brokers(image)] == [2, 3, 4, 5]


def test_cordons_reported_later_count() -> None:
    image = cluster("1 2")
    image.apply(
        records.BrokerRegistrationChangeRecord(
            broker_id=1, broker_epoch=101, cordoned_log_dirs=[directory(1)]
        )
    )
    assert placed(StripedReplicaPlacer(first_of), image, 3, 1) == "2 2 2"
    image.apply(records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=101, cordoned_log_dirs=[]))
    assert placed(StripedReplicaPlacer(first_of), image, 2, 1) == "1 2"


def test_a_broker_without_a_rack_is_not_in_the_rack_with_the_empty_name() -> None:
    assert placed(StripedReplicaPlacer(first_of), cluster("1/ 2/ 3 4"), 1, 2) == "3,1"


# --- in which directory -------------------------------------------------------------------------------------


def test_a_brokers_only_directory_is_named_but_none_of_several() -> None:
    image = cluster("1")
    register(image, 2, directories=[directory(2, 1), directory(2, 2)])
    register(image, 3, directories=[])
    found = [default_directory(image, broker_id) for broker_id in (1, 2, 3, 4)]
    assert found == [directory(1), UNASSIGNED, MIGRATING, UNASSIGNED]


def test_before_records_could_name_directories_none_is_named() -> None:
    assert default_directory(cluster("1", metadata_version=16), 1) == MIGRATING
    assert default_directory(cluster("1", metadata_version=17), 1) == directory(1)


def test_ids_that_stand_for_no_directory_are_kafkas() -> None:
    """They are the uuids 0, 1 and 2 (`DirectoryId`)."""
    texts = [f"{'A' * 21}{last}" for last in "AQg"]
    assert [uuid_to_text(each) for each in (MIGRATING, UNASSIGNED, LOST)] == texts


def test_a_broker_chooses_among_its_own_directories_and_leaves_others_theirs() -> None:
    image = cluster("2")
    first, second = directory(1, 1), directory(1, 2)
    register(image, 1, directories=[first, second])
    own = Placement(1, [first, second])
    own.prefer("t", 3, second)
    placer = StripedReplicaPlacer(first_of, own)
    assert [placer.directory(image, 1, "t", index) for index in range(4)] == [first, second, first, second]
    assert placer.directory(image, 2, "t", 0) == directory(2)
    assert StripedReplicaPlacer(first_of).directory(image, 1, "t", 0) == UNASSIGNED
