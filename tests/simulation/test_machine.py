"""A node learns about the world from its own machine, not from the one on which the test runs."""

from __future__ import annotations

import socket

import pytest

from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.cluster_admin import DescribeLogDirsRequest
from tests.compare.plain import message_from
from tests.node.limited_hosts import OVERRIDES, RATE, admits
from tests.simulation.machine import Machine, World
from tests.simulation.virtual_disk import VOLUME_BYTES
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.wire_client import WireClient


async def asked(world: World, machine: Machine) -> WireClient:
    """Return a client of the machine, which is up."""
    world.network.is_calm = True
    assert await machine.start()
    return WireClient(world.network, "admin", machine.port, world.luck("admin"))


def test_a_log_directory_is_as_large_as_the_disk_of_its_machine() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = Machine(world, "one", 9092)
        client = await asked(world, machine)
        (told,) = (await client.ask(DescribeLogDirsRequest(topics=None), 4)).results
        assert (Error(told.error_code), told.log_dir) == (Error.NONE, machine.folder)
        assert (told.total_bytes, told.usable_bytes) == (
            VOLUME_BYTES,
            VOLUME_BYTES - machine.disk.used_bytes,
        )
        assert machine.disk.used_bytes > 0
        await machine.stop()

    run(main)


def test_hosts_have_the_addresses_of_their_world(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: looked_up.append(args))

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        world.names.table |= {"limited.example": "10.0.0.8", "throttled.example": "10.0.0.9"}
        machine = Machine(world, "one", 9092, [f"{OVERRIDES}=limited.example:2"])
        client = await asked(world, machine)
        assert machine.server is not None
        assert admits(machine.server.connection_limits, "10.0.0.8") == 2
        hosts = ("throttled.example", "unknown.example", "10.0.0.10", "[::1]")
        ops = [{"key": RATE, "value": 5.0, "remove": False}]
        entries = [{"entity": [{"entity_type": "ip", "entity_name": host}], "ops": ops} for host in hosts]
        request = message_from(APIS[49].request, {"entries": entries, "validate_only": False}, 1)
        answer = await client.ask(request, 1)
        assert [Error(entry.error_code) for entry in answer.entries] == [
            Error.NONE,
            Error.INVALID_REQUEST,
            Error.NONE,
            Error.NONE,
        ]
        assert machine.server.quotas.connections.limits == {"10.0.0.9": 5, "10.0.0.10": 5, "::1": 5}
        await machine.stop()

    run(main)
    assert looked_up == []
