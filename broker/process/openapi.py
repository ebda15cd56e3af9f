"""The questions that the control listener serves, with the types of their fields and answers. This table defines the
paths, and their description as OpenAPI (`GET /v1`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
YES_OR_NO: Final[Schema] = {"type": "boolean"}


def many(each: Schema) -> Schema:
    return {"type": "array", "items": each}


def nullable(of: Schema) -> Schema:
    return {**of, "type": [of["type"], "null"]}


def by_any_name(each: Schema) -> Schema:
    return {"type": "object", "additionalProperties": each}


def fields(**known: Schema) -> Schema:
    """An object that always has all of these fields."""
    return {"type": "object", "properties": known, "required": [*known], "additionalProperties": False}


class AskedOverHttp(NamedTuple):
    """A question over HTTP. `takes`: the fields of the body; those in `needs` are required. `answers`: the type of
    `answer`."""

    answers: Schema
    takes: Mapping[str, Schema] = {}
    needs: tuple[str, ...] = ()
    asks: str | None = None
    """The name of the question, if it differs from the path's."""


_BYTES: Final = nullable({"type": "string", "contentEncoding": "base64"})
_PLACE: Final = {"type": "array", "prefixItems": [TEXT, NUMBER], "items": False, "minItems": 2}
_NUMBERS: Final = many(NUMBER)
_FAULT: Final[Schema] = {
    "type": "object",
    "properties": {
        "api": {"type": ["string", "array"], "items": TEXT},
        "do": TEXT,
        "at": TEXT,
        "error": TEXT,
        "message": TEXT,
        "delay_ms": NUMBER,
        "versions": {"type": "object"},
        "client_id": TEXT,
        "principal": TEXT,
        "transactional_id": TEXT,
        "group": TEXT,
        "topic": TEXT,
        "partition": NUMBER,
        "operation": TEXT,
        "file": TEXT,
        "fields": {"type": "object"},
        "nth": NUMBER,
        "times": nullable(NUMBER),
        "probability": {"type": "number"},
        "seed": NUMBER,
    },
}
_FAULT_STATE: Final = fields(fault=NUMBER, seen=NUMBER, fired=NUMBER, standing=NUMBER)
_TOPIC: Final[Schema] = {
    "type": ["integer", "object"],
    "properties": {"partitions": NUMBER, "replication": NUMBER, "configs": {"type": "object"}},
}
_RECORD: Final = fields(
    offset=NUMBER,
    timestamp_ms=NUMBER,
    key=_BYTES,
    value=_BYTES,
    headers=many({"type": "array", "prefixItems": [TEXT, _BYTES], "items": False, "minItems": 2}),
    sequence=NUMBER,
    kind={"type": "string", "enum": ["record", "commit", "abort", "control"]},
    producer_id=NUMBER,
    epoch=NUMBER,
    transactional_id=nullable(TEXT),
    outcome={"type": ["string", "null"], "enum": ["committed", "aborted", "open", "undecided", None]},
    marker=nullable(NUMBER),
)
_TRANSACTION: Final = fields(
    transactional_id=TEXT,
    state=TEXT,
    producer_id=NUMBER,
    epoch=NUMBER,
    timeout_ms=NUMBER,
    started_ms=nullable(NUMBER),
    partitions=many(_PLACE),
)
_OPEN_TRANSACTION: Final = fields(
    topic=TEXT,
    partition=NUMBER,
    producer_id=NUMBER,
    epoch=NUMBER,
    first_offset=NUMBER,
    transactional_id=nullable(TEXT),
)
_GROUP: Final = fields(
    group=TEXT,
    type=TEXT,
    state=TEXT,
    member_count=NUMBER,
    members=many(fields(member=TEXT, instance=nullable(TEXT), client_id=TEXT, host=TEXT)),
    topics=nullable(many(TEXT)),
)
_LAG: Final = fields(
    topic=TEXT, partition=NUMBER, committed=nullable(NUMBER), lag=nullable(NUMBER), exact=YES_OR_NO
)
_DENIAL: Final = {"type": "object", "properties": {"number": NUMBER, "principal": TEXT, "operation": TEXT}}
_OF_PARTITION: Final = {"topic": TEXT, "partition": NUMBER}

