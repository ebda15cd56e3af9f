"""Setting limits on hosts' connections as clients do, and counting the connections that are admitted."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.controller import ControllerResult
from broker.controller.image import ClusterImage
from broker.handlers import alter_client_quotas, incremental_alter_configs
from broker.network.connection_limits import ConnectionLimits
from broker.network.endpoints import Addresses, HostNames
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.metadata_records import ClientQuotaRecord, EntityData
from protocol.waiting import Later
from tests.compare.plain import message_from
from tests.support.submitting import submit_to
from tests.support.whole_server import handled

OVERRIDES = "max.connections.per.ip.overrides"
RATE = "connection_creation_rate"
BROKER = 4


def answer_at_once(patch: pytest.MonkeyPatch, look_up: Callable[[str], str | None]) -> None:
    def of_all(self: HostNames, hosts: Any, asker: Any = None, most_names: Any = None) -> Later[Addresses]:
        found: Later[Addresses] = Later()
        found.reply({host: look_up(host) for host in dict.fromkeys(hosts)})
        return found

    patch.setattr(HostNames, "look_up", of_all)


def set_overrides(node: Server, text: str) -> Error:
    config = {"name": OVERRIDES, "config_operation": 0, "value": text}
    resource = {"resource_type": BROKER, "resource_name": "", "configs": [config]}
    asked = message_from(APIS[44].request, {"resources": [resource], "validate_only": False}, 1)
    context: Any = SimpleNamespace(api_version=1, client_id="c", principal=ANONYMOUS)
    (response,) = handled(node, incremental_alter_configs, context, asked).responses
    return Error(response.error_code)


def set_quota(
    node: Server,
    *names: str | None,
    kind: str = "ip",
    key: str = RATE,
    value: float | None = 5.0,
    only: bool = False,
) -> Error:
    entity = [{"entity_type": kind, "entity_name": name} for name in names]
    ops = [{"key": key, "value": value or 0.0, "remove": value is None}]
    fields = {"entries": [{"entity": entity, "ops": ops}], "validate_only": only}
    context: Any = SimpleNamespace(api_version=1, client_id="c", principal=ANONYMOUS)
    (entry,) = handled(node, alter_client_quotas, context, message_from(APIS[49].request, fields, 1)).entries
    return Error(entry.error_code)


def store_quota(node: Server, name: str | None, value: float, *, kind: str = "ip", key: str = RATE) -> None:
    """Write a quota as an earlier version may have: it accepted values that aren't numbers."""
    part = EntityData(entity_type=kind, entity_name=name)
    record = ClientQuotaRecord(entity=[part], key=key, value=value)

    async def decide(image: ClusterImage) -> ControllerResult[None]:
        return ControllerResult([record], lambda error: None)

    submit_to(node.controller, decide, lambda answer: None)


def admits(limits: ConnectionLimits, host: str) -> int:
    """Return how many of five connections are admitted."""
    admitted = [limits.admit(host) for _ in range(5)]
    for _ in admitted:
        limits.forget(host)
    return admitted.count(None)
