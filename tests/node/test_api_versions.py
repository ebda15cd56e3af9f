"""What a node tells every client about features."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.handlers import api_versions
from protocol.errors import Error
from protocol.messages.metadata import ApiVersionsRequest
from tests.support.ports import free_ports
from tests.support.whole_server import handled, started

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"


@pytest.mark.parametrize("is_named", [False, True])
async def test_kraft_version_is_finalized_where_the_voters_stand_in_the_log(
    tmp_path: Path, is_named: bool
) -> None:
    """Kafka's tools ask any of the nodes, and each has to answer the same (Kafka: `KRaftMetadataCache.features`)."""
    [port] = free_ports(1)
    named = [f"controller.quorum.voters=1@127.0.0.1:{port}"] if is_named else []
    node = await started(
        tmp_path,
        "node.id=1",
        f"listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names=CONTROLLER",
        *named,
    )
    context = SimpleNamespace(api_version=4, connection=SimpleNamespace())
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = handled(node, api_versions, context, request)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert METADATA_VERSION in levels
    assert levels.get(KRAFT_VERSION) == (None if is_named else 1)


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
@pytest.mark.parametrize(
    ("cluster", "node_id", "expected"),
    [
        (None, -1, Error.NONE),
        ("own", 1, Error.NONE),
        ("own", 2, Error.REBOOTSTRAP_REQUIRED),
        ("another", 1, Error.REBOOTSTRAP_REQUIRED),
        ("", 1, Error.REBOOTSTRAP_REQUIRED),
        ("own", -1, Error.INVALID_REQUEST),
        (None, 1, Error.INVALID_REQUEST),
        (None, -2, Error.INVALID_REQUEST),
    ],
)
async def test_a_client_that_means_another_node_has_to_bootstrap_again(
    tmp_path: Path, listener: str, cluster: str | None, node_id: int, expected: Error
) -> None:
    """See KIP-1242. A controller never answers REBOOTSTRAP_REQUIRED: nodes ask it, and are sure of it."""
    node = await started(tmp_path, "node.id=1")
    connection = SimpleNamespace(listener=SimpleNamespace(name=listener), client_software=None)
    context = SimpleNamespace(api_version=5, connection=connection, listener_name=listener)
    answer = handled(
        node,
        api_versions,
        context,
        ApiVersionsRequest(
            client_software_name="a",
            client_software_version="1",
            cluster_id=node.cluster_id if cluster == "own" else cluster,
            node_id=node_id,
        ),
    )
    if listener == "CONTROLLER" and expected is Error.REBOOTSTRAP_REQUIRED:
        expected = Error.NONE
    assert answer.error_code == expected
    assert bool(answer.api_keys) is (expected is Error.NONE)
    assert (connection.client_software is None) is (expected is not Error.NONE)
