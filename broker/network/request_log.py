"""The request log: at level DEBUG a line for each request, with client, API, fields, outcome and time
(`kafka.request.logger`).

    127.0.0.1:40118 client rdkafka: Metadata v12 topics=[{name=a}]: NONE, 0.21 ms

At other levels no request passes through here: a route has its handler as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from broker.network.observed_requests import End, HungUpError, Observer
from protocol.apis import APIS
from protocol.errors import Error, error_name
from protocol.wire.primitives import uuid_to_text
from protocol.wire.schema import Field, Struct, error_codes

if TYPE_CHECKING:
    from broker.network.context import RequestContext

log = logging.getLogger("barnabas.request")

SHOWN_CHARACTERS = 400  # of a request's fields
SHOWN_ITEMS = 3  # of a list
SECRETS = frozenset(("password", "value", "auth_bytes", "salted_password", "hmac"))
"""Fields that may hold secrets: the value of a setting may be a password."""


def enabled() -> bool:
    """True if requests are logged now."""
    return log.isEnabledFor(logging.DEBUG)


def logger(api: str, monotonic_s: Callable[[], float]) -> Observer:
    """An observer that writes the line of each request once it is answered."""

    def begin(context: RequestContext, request: Any) -> End:
        began_s = monotonic_s()
        # now, since the request's bytes may be patched or gone when the answer is there
        line = f"{context.connection} client {context.client_id}: {api} v{context.api_version} {_fields(request)}"

        def end(response: Any, error: Exception | None) -> None:
            if isinstance(error, HungUpError):
                outcome = "not answered, the client has hung up"
            else:
                outcome = _outcome(response) if error is None else f"failed, {_failure(error)}"
            log.debug("%s: %s, %.2f ms", line, outcome, (monotonic_s() - began_s) * 1000)

        return end

    return begin


def waited(context: RequestContext, waited_s: float, *, in_vain: bool) -> None:
    """Write a line for a request that has waited until the node was ready for it; its own line follows."""
    api = f"{APIS[context.api_key].name} v{context.api_version}"
    how = " in vain" if in_vain else ""
    log.debug(
        "%s client %s: %s waited%s, %.2f ms", context.connection, context.client_id, api, how, waited_s * 1000
    )


def _failure(error: Exception) -> str:
    return str(error) or type(error).__name__


def _outcome(response: Any) -> str:
    """The errors in an answer, each with its count, or NONE."""
    if response is None:
        return "no answer wanted"
    found: dict[int, int] = {}
    for code in error_codes(response):
        if code:
            found[code] = found.get(code, 0) + 1
    return ", ".join(f"{error_name(code)} ({count})" for code, count in found.items()) or Error.NONE.name


def _fields(struct: Struct) -> str:
    """The request's fields that aren't at their default, shortened."""
    text = " ".join(_shown_fields(struct))
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def _shown_fields(struct: Struct) -> Iterator[str]:
    for field in type(struct).FIELDS:
        value = getattr(struct, field.name)
        if value == ([] if field.fresh and field.kind != "struct" else field.default):
            continue
        yield f"{field.name}={'…' if field.name in SECRETS and value is not None else _shown(field, value)}"


def _shown(field: Field, value: Any) -> str:
    if isinstance(value, Struct):
        return f"{{{' '.join(_shown_fields(value))}}}"
    if isinstance(value, list):
        more = f", and {len(value) - SHOWN_ITEMS} more" if len(value) > SHOWN_ITEMS else ""
        return f"[{', '.join(_shown(field, each) for each in value[:SHOWN_ITEMS])}{more}]"
    if isinstance(value, bytes | bytearray | memoryview):
        return (
            uuid_to_text(bytes(value)) if "uuid" in (field.kind, field.element) else f"<{len(value)} bytes>"
        )
    if isinstance(value, str):
        return value if value and len(value) <= SHOWN_CHARACTERS else repr(value[:SHOWN_CHARACTERS])
    return str(value.value if isinstance(value, Enum) else value)
