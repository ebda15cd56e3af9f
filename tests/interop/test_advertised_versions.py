"""What ApiVersions lists: of a broker of Kafka's and one of ours, in one cluster, whoever controls it. A broker lists
of what it forwards only what its controller serves as well, once it has forwarded anything and so knows what
that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import Error
from protocol.messages.metadata import ApiVersionsRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.compare.plain import plain
from tests.interop.joining import PATIENCE_S, joining, kafka_that_is_joined, settings_to_join
from tests.interop.test_controlled_kafka import KAFKAS, Cluster
from tests.support import apache_kafka, waiting
from tests.support.apache_kafka import BEFORE
from tests.support.ports import free_ports
from tests.support.requirements import need_apache_kafka
from tests.support.wire import Client

UNREGISTER_CONTROLLER = 94
NEWEST = 5


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    need_apache_kafka()
    with ExitStack() as stack:
        yield stack


def two_brokers(controlled_by: str, folder: Path, stack: ExitStack) -> tuple[str, str]:
    """The addresses of a broker of Kafka's newest release and of one of ours."""
    if controlled_by == "barnabas":
        cluster = Cluster(folder, stack)
        return cluster.kafkas[KAFKAS[0]].bootstrap, cluster.ours.bootstrap
    version = BEFORE if controlled_by == BEFORE else None
    first = stack.enter_context(kafka_that_is_joined(folder / "first", version=version))
    ours = stack.enter_context(joining(folder, first))
    if version is None:
        return first.bootstrap, ours.bootstrap
    [port] = free_ports(1)
    settings = {**settings_to_join(first), "node.id": 3, "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    newer = stack.enter_context(apache_kafka.node(folder / "newer", settings))
    return newer.bootstrap, ours.bootstrap


def listed(bootstrap: str, version: int) -> dict[str, Any]:
    """The answer, independent of its order."""
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
    with Client.of(bootstrap) as client:
        told = plain(client.ask(request, version), version)
    told["api_keys"].sort(key=lambda each: each["api_key"])
    for name in ("supported_features", "finalized_features"):
        told.get(name, []).sort(key=lambda each: each["name"])
    return told


def made(name: str, bootstrap: str) -> bool:
    """A topic, by way of this broker."""
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    with Client.of(bootstrap) as client:
        [told] = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 7).topics
    return told.error_code == Error.NONE


@pytest.mark.one_run_in(2)
@pytest.mark.parametrize("controlled_by", ["4.4", BEFORE, "barnabas"])
def test_our_broker_lists_the_versions_that_kafkas_lists(
    controlled_by: str, tmp_path: Path, stack: ExitStack
) -> None:
    theirs, ours = two_brokers(controlled_by, tmp_path, stack)

    def have_heard() -> bool:
        """Of the controller's APIs."""
        both = (listed(ours, NEWEST), listed(theirs, NEWEST))
        serves = [UNREGISTER_CONTROLLER in {each["api_key"] for each in told["api_keys"]} for told in both]
        return serves == [controlled_by != BEFORE] * 2

    def differing() -> list[tuple[dict[str, Any], dict[str, Any]]]:
        pairs = [(listed(ours, version), listed(theirs, version)) for version in range(NEWEST + 1)]
        return [pair for pair in pairs if pair[0] != pair[1]]

    for bootstrap in (theirs, ours):
        assert made(f"by-{bootstrap.partition(':')[2]}", bootstrap)
    waiting.until(have_heard, "both have heard what the controller serves", PATIENCE_S)
    try:  # each learns of the metadata in its own time
        waiting.until(lambda: not differing(), "both list the same", PATIENCE_S)
    except AssertionError:
        mine, kafkas = differing()[0]
        assert mine == kafkas
        raise
