"""A controller of the quorum says what it is (KIP-919). The levels of features can be raised by it.

Source: `ClusterControlManager.registerController`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.broker_registration import endpoints
from broker.controller.controller_result import ControllerResult
from broker.controller.pause import Pause
from broker.controller.record_versions import METADATA_VERSION
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from protocol.messages.broker_to_controller import ControllerRegistrationRequest

CONTROLLERS_SINCE = 15  # metadata.version 3.7-IV0


async def register_controller(
    image: ClusterImage, request: ControllerRegistrationRequest
) -> ControllerResult[KafkaError | None]:
    """What a controller said before counts no more. It needn't be a voter; nothing of it is held against anything.

    Raises KafkaError: UNSUPPORTED_VERSION where the metadata.version is too old; by a listener as a broker's.
    """
    if image.features.get(METADATA_VERSION, 0) < CONTROLLERS_SINCE:
        raise KafkaError(
            Error.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    pause = Pause()
    listeners = await endpoints(request.listeners, records.ControllerEndpoint, pause)
    features = []
    for each in request.features:
        if pause.is_due():
            await turn()
        features.append(
            records.ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
        )
    record = records.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=listeners,
        features=features,
    )
    return ControllerResult([record], lambda error: error)
