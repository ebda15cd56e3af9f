"""UpdateFeatures (57), versions 0 to 2 (KIP-584).

v1: validating only, and types of downgrade in place of allowing one (which Kafka doesn't look at any more); v2: no
results by feature. Conscious gap: `kraft.version` stays as it is, since there are no voters to be moved into the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.feature_decisions import FeatureUpdate, updated
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    ]
    static = server.config.static.get("min.insync.replicas")
    try:
        decided = updated(
            server.metadata.image,
            updates,
            kraft_version=server.metadata.quorum.kraft_version,
            static_min_insync_replicas=1 if static is None else int(static.value),
        )
    except KafkaError as error:
        message = (
            f"The update failed for all features since the following feature had an error: {error.message}"
        )
        return UpdateFeaturesResponse(error_code=error.error, error_message=message)
    if not request.validate_only:
        failure = server.metadata.try_append(decided)
        if failure is not None:
            return UpdateFeaturesResponse(error_code=failure.error, error_message=failure.message)
    response = UpdateFeaturesResponse(error_message=None)
    if context.api_version <= 1:
        response.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=Error.NONE.name)
            for update in updates
        ]
    return response
