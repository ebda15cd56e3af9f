"""Client quotas (KIP-546): requests and the image become records or errors; and filters that find quotas.

Pure functions. The callers resolve host names (Kafka: `ClientQuotaControlManager`, `ClientQuotasImage`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from broker.controller.controller import check_records
from broker.controller.image import ClusterImage
from broker.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.configs import AlterEntryData, ComponentData, OpData
from protocol.waiting import Pause, turn
from protocol.wire.schema import Message

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

Entity = frozenset[tuple[str, str | None]]
"""Types with names. The name None means the default entity of the type."""

Outcomes: TypeAlias = dict[Entity, KafkaError | None]
"""Each entity's error, or None."""

# key → the largest value if it is a whole number, or None (QuotaConfig: LONG, DOUBLE, INT)
_USER_AND_CLIENT_KEYS: dict[str, int | None] = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: dict[str, int | None] = {CONNECTION_CREATION_RATE: 2**31 - 1}
_TYPE_NAMES = {2**63 - 1: "a LONG", 2**31 - 1: "an INT"}

_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_MATCH_NAMES = {
    _EXACT: "MATCH_TYPE_EXACT",
    _DEFAULT: "MATCH_TYPE_DEFAULT",
    _SPECIFIED: "MATCH_TYPE_SPECIFIED",
}


async def quotas_in_force(image: ClusterImage) -> dict[Entity, dict[str, float]]:
    """Return the quotas by entity and key."""
    found: dict[Entity, dict[str, float]] = {}
    pause = Pause()
    for record in [*image.kept.of_type(records.ClientQuotaRecord)]:
        if pause.is_due():
            await turn()
        assert isinstance(record, records.ClientQuotaRecord)
        entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
        found.setdefault(entity, {})[record.key] = record.value
    return found


async def altered(
    image: ClusterImage, entries: Sequence[AlterEntryData], is_host: Callable[[str], bool]
) -> tuple[list[Message], Outcomes]:
    """Return the records and each entity's error. An error in one entity doesn't affect the others.

    `is_host` is True for an address, or a name that can be resolved. If an entity has a type twice, the last
    name counts.

    Raises KafkaError (POLICY_VIOLATION) if the whole request makes too many records.
    """
    known = await quotas_in_force(image)
    decided: list[Message] = []
    outcomes: Outcomes = {}
    pause = Pause()
    for entry in entries:
        if pause.is_due(1 + len(entry.entity) + len(entry.ops)):
            await turn()
        entity = frozenset({part.entity_type: part.entity_name for part in entry.entity}.items())
        try:
            wanted = _operations(entity, entry.ops, known=entity in outcomes)
            _check_entity(entity, is_host)
            new = _records(entity, wanted, known.get(entity, {}))
        except KafkaError as error:
            outcomes[entity] = error.as_value()
            continue
        decided += new
        check_records(decided)
        outcomes[entity] = None
    return decided, outcomes


def _operations(entity: Entity, ops: Sequence[OpData], *, known: bool) -> dict[str, float | None]:
    """Return the wanted value of each key; None removes it."""
    wanted: dict[str, float | None] = {}
    for op in ops:
        if op.key in wanted:
            known = True
        else:
            wanted[op.key] = None if op.remove else op.value
    if known:
        raise KafkaError(Error.INVALID_REQUEST, f"Ignoring duplicate entity {entity_text(entity)}")
    return wanted


def entity_text(entity: Entity) -> str:
    """An entity as Kafka's messages show it."""
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in sorted(entity))
    return f"ClientQuotaEntity(entries={{{names}}})"


def _check_entity(entity: Entity, is_host: Callable[[str], bool]) -> None:
    names = dict(entity)
    if not names:
        raise KafkaError(Error.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise KafkaError(Error.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise KafkaError(Error.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP in names:
        if len(names) > 1:
            raise KafkaError(
                Error.INVALID_REQUEST,
                "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
            )
        address = names[IP]
        if address is not None and not is_host(address):
            raise KafkaError(Error.INVALID_REQUEST, f"{address} is not a valid IP or resolvable host.")


def _records(
    entity: Entity, wanted: Mapping[str, float | None], current: Mapping[str, float]
) -> list[Message]:
    keys = _IP_KEYS if any(kind == IP for kind, _ in entity) else _USER_AND_CLIENT_KEYS
    decided: list[Message] = []
    for key, value in wanted.items():
        if value is None:
            if key in current:
                decided.append(records.ClientQuotaRecord(entity=_parts(entity), key=key, remove=True))
            continue
        _check_value(keys, key, value)
        if not _is_same(current.get(key), value):
            decided.append(records.ClientQuotaRecord(entity=_parts(entity), key=key, value=value))
    return decided


def _is_same(current: float | None, value: float) -> bool:
    """Compare like Java's Doubles: NaN equals itself."""
    return current == value or (current is not None and math.isnan(current) and math.isnan(value))


def _parts(entity: Entity) -> list[records.EntityData]:
    # In the order of Java's hash map with these three names.
    order = (CLIENT_ID, USER, IP)
    return [
        records.EntityData(entity_type=kind, entity_name=name)
        for kind, name in sorted(entity, key=lambda part: order.index(part[0]))
    ]


def _check_value(keys: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in keys:
        raise KafkaError(Error.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise KafkaError(Error.INVALID_REQUEST, f"Quota {key} must be a finite number")
    if value <= 0:
        raise KafkaError(Error.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    most = keys[key]
    if most is None:
        return
    if value > most:
        raise KafkaError(
            Error.INVALID_REQUEST, f"Proposed value for {key} is too large for {_TYPE_NAMES[most]}."
        )
    if value % 1.0 > 1e-6:
        raise KafkaError(Error.INVALID_REQUEST, f"{key} cannot be a fractional value.")


async def matching(
    image: ClusterImage, components: Sequence[ComponentData], *, strict: bool
) -> dict[Entity, dict[str, float]]:
    """Return the quotas that a filter matches. Raises KafkaError (INVALID_REQUEST, UNSUPPORTED_VERSION)."""
    exact: dict[str, str | None] = {}
    named: set[str] = set()
    for component in components:
        kind, match_type = component.entity_type, component.match_type
        if not kind:
            raise KafkaError(Error.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in named:
            raise KafkaError(
                Error.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise KafkaError(Error.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type not in _MATCH_NAMES:
            raise KafkaError(Error.INVALID_REQUEST, f"Unknown match type {match_type}")
        name = _MATCH_NAMES[match_type]
        if match_type == _EXACT and component.match is None:
            raise KafkaError(
                Error.INVALID_REQUEST, f"Request specified {name}, but set match string to null."
            )
        if match_type != _EXACT and component.match is not None:
            raise KafkaError(
                Error.INVALID_REQUEST, f"Request specified {name}, but also specified a match string."
            )
        if match_type == _SPECIFIED:
            named.add(kind)
        else:
            exact[kind] = component.match
    asked = exact.keys() | named
    if IP in asked and len(asked) > 1:
        raise KafkaError(
            Error.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component.",
        )
    found = {}
    pause = Pause()
    for entity, values in (await quotas_in_force(image)).items():
        if pause.is_due():
            await turn()
        if _matches(dict(entity), exact, named, strict):
            found[entity] = values
    return found


def _matches(
    entity: Mapping[str, str | None], exact: Mapping[str, str | None], named: set[str], strict: bool
) -> bool:
    if strict and len(entity) != len(exact) + len(named):
        return False
    return named <= entity.keys() and all(
        kind in entity and entity[kind] == name for kind, name in exact.items()
    )
