"""Topologies compared with the topics that exist. Beside Kafka: tests/compare."""

from __future__ import annotations

import pytest

from coordinator.group.streams.states import StatusCode
from coordinator.group.streams.topology import (
    MOST_NAMED,
    ConfiguredTopology,
    StreamsTopology,
    configure,
    topology_value,
)
from protocol.errors import Error, KafkaError
from protocol.messages.groups_streams import Subtopology, TopicInfo
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.streams.members import subtopology, topology


def configured(topics: FakeTopics, *subtopologies: Subtopology) -> ConfiguredTopology:
    return configure(StreamsTopology(topology_value(topology(*subtopologies))), topics)


def counts(found: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.num_partitions for name, topic in found.to_create.items()}


def problem(found: ConfiguredTopology) -> tuple[int, str]:
    assert found.problem is not None
    return found.problem.status_code, found.problem.status_detail


def refused(topics: FakeTopics, *subtopologies: Subtopology) -> Error:
    with pytest.raises(KafkaError) as error:
        configured(topics, *subtopologies)
    return error.value.error


WRITES = subtopology("w", "t2", sinks=["a", "b"])


def test_a_topology_is_ready_if_all_its_topics_exist() -> None:
    found = configured(FakeTopics(t=3, c=3), subtopology("0", "t", changelogs=["c"]))
    assert found.is_ready
    assert found.subtopologies["0"].task_count == 3
    assert found.subtopologies["0"].is_stateful


def test_internal_topics_are_made_as_they_were_sent() -> None:
    kept = TopicInfo(name="c", replication_factor=2)
    found = configured(
        FakeTopics(t=3), Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=[kept])
    )
    assert (found.to_create["c"].num_partitions, found.to_create["c"].replication_factor) == (3, 2)
    assert problem(found) == (StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: c")


@pytest.mark.limit("coordinator.group.streams.topology.MOST_NAMED")
def test_the_first_of_many_missing_sources_are_named() -> None:
    names = [f"t{index}" for index in range(MOST_NAMED + 2)]
    code, detail = problem(configured(FakeTopics(), subtopology("0", *reversed(names))))
    assert code == StatusCode.MISSING_SOURCE_TOPICS
    assert detail == "Source topics t0, t1, t2 and 2 additional topics are missing."


def test_a_repartition_topic_has_as_many_partitions_as_its_writers_largest_input() -> None:
    topics = FakeTopics(t2=2, t5=5)
    found = configured(
        topics, subtopology("0", "t2", "t5", sinks=["a"]), subtopology("1", repartitions={"a": 0})
    )
    assert counts(found) == {"a": 5}


def test_partitions_are_worked_out_along_a_chain_whatever_the_order() -> None:
    found = configured(
        FakeTopics(t=4),
        subtopology("0", repartitions={"b": 0}, changelogs=["c"]),
        subtopology("1", repartitions={"a": 0}, sinks=["b"]),
        subtopology("2", "t", sinks=["a"]),
    )
    assert counts(found) == {"a": 4, "b": 4, "c": 4}


def test_unwritten_and_circular_topics_make_no_topology() -> None:
    assert refused(FakeTopics(), subtopology("0", repartitions={"a": 0})) is Error.STREAMS_INVALID_TOPOLOGY
    circle = (
        subtopology("0", repartitions={"a": 0}, sinks=["b"]),
        subtopology("1", repartitions={"b": 0}, sinks=["a"]),
    )
    assert refused(FakeTopics(), *circle) is Error.STREAMS_INVALID_TOPOLOGY
    assert refused(FakeTopics(t=1), subtopology("0", "t"), subtopology("1")) is Error.STREAMS_INVALID_TOPOLOGY


def test_topics_that_are_read_together_get_the_number_of_the_source() -> None:
    reads = subtopology("0", "t3", repartitions={"a": 0}, copartitioned=[([0], [0])])
    assert counts(configured(FakeTopics(t2=2, t3=3), WRITES, reads)) == {"a": 3}


def test_topics_that_are_read_together_get_the_number_of_the_fixed_one() -> None:
    reads = subtopology("0", repartitions={"a": 0, "b": 7}, copartitioned=[([], [0, 1])])
    assert counts(configured(FakeTopics(t2=2), WRITES, reads)) == {"a": 7, "b": 7}


@pytest.mark.parametrize(
    ("reads", "detail"),
    [
        (
            subtopology("0", "t3", "t2", copartitioned=[([0, 1], [])]),
            "Following topics do not have the same number of partitions: [{t2=2, t3=3}]",
        ),
        (
            subtopology("0", repartitions={"a": 5, "b": 7}, copartitioned=[([], [0, 1])]),
            "Following topics do not have the same number of partitions: [{a=5, b=7}]",
        ),
        (
            subtopology("0", "t3", repartitions={"a": 5}, copartitioned=[([0], [0])]),
            "Number of partitions [5] of repartition topic [a] doesn't match number of partitions [3] of the source "
            "topic.",
        ),
        (
            subtopology("0", "t3", changelogs=["t2"]),
            "Existing topic t2 has different number of partitions: expected 3, found 2",
        ),
    ],
)
def test_topics_that_do_not_fit_are_reported(reads: Subtopology, detail: str) -> None:
    found = configured(FakeTopics(t2=2, t3=3), WRITES, reads)
    assert problem(found) == (StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    assert not found.subtopologies


@pytest.mark.parametrize(
    "reads",
    [
        subtopology("0", "t", copartitioned=[([1], [])]),
        subtopology("0", "t", copartitioned=[([-1], [])]),
        subtopology("0", "t", changelogs=["c", "c"]),
        subtopology("0", "t", repartitions={"a": -5}),
    ],
)
def test_numbers_that_make_no_sense_are_an_error_of_the_server_as_in_kafka(reads: Subtopology) -> None:
    assert refused(FakeTopics(t=2), reads) is Error.UNKNOWN_SERVER_ERROR


def test_a_topology_is_the_same_whatever_the_order_of_its_subtopologies() -> None:
    def made(*subtopologies: Subtopology, epoch: int = 0) -> StreamsTopology:
        return StreamsTopology(topology_value(topology(*subtopologies, epoch=epoch)))

    one, two = subtopology("0", "t", "u"), subtopology("1", "v")
    assert made(one, two).is_same(made(two, one))
    assert not made(one, two).is_same(made(one))
    assert not made(one).is_same(made(one, epoch=1))
    assert not made(one).is_same(made(subtopology("0", "u", "t")))
