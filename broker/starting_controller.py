"""How a node starts that is a controller and no broker: bind the ports, lock the folders, replay the metadata log, and
listen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.disks.opening import begin_run
from broker.fault_handler import FaultHandler
from broker.network.endpoints import bind_all
from broker.opening import (
    connection_limits,
    lead,
    let_go,
    listened,
    open_directories,
    read_metadata,
    settled,
)
from broker.process.descriptors import shares
from broker.quorum.controller_node import ControllerNode, OpenedController

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment


async def start_controller(config: BrokerConfig, environment: Environment) -> ControllerNode:
    """Returns when brokers can connect. Raises StartError with one line that says what is wrong and where."""
    backlog = config.get_int("socket.listen.backlog.size")
    descriptors = shares(backlog * len(config.controller_listeners), len(config.log_dirs))
    limits = connection_limits(config, environment, descriptors.connections)
    endpoints = bind_all(config.controller_listeners, environment.network, backlog)
    faults = FaultHandler(environment.scheduler)
    log_dirs: LogDirs | None = None
    node: ControllerNode | None = None
    try:
        log_dirs = open_directories(config, environment, descriptors)
        metadata = read_metadata(config, environment, log_dirs, only_voter=True)
        begin_run(log_dirs)
        lead(config, environment, metadata, log_dirs=log_dirs, endpoints=endpoints)
        node = ControllerNode(
            OpenedController(config, environment, faults, limits, endpoints, log_dirs, metadata)
        )
        await settled(environment, metadata)
        await listened(node.serve())
    except BaseException as error:
        if node is not None:
            node.fall_silent()
        await let_go(error, environment, faults, [endpoints], log_dirs)
        raise
    return node
