"""What a broker is made of once a start has it all."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.registration import BrokerIncarnation
    from broker.controller.replica_placer import Placement
    from broker.disks.log_dirs import LogDirs
    from broker.environment.environment import Environment
    from broker.fault_handler import FaultHandler
    from broker.network.connection_limits import ConnectionLimits
    from broker.network.endpoints import Endpoints
    from broker.peers.joined_cluster import JoinedCluster


class Opened(NamedTuple):
    """What a node is made of: bound, locked, replayed and registered."""

    config: BrokerConfig
    environment: Environment
    faults: FaultHandler
    connection_limits: ConnectionLimits
    endpoints: Endpoints
    log_dirs: LogDirs
    metadata: MetadataLog
    placement: Placement
    incarnation: BrokerIncarnation
    folders: Mapping[tuple[bytes, int], bytes]
    """The directory id of each replica that has a folder, by topic id and number."""
    controller_endpoints: Endpoints
    """Those at which other nodes are controlled; none where there can't be any."""
    joined: JoinedCluster | None = None
    """None where this node is the cluster's controller itself."""
