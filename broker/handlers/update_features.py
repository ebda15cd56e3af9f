"""UpdateFeatures (57), versions 0 to 2 (KIP-584).

v1: validating only, and types of downgrade in place of a flag that allows one (Kafka ignores the flag now); v2: no
results by feature. From `kraft.version` 1 on, the log records this node as the only voter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.controller.controller import ControllerResult
from broker.controller.feature_decisions import FeatureUpdate, moves_voters, updated
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: UpdateFeaturesRequest,
) -> UpdateFeaturesResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.ALTER)
    if refusal is not None:
        return _refused(refusal)
    updates = [
        FeatureUpdate(update.feature, update.max_version_level, update.upgrade_type)
        for update in request.feature_updates
    ]
    static = node.config.static.get("min.insync.replicas")

    async def decide(image: ClusterImage) -> ControllerResult[KafkaError | None]:
        try:
            decided = await updated(
                image,
                updates,
                kraft_version=node.metadata.quorum.kraft_version,
                static_min_insync_replicas=1 if static is None else int(static.value),
            )
        except KafkaError as error:
            message = f"The update failed for all features since the following feature had an error: {error.message}"
            raise KafkaError(error.error, message) from error
        if request.validate_only:
            return ControllerResult([], lambda failure: failure)
        if moves_voters(updates, node.metadata.quorum.kraft_version):
            node.metadata.move_voters()
        return ControllerResult(decided, lambda failure: failure)

    failure = await node.controller.submit(decide)
    return _updated(context, updates) if failure is None else _refused(failure)


def _updated(context: RequestContext, updates: Sequence[FeatureUpdate]) -> UpdateFeaturesResponse:
    response = UpdateFeaturesResponse(error_message=None)
    if context.api_version <= 1:
        response.results = [
            UpdatableFeatureResult(feature=update.feature, error_message=Error.NONE.name)
            for update in updates
        ]
    return response


def _refused(error: KafkaError) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.error, error_message=error.message)
