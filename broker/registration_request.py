"""What a broker says of this run of it when it registers, with a controller elsewhere or in its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.registration import PLAINTEXT, supported_features
from protocol.messages.broker_lifecycle import (
    AdvertisedListener,
    BrokerRegistrationRequest,
    SupportedFeature,
)

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
        listeners=[
            AdvertisedListener(name=name, host=host, port=port, security_protocol=PLAINTEXT)
            for name, host, port in endpoints.all_advertised()
        ],
        features=[
            SupportedFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_features().items()
        ],
        rack=config.get_string("broker.rack"),
        log_dirs=sorted(log_dirs.ids),
        previous_broker_epoch=(previous.pop() or -1) if len(previous) == 1 else -1,
    )
