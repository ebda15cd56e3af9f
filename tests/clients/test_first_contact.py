"""First contact: what each client does first on a fresh broker, and on a fresh cluster, meets no error that it would
have to meet by waiting; after all brokers were killed and started as well, and with several clients at the same moment.

No stopwatch: what the log of requests says is what counts (`first_contact.answers`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import barnabas
from tests.clients.first_contact import (
    with_aiokafka,
    with_confluent,
    with_java,
    with_kafka_python,
    with_requests,
)
from tests.clients.first_contact.answers import answered, met_by_waiting

FirstContact = Callable[[str, str], None]
"""Does all that a client does first, given the address, and a name that nobody else has."""

CLIENTS: dict[str, FirstContact] = {
    "requests": with_requests.first_contact,
    "confluent": with_confluent.first_contact,
    "kafka_python": with_kafka_python.first_contact,
    "aiokafka": with_aiokafka.first_contact,
}

ASKED = {
    "Metadata",
    "Produce",
    "FindCoordinator",
    "JoinGroup",
    "InitProducerId",
    "CreateTopics",
    "DeleteTopics",
}

pytestmark = pytest.mark.xdist_group("first_contact")


@pytest.fixture(scope="module")
def java(needs_kafka: object) -> Iterator[FirstContact]:
    """One JVM for all that Java does first."""
    with with_java.running() as first_contact:
        yield first_contact


def at_once(bootstrap: str, clients: dict[str, FirstContact]) -> None:
    """All begin at the same moment."""
    begin = threading.Barrier(len(clients))

    def go(name: str, first_contact: FirstContact) -> None:
        begin.wait(60)
        first_contact(bootstrap, name)

    with ThreadPoolExecutor(len(clients)) as pool:
        for each in [pool.submit(go, *client) for client in clients.items()]:
            each.result()


def two(first_contact: FirstContact, when: str) -> dict[str, FirstContact]:
    return {f"{when}-{each}": first_contact for each in ("one", "other")}


def contact_with_a_broker(first_contact: FirstContact) -> str:
    """The log."""
    with barnabas.Broker(log_level="debug") as broker:
        at_once(broker.bootstrap, two(first_contact, "fresh"))
        broker.kill()
        broker.start()
        at_once(broker.bootstrap, two(first_contact, "restarted"))
        return broker.log


@pytest.mark.parametrize("client", CLIENTS)
def test_on_a_fresh_and_on_a_killed_broker_no_answer_delays_another(client: str) -> None:
    log = contact_with_a_broker(CLIENTS[client])
    assert answered(log) >= ASKED
    assert met_by_waiting(log) == {}


def test_on_a_fresh_and_on_a_killed_broker_java_waits_for_no_other_answer(
    java: FirstContact,
) -> None:
    log = contact_with_a_broker(java)
    assert answered(log) >= ASKED | {"ShareFetch", "StreamsGroupHeartbeat"}
    assert met_by_waiting(log) == {}


def test_in_a_fresh_and_in_a_killed_cluster_no_answer_delays_another(
    java: FirstContact,
) -> None:
    clients = {**CLIENTS, "java": java}
    with barnabas.Cluster(log_level="debug") as cluster:
        at_once(cluster.bootstrap, {f"fresh-{name}": each for name, each in clients.items()})
        for broker in cluster.brokers:
            broker.kill()
        for broker in cluster.brokers:
            broker.begin_to_start()
        for broker in cluster.brokers:
            broker.wait_until_started()
        cluster.wait_until_in_sync(60)  # until then acks=all is refused with NOT_ENOUGH_REPLICAS, as by Kafka
        at_once(cluster.bootstrap, {f"restarted-{name}": each for name, each in clients.items()})
        log = cluster.log
    assert answered(log) >= ASKED | {"ShareFetch", "StreamsGroupHeartbeat"}
    assert met_by_waiting(log) == {}


LINE = "2026-11-28 09:09:00,046 DEBUG barnabas.request: 127.0.0.1:43140 client {}: {}, 0.20 ms"


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("c: JoinGroup v9 group_id=g: NOT_COORDINATOR (1)", {"JoinGroup NOT_COORDINATOR"}),
        ("c: JoinGroup v9 group_id=g: MEMBER_ID_REQUIRED (1)", set()),
        ("c: Metadata v12 topics=[{name=t}]: LEADER_NOT_AVAILABLE (1)", set()),
        (
            "c: Metadata v12 topics=[{name=t}]: UNKNOWN_TOPIC_OR_PARTITION (1)",
            {"Metadata UNKNOWN_TOPIC_OR_PARTITION"},
        ),
        (
            "c: Produce v9 acks=-1: NOT_ENOUGH_REPLICAS (2), NOT_LEADER_OR_FOLLOWER (1)",
            {"Produce NOT_ENOUGH_REPLICAS", "Produce NOT_LEADER_OR_FOLLOWER"},
        ),
        ("broker-1-fetcher-0: Fetch v18 topics=[]: UNKNOWN_TOPIC_ID (1)", set()),
    ],
)
def test_an_error_is_found_in_the_line_of_its_answer(asked: str, found: set[str]) -> None:
    client, _, rest = asked.partition(": ")
    assert met_by_waiting(LINE.format(client, rest)).keys() == found


def test_a_request_that_has_waited_in_vain_is_found_whatever_it_was_answered() -> None:
    waited = LINE.replace("{}: {}, 0.20 ms", "c: JoinGroup v9 waited{}, 3000.12 ms")
    assert met_by_waiting(waited.format(" in vain")).keys() == {"JoinGroup in vain"}
    assert met_by_waiting(waited.format("")) == {}