ASKED: Final[Mapping[str, AskedOverHttp]] = {
    "arm_fault": AskedOverHttp(NUMBER, {"fault": _FAULT}, ("fault",)),
    "brokers": AskedOverHttp(_NUMBERS),
    "clock": AskedOverHttp(
        fields(now_ms=NUMBER, stands=YES_OR_NO),
        {"do": {"type": "string", "enum": ["advance", "skip_to_next", "freeze", "run"]}, "ms": NUMBER},
    ),
    "coordinator": AskedOverHttp(fields(**_OF_PARTITION), {"group": TEXT, "transactional_id": TEXT}),
    "create_topics": AskedOverHttp(
        many(TEXT), {"topics": by_any_name(_TOPIC), "if_missing": YES_OR_NO}, ("topics",)
    ),
    "denials": AskedOverHttp(many(_DENIAL), {"behind": NUMBER}),
    "disarm_fault": AskedOverHttp(_FAULT_STATE, {"number": NUMBER}, ("number",)),
    "expire_member": AskedOverHttp(TEXT, {"group": TEXT, "member": TEXT}, ("group", "member")),
    "expire_producer": AskedOverHttp(many(_PLACE), {"producer_id": NUMBER}, ("producer_id",)),
    "expire_transaction": AskedOverHttp(
        fields(state=TEXT), {"transactional_id": TEXT}, ("transactional_id",)
    ),
    "fault": AskedOverHttp(_FAULT_STATE, {"number": NUMBER}, ("number",)),
    "faults": AskedOverHttp(many(_FAULT_STATE)),
    "groups": AskedOverHttp(many(_GROUP), {"after": TEXT}),
    "journal": AskedOverHttp(
        fields(requests=many({"type": "object"}), next=nullable(NUMBER), lost=NUMBER),
        {"about": {"type": "object"}, "after": NUMBER},
    ),
    "lag": AskedOverHttp(many(_LAG), {"group": TEXT, "topic": TEXT}, ("group",)),
    "open_transactions": AskedOverHttp(
        many(_OPEN_TRANSACTION), {"after": {"type": "array", "prefixItems": [TEXT, NUMBER, NUMBER]}}
    ),
    "out_of_sync": AskedOverHttp(fields(count=NUMBER, some=many(TEXT)), {"absent": _NUMBERS}),
    "partition": AskedOverHttp(
        fields(leader=NUMBER, replicas=_NUMBERS, isr=_NUMBERS, is_moving=YES_OR_NO),
        _OF_PARTITION,
        ("topic", "partition"),
    ),
    "partition_lag": AskedOverHttp(
        _LAG, {**_OF_PARTITION, "committed": nullable(NUMBER)}, ("topic", "partition")
    ),
    "records": AskedOverHttp(
        fields(start=NUMBER, stable=NUMBER, end=NUMBER, next=NUMBER, records=many(_RECORD)),
        {**_OF_PARTITION, "offset": NUMBER, "most": NUMBER, "committed": YES_OR_NO, "markers": YES_OR_NO},
        ("topic",),
    ),
    "release_fault": AskedOverHttp(NUMBER, {"number": NUMBER}, ("number",)),
    "reset": AskedOverHttp(fields(bootstrap=TEXT, listeners=by_any_name(TEXT)), asks="begin_anew"),
    "run_compaction": AskedOverHttp(_NUMBERS, {"topic": TEXT}, ("topic",)),
    "run_retention": AskedOverHttp(by_any_name(NUMBER), {"topic": TEXT}, ("topic",)),
    "topic": AskedOverHttp(fields(leaders=_NUMBERS, here=_NUMBERS), {"topic": TEXT}, ("topic",)),
    "transactions": AskedOverHttp(many(_TRANSACTION), {"after": TEXT}),
}
"""The questions, by path. `reset` takes no folder: it begins with an empty one."""


def described(questions: Mapping[str, Callable[..., Any]]) -> dict[str, Any]:
    """An OpenAPI document of all questions. Their docstrings describe them."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "barnabas, the control of a broker in a test", "version": "1"},
        "paths": {
            f"/v1/{name}": {"post": _operation(name, asked, questions[asked.asks or name].__doc__ or "")}
            for name, asked in ASKED.items()
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": fields(error=TEXT)},
        },
        "security": [{"token": []}, {}],
    }


def _operation(name: str, asked: AskedOverHttp, told: str) -> dict[str, Any]:
    body: dict[str, Any] = {"type": "object", "properties": asked.takes}
    if asked.needs:
        body["required"] = [*asked.needs]
    refused = {"description": "why not", "content": _json_of({"$ref": "#/components/schemas/Error"})}
    return {
        "operationId": name,
        "summary": " ".join(told.split()),
        "requestBody": {"required": bool(asked.needs), "content": _json_of(body)},
        "responses": {
            "200": {"description": "the answer", "content": _json_of(fields(answer=asked.answers))},
            "400": refused,
        },
    }


def _json_of(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
