"""The answer to a request that fails as a whole, as Kafka's own classes make it.

Source: `AbstractRequest.getErrorResponse` of each API. Most answers follow from the messages' fields. If the answer has
an error field at the top, the error is there. Otherwise it is in an entry for each thing that the request names, under
the request's own key. `tests/golden/test_error_answers.py` compares all of them with Kafka's.

Fetch, ShareFetch and ShareAcknowledge have both places, and Kafka's classes use the top. Here only errors of the
session go there. Other errors go to each partition, as in the answers of real brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from protocol.apis import APIS
from protocol.errors import Error
from protocol.wire.schema import Field, Struct

_BY_PARTITION: Final = frozenset(("Fetch", "ShareFetch", "ShareAcknowledge"))
_OF_SESSION: Final = frozenset(
    (
        Error.FETCH_SESSION_ID_NOT_FOUND,
        Error.INVALID_FETCH_SESSION_EPOCH,
        Error.FETCH_SESSION_TOPIC_ID_ERROR,
        Error.SHARE_SESSION_NOT_FOUND,
        Error.INVALID_SHARE_SESSION_EPOCH,
        Error.SHARE_SESSION_LIMIT_REACHED,
    )
)
_BOTH: Final = frozenset(("AlterPartitionReassignments", "ElectLeaders", "Metadata"))
"""APIs with the error both at the top and in each entry."""

_MANY_COORDINATORS: Final = 4  # the version of FindCoordinator that has several keys

_KEYS: Final = ("topic", "topic_name", "name", "partition", "partition_index", "partition_id", "index")
"""The fields that identify an entry. Request and answer may use different ones of these names."""
_SAME_KEYS: Final = (
    "topic_id",
    "group_id",
    "resource_type",
    "resource_name",
    "transactional_id",
    "producer_id",
)
_TOPICS, _PARTITIONS = frozenset(_KEYS[:3]), frozenset(_KEYS[3:])

_NOTHING: Final[dict[str, Any]] = {
    "base_offset": -1,
    "committed_offset": -1,
    "high_watermark": -1,
    "low_watermark": -1,
    "records": b"",
}
"""Values of fields that mean nothing beside an error, if they differ from the message's defaults."""


def error_answer(api_key: int, version: int, request: Any, error: Error, message: str | None = None) -> Any:
    """The response to the request, an `APIS[api_key].response`; None if the client wants no answer."""
    api = APIS[api_key]
    if api.name == "Produce" and request.acks == 0:
        return None
    response: Any = api.response()
    of_partitions = api.name in _BY_PARTITION and error not in _OF_SESSION
    if of_partitions and not getattr(request, "topics", None):
        of_partitions = False  # an empty request of a session names no partition
    is_told = not of_partitions and _put(response, version, error, message)
    if of_partitions or not is_told or api.name in _BOTH:
        _mirror(response, request, version, error, message)
    if api.name == "FindCoordinator":
        for each in response.coordinators if version >= _MANY_COORDINATORS else (response,):
            each.node_id = each.port = -1
    elif api.name == "InitProducerId":
        response.producer_epoch = -1
    return response


def _put(answer: Any, version: int, error: Error, message: str | None) -> bool:
    """Set the error if the struct has a field for it in this version. Returns whether it has."""
    is_told = False
    for field in type(answer).FIELDS:
        if not field.in_version(version):
            continue
        if field.name in ("error_code", "partition_error_code"):
            setattr(answer, field.name, error)
            is_told = True
        elif field.name == "error_message":
            answer.error_message = message if message or field.nullable_in(version) else ""
        elif field.name in _NOTHING:
            setattr(answer, field.name, _NOTHING[field.name])
    return is_told


def _lists(struct: type[Struct], version: int) -> Iterator[Field]:
    return (field for field in struct.FIELDS if field.kind == "array" and field.in_version(version))


@cache
def _has_error(struct: type[Struct], version: int) -> bool:
    """True if the struct, or one in its lists, has an error field."""
    for field in struct.FIELDS:
        if not field.in_version(version):
            continue
        if field.name in ("error_code", "partition_error_code"):
            return True
        if field.kind == "array" and isinstance(field.element, type) and _has_error(field.element, version):
            return True
    return False


def _mirror(answer: Any, asked: Any, version: int, error: Error, message: str | None) -> None:
    """Add an entry with the error for each entry in the request's first list."""
    wanted: Field | None = None
    for field in _lists(type(answer), version):
        if isinstance(field.element, type) and _has_error(field.element, version):
            wanted = field
            break
    entries: Sequence[Any] = ()
    for field in _lists(type(asked), version):
        entries = getattr(asked, field.name) or ()
        break
    if wanted is None:
        return
    assert isinstance(wanted.element, type)
    made = [_entry(wanted.element, each, version, error, message) for each in entries]
    setattr(answer, wanted.name, made)


def _entry(kind: type[Struct], asked: Any, version: int, error: Error, message: str | None) -> Any:
    made: Any = kind()
    is_told = _put(made, version, error, message)
    fields = {field.name: field for field in kind.FIELDS if field.in_version(version)}
    if not isinstance(asked, Struct):  # a name, or a number
        for name in (*_KEYS, *_SAME_KEYS, "key"):
            if name in fields and isinstance(getattr(made, name), type(asked)):
                setattr(made, name, asked)
                break
        return made
    known = {field.name for field in type(asked).FIELDS if field.in_version(version)}
    for name, field in fields.items():
        found = name if name in _SAME_KEYS and name in known else None
        for one_of in (_TOPICS, _PARTITIONS):
            if name in one_of:
                found = next((each for each in _KEYS if each in one_of & known), None)
        value = None if found is None else getattr(asked, found)
        if found is not None and (value is not None or field.nullable_in(version)):
            setattr(made, name, value)
    if not is_told:
        _mirror(made, asked, version, error, message)
    return made
