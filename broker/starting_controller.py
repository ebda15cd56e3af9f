"""How a node starts that is a controller and no broker: bind the ports, lock the folders, replay the metadata log, and
listen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.disks.opening import begin_run, open_log_dirs
from broker.fault_handler import FaultHandler
from broker.network.endpoints import bind_all
from broker.opening import FOLDER_ERRORS, connection_limits, lead, read_metadata, settled
from broker.process.descriptors import shares
from broker.process.start_error import StartError
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
        environment.files.limit_open_files(descriptors.files)
        environment.files.limit_retired_files(descriptors.retired_files)
        log_dirs = open_log_dirs(config, environment.files, environment.background, environment.chance.uuid)
        metadata = read_metadata(config, environment, log_dirs, only_voter=True)
        begin_run(log_dirs)
        lead(config, environment, metadata, log_dirs=log_dirs, endpoints=endpoints)
        node = ControllerNode(
            OpenedController(config, environment, faults, limits, endpoints, log_dirs, metadata)
        )
        await settled(environment, metadata)
        try:
            await node.serve()
        except OSError as error:
            raise StartError(f"the ports are bound, but can't be listened on: {error}") from error
    except BaseException as error:
        if node is not None:
            node.fall_silent()
        await environment.background.finish()
        faults.forget()
        endpoints.close()
        if log_dirs is not None:
            log_dirs.close(clean=False)
        if isinstance(error, FOLDER_ERRORS):
            raise StartError(f"the data can't be opened: {error}") from error
        raise
    return node
