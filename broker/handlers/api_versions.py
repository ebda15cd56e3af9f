"""ApiVersions (18), versions 0 to 5.

v3: flexible body with features (KIP-584) and the client's software (KIP-511), the answer's header stays version 0;
v4: also lists supported features whose lowest level is 0 (KIP-1022); v5: a client says which node of which cluster it
means, and the answer tells it to bootstrap again if this is another one (KIP-1242). The answer to an unknown version
is in version 0 and has the range of known ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.controller.metadata_versions import FEATURES, KRAFT_VERSION, KRAFT_VERSION_RANGE
from protocol.apis import API_VERSIONS_KEY, APIS
from protocol.errors import Error
from protocol.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext
    from broker.peers.forwarding import Forwarding

NO_NODE = -1
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    node: NodePorts,
    context: RequestContext,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse:
    version = context.api_version
    if version >= 3:
        name, software_version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(software_version)):
            return ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
        if (request.cluster_id is None) != (request.node_id == NO_NODE):
            return ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
        if _is_for_another(node, context, request):
            return ApiVersionsResponse(error_code=Error.REBOOTSTRAP_REQUIRED)
        context.connection.client_software = (name, software_version)
    finalized = dict(node.metadata.image.features)
    kraft_version = (
        node.metadata.quorum.kraft_version
    )  # by the quorum's records (Kafka: `KRaftMetadataCache`)
    if kraft_version:
        finalized[KRAFT_VERSION] = kraft_version
    supported = {**FEATURES, KRAFT_VERSION: KRAFT_VERSION_RANGE}
    return ApiVersionsResponse(
        api_keys=served_versions(node.handlers, node.forwarding),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported.items()
            if version >= 4 or low > 0
        ],
        finalized_features_epoch=node.metadata.last_applied_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized.items()
        ],
    )


def _is_for_another(node: NodePorts, context: RequestContext, request: ApiVersionsRequest) -> bool:
    """True if the client means another broker, or a broker of another cluster. A controller doesn't check."""
    if request.cluster_id is None or context.listener_name in node.config.get_list(
        "controller.listener.names"
    ):
        return False
    return (request.cluster_id, request.node_id) != (node.cluster_id, node.node_id)


def served_versions(handlers: Iterable[int], forwarding: Forwarding | None) -> list[ApiVersion]:
    """The served APIs and versions, by key: APIs that have a handler and, if forwarded, that the controller serves."""
    served = []
    for key in sorted(handlers):
        versions: tuple[int, int] | None = (APIS[key].min_version, APIS[key].max_version)
        if forwarding is not None and versions is not None:
            versions = forwarding.served(key, *versions)
        if versions is not None:
            served.append(ApiVersion(api_key=key, min_version=versions[0], max_version=versions[1]))
    return served


def unsupported_version() -> ApiVersionsResponse:
    """The answer to an unknown version; it is encoded in version 0."""
    api = APIS[API_VERSIONS_KEY]
    return ApiVersionsResponse(
        error_code=Error.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersion(api_key=API_VERSIONS_KEY, min_version=api.min_version, max_version=api.max_version)
        ],
    )
