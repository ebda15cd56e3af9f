"""Requests with long lists, derived from the declarations: each list of each API, with existing and other names.

The broker's topics, groups and transactional ids should be called "0", "1" and so on, so that the requests name some of
them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any, NamedTuple

from broker.handlers import HANDLERS
from protocol.apis import APIS
from protocol.errors import CodecError
from protocol.wire.codec import encode
from protocol.wire.schema import Message, Struct

# The values that a request needs to get as far as the list.
_VALUES: dict[str, Any] = {
    "acks": -1,
    "timeout_ms": 10,
    "max_wait_ms": 0,
    "validate_only": True,
    "allow_auto_topic_creation": False,
    "num_partitions": 1,
    "replication_factor": 1,
    "key_type": 1,
    "resource_type": 2,
    "session_epoch": -1,
    "replica_id": -1,
    "isolation_level": 1,
    "member_id": "",
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "transaction_result": True,
    "partition_max_bytes": 1000,
    "max_bytes": 1000,
    "key": "",
    "group_id": "0",
    "transactional_id": None,
    "topic_id": bytes(16),
}


class LargeRequest(NamedTuple):
    """`path` names the long list, by its fields."""

    message: Message
    version: int
    path: str

    def __str__(self) -> str:
        return f"{type(self.message).__name__} v{self.version} {self.path}"


def large_requests(
    entries: int, *, every_version: bool = False, only: Container[str] | None = None
) -> Iterator[LargeRequest]:
    """Yield, for each list of each API, or of some, one request with `entries` entries in that list."""
    for api_key in HANDLERS:
        api = APIS[api_key]
        if only is not None and api.name not in only:
            continue
        lowest = max(api.min_version, api.first_decodable)
        versions = range(lowest, api.max_version + 1) if every_version else (api.max_version,)
        for version in versions:
            for path in _lists(api.request, version):
                for repeated in (False, True):
                    message = _filled(api.request, version, path, entries, repeated)
                    label = ".".join(path) + (" repeated" if repeated else "")
                    try:
                        encode(message, version)
                    except (CodecError, RuntimeError):
                        continue
                    yield LargeRequest(message, version, label)


def _lists(cls: type[Struct], version: int) -> Iterator[tuple[str, ...]]:
    for field in cls.FIELDS:
        if not field.in_version(version):
            continue
        if field.kind == "array":
            yield (field.name,)
        if field.kind in ("array", "struct") and isinstance(field.element, type):
            for inner in _lists(field.element, version):
                yield (field.name, *inner)


def _filled(
    cls: type[Any], version: int, path: tuple[str, ...], entries: int, repeated: bool, number: int = 0
) -> Any:
    """Return a struct with `entries` entries in the list at the path. Every other list has one entry, or none."""
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if not field.in_version(version):
            continue
        is_at = path[:1] == (field.name,)
        inner = path[1:] if is_at else ()
        if field.kind == "array":
            count = entries if is_at and not inner else 1
            if not is_at and field.nullable_in(version):
                values[field.name] = None
            elif isinstance(field.element, type):
                values[field.name] = [
                    _filled(field.element, version, inner, entries, repeated, 0 if repeated else index)
                    for index in range(count)
                ]
            else:
                values[field.name] = [
                    _value(str(field.element), field.name, 0 if repeated else index) for index in range(count)
                ]
        elif field.kind == "struct" and isinstance(field.element, type):
            if is_at or not field.nullable_in(version):
                values[field.name] = _filled(field.element, version, inner, entries, repeated, number)
        elif field.name in _VALUES and not (_VALUES[field.name] is None and not field.nullable_in(version)):
            values[field.name] = _VALUES[field.name]
        elif field.kind in ("binary", "records") and field.nullable_in(version):
            values[field.name] = None
        else:
            values[field.name] = _value(field.kind, field.name, number)
    return cls(**values)


_CODES = {
    "resource_type",
    "resource_type_filter",
    "resource_pattern_type",
    "pattern_type_filter",
    "operation",
}
"""Codes of ACLs: 0 makes no sense, and 1 means any."""


def _value(kind: str, name: str, number: int) -> Any:
    if kind == "string":
        return str(number)
    if kind == "uuid":
        return number.to_bytes(16, "big")
    if kind in ("binary", "records"):
        return b""
    if kind == "boolean":
        return False
    if kind == "float64":
        return 0.0
    if kind == "int8" and (name in _CODES or name == "permission_type"):
        return 1
    return number % 100 if kind == "int8" else number % 10_000
