"""A node has everything that handlers use of it, with the types of `broker.handlers.node_ports`."""

from __future__ import annotations

from broker.handlers import CONTROLLER_HANDLERS, HANDLERS, node_ports
from broker.server import Server
from tests.support.ports_of import ports_of


async def test_a_node_has_each_port_that_a_handler_uses(node: Server) -> None:
    used = ports_of(HANDLERS.values())
    assert {
        f"{handler}: {port}" for handler, each in used.items() for port in each if not hasattr(node, port)
    } == set()


def test_each_port_is_used() -> None:
    used = set().union(
        *ports_of(HANDLERS.values()).values(), *ports_of(CONTROLLER_HANDLERS.values()).values()
    )
    told = {name for name in dir(node_ports.BrokerPorts) if not name.startswith("_")}
    assert used == told
