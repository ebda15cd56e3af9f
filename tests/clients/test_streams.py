"""Kafka Streams with `exactly_once_v2` and `group.protocol=streams` (KIP-1071), killed.

`make streams` takes all flights and kills more often, by the classic protocol; with `ARGS=--streams-group` by this one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.clients.confluent import PATIENCE_S
from tests.clients.flights import data, streams
from tests.clients.java_programs import java_classes
from tests.clients.transactions import running_server
from tests.support.waiting import until


@pytest.mark.usefixtures("needs_kafka")
def test_kafka_streams_counts_every_word_once_though_it_and_the_broker_are_killed(tmp_path: Path) -> None:
    flights = data.sample()

    # Once more where no kill struck amid a transaction, which puts nothing to the test.
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with running_server(folder / "server") as server:
            settings = streams.STREAMS_PROTOCOL_SETTINGS
            result = streams.run(server, java_classes(), folder, flights, kills=2, seed=1, settings=settings)
            assert result.wrong == []
            assert result.kills == ["the application", "the broker", "the application"]
            assert result.outputs == 2 * result.words == 6 * len(flights)
            assert_internal_topics(server.bootstrap)
        if result.aborted_outputs:
            return
    pytest.fail("no kill struck amid a transaction, three times over")


def assert_internal_topics(bootstrap: str) -> None:
    until(lambda: streams.purged(bootstrap) > 0, "worked on, and then deleted")
    assert policies(bootstrap) == {
        "totals-counts-changelog": "compact",
        "totals-sums-changelog": "compact",
        "totals-words-repartition": "delete",
    }


def policies(bootstrap: str) -> dict[str, str]:
    """The cleanup policy of each topic that the application made for itself."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    topics = [name for name in admin.list_topics(timeout=PATIENCE_S).topics if name.startswith("totals-")]
    found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic) for topic in topics])
    return {each.name: config.result(PATIENCE_S)["cleanup.policy"].value for each, config in found.items()}


def test_kills_of_the_broker_lie_evenly_between_those_of_the_application() -> None:
    assert streams.killing_the_broker(9, 1) == {5}
    assert streams.killing_the_broker(3, 3) == {1, 3, 5}
    assert streams.killing_the_broker(2, 0) == set()
    assert streams.killing_the_broker(0, 2) == {0, 1}


def test_a_lost_word_a_doubled_one_and_a_wrong_sum_are_found() -> None:
    expected = {"lost": [5, 7], "doubled": [5, 7], "summed": [5, 7], "right": [5, 7]}
    counts = {"lost": [1], "doubled": [1, 2, 2], "summed": [1, 2], "right": [1, 2], "new": [1]}
    sums = {"lost": [5, 12], "doubled": [5, 12], "summed": [5, 13], "right": [5, 12]}

    assert streams.differences(expected, counts, sums) == [
        "new, counted though no flight has it",
        "lost: counted up to 1 of 2, 0 counts doubled",
        "doubled: counted up to 2 of 2, 1 counts doubled",
        "summed: 2 of 2 summed to 13, not to 12",
    ]
