"""What a broker says of this run of it when it registers, with a controller elsewhere or in its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.registration import advertised_listeners, feature_ranges
from protocol.messages.broker_to_controller import BrokerRegistrationRequest

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.disks.log_dirs import LogDirs
    from broker.network.endpoints import Endpoints


def registration_request(
    config: BrokerConfig, endpoints: Endpoints, log_dirs: LogDirs, incarnation_id: bytes
) -> BrokerRegistrationRequest:
    """`incarnation_id` tells this run from others."""
    # claimed where all logs were closed cleanly: else this broker may have lost what it had acknowledged (KIP-966)
    previous = {directory.broker_epoch for directory in log_dirs.all()}
    return BrokerRegistrationRequest(
        broker_id=config.node_id,
        cluster_id=log_dirs.cluster_id,
        incarnation_id=incarnation_id,
        listeners=advertised_listeners(endpoints.all_advertised()),
        features=feature_ranges(),
        rack=config.get_string("broker.rack"),
        log_dirs=sorted(log_dirs.ids),
        previous_broker_epoch=(previous.pop() or -1) if len(previous) == 1 else -1,
    )
