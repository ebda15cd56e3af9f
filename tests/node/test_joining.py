"""A broker that should join a cluster, and can't."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.controller.broker_records import BrokerIncarnation
from broker.peers.joined_cluster import JoinedCluster
from tests.node.controllers import NODE, controller
from tests.support.ports import free_ports
from tests.support.whole_server import started

TIMEOUT = "initial.broker.registration.timeout.ms="
JOINS = (
    "process.roles=broker",
    "node.id=1",
    "controller.listener.names=CONTROLLER",
    f"{TIMEOUT}100",
)
NOBODY = "localhost:1"
"""An address at which there is no controller."""


async def refusal(folder: Path, controller: str, port: int = 0) -> str:
    """Return the message of a start that fails."""
    with pytest.raises(StartError) as refused:
        await started(folder, *JOINS, f"controller.quorum.bootstrap.servers={controller}", port=port)
    text = str(refused.value)
    assert "\n" not in text
    return text


async def test_the_mark_of_a_clean_stop_stays_where_no_controller_is_found(tmp_path: Path) -> None:
    """The mark keeps the epoch of the run that wrote it, which the next registration tells the controller."""
    node = await started(tmp_path)
    await node.stop()
    mark = tmp_path / ".kafka_cleanshutdown"
    before = mark.read_bytes()
    for _ in range(2):
        await refusal(tmp_path, NOBODY)
        assert mark.read_bytes() == before
    await started(tmp_path)
    assert not mark.exists()


async def test_a_start_that_is_given_up_says_which_controller_it_didnt_reach(tmp_path: Path) -> None:
    node = await started(tmp_path)
    await node.stop()
    told = await refusal(tmp_path, NOBODY)
    start = (
        "no controller has registered this broker within 100 ms (initial.broker.registration.timeout.ms): "
    )
    assert told.startswith(f"{start}{NOBODY}: ")


async def test_clients_are_refused_while_a_broker_waits_for_its_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's brokers refuse him too: other brokers would serve him meanwhile."""
    [port] = free_ports(1)
    join = JoinedCluster.join

    async def probed(joined: JoinedCluster) -> BrokerIncarnation:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        return await join(joined)

    monkeypatch.setattr(JoinedCluster, "join", probed)
    await refusal(tmp_path, NOBODY, port)


async def test_a_torn_end_of_the_fetched_metadata_is_no_damage_after_a_clean_stop(tmp_path: Path) -> None:
    """A start that failed may have left it."""
    node = await started(tmp_path)
    await node.stop()
    (segment,) = (tmp_path / "__cluster_metadata-0").glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:100])
    await refusal(tmp_path, NOBODY)
    assert segment.read_bytes() == whole


async def test_the_controller_has_its_own_id(tmp_path: Path) -> None:
    """The broker finds out when it knows the controllers only by their addresses."""
    async with controller(tmp_path / "controller") as other:
        folder = tmp_path / "broker"
        folder.mkdir()
        (folder / "meta.properties").write_text(
            f"version=1\ncluster.id={other.cluster_id}\nnode.id={NODE}\ndirectory.id={'A' * 21}Q\n"
        )
        joins = [each for each in JOINS if not each.startswith(("node.id=", TIMEOUT))]
        with pytest.raises(StartError) as refused:
            await started(
                folder,
                *joins,
                f"node.id={NODE}",
                f"{TIMEOUT}60000",  # the refusal comes sooner
                f"controller.quorum.bootstrap.servers={other.endpoints.bootstrap}",
            )
    assert str(refused.value) == (
        f"the cluster can't be joined: the controller has the same node.id={NODE} as this broker, "
        "which needs another one"
    )
