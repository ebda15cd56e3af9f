"""Messages to and from the JSON form that Kafka's own generated converters give them.

Names are in camel case, uuids in url-safe base64, bytes in base64. A field that the version doesn't have is
absent, and so is a tagged one at its default.
"""

import base64
from typing import Any

from protocol.wire.primitives import uuid_from_text, uuid_to_text
from protocol.wire.schema import Field, Struct


def to_json(message: Struct, version: int) -> dict[str, Any]:
    form = {}
    for field in type(message).FIELDS:
        value = getattr(message, field.name)
        if field.in_version(version) and (field.tag < 0 or not _is_default(value, field)):
            form[_camel_case(field.name)] = _value_to_json(value, field, version)
    return form


def from_json(cls: type[Struct], form: dict[str, Any], version: int) -> Any:
    names = {_camel_case(field.name): field for field in cls.FIELDS}
    return cls(
        **{names[key].name: _value_from_json(value, names[key], version) for key, value in form.items()}
    )


def _is_default(value: object, field: Field) -> bool:
    if field.kind == "array" and field.fresh:
        return value == []
    if field.kind == "struct" and field.fresh:
        assert isinstance(field.element, type)
        return bool(value == field.element())
    return value == field.default


def _value_to_json(value: Any, field: Field, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        if isinstance(field.element, type):
            return [to_json(item, version) for item in value]
        return [_value_to_json(item, Field(field.element, "0+", None), version) for item in value]
    if field.kind == "struct":
        return to_json(value, version)
    if field.kind == "uuid":
        return uuid_to_text(value)
    if field.kind in ("binary", "records"):
        return base64.b64encode(value).decode()
    return value


def _value_from_json(value: Any, field: Field, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        if isinstance(field.element, type):
            return [from_json(field.element, item, version) for item in value]
        return [_value_from_json(item, Field(field.element, "0+", None), version) for item in value]
    if field.kind == "struct":
        return from_json(field.element, value, version)
    if field.kind == "uuid":
        return uuid_from_text(value)
    if field.kind in ("binary", "records"):
        return base64.b64decode(value)
    return value


def _camel_case(name: str) -> str:
    first, *words = name.split("_")
    return _SPECIAL.get(name) or first + "".join(word.capitalize() for word in words)


_SPECIAL = {
    "kraft_version": "kRaftVersion",
    "kraft_version_feature": "kRaftVersionFeature",
}
