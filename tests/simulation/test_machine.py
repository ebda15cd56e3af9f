"""What a node is told of the world is told by its machine, and not by the one that the test runs on."""

from __future__ import annotations

from protocol.errors import Error
from protocol.messages.cluster_admin import DescribeLogDirsRequest
from tests.simulation.machine import Machine, World
from tests.simulation.virtual_disk import VOLUME_BYTES
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.wire_client import WireClient


async def asked(world: World, machine: Machine) -> WireClient:
    """A client of the machine, which is up."""
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
