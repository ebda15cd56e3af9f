"""A line for each request, at the level DEBUG: who, which API, what, the answer, how long (`kafka.request.logger`).

    127.0.0.1:40118 client rdkafka: Metadata v12 topics=[{name=a}]: NONE, 0.21 ms

Where the level is another one no request passes through here: a route has its handler as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from protocol.apis import APIS
from protocol.errors import Error, error_name
from protocol.waiting import Later
from protocol.wire.primitives import uuid_to_text
from protocol.wire.schema import Field, Struct, error_codes

if TYPE_CHECKING:
    from broker.network.context import RequestContext

log = logging.getLogger("barnabas.request")

Handle = Callable[["RequestContext", Any], Any]

SHOWN_CHARACTERS = 400  # of what was asked
SHOWN_ITEMS = 3  # of a list
SECRETS = frozenset(("password", "value", "auth_bytes", "salted_password", "hmac"))
"""Fields that may hold something secret: the value of a setting may be a password."""


def enabled() -> bool:
    """Whether lines are wanted now."""
    return log.isEnabledFor(logging.DEBUG)


def logged(handle: Handle, api: str, monotonic_s: Callable[[], float]) -> Handle:
    """The handler, with a line for each request once it is answered."""

    def call(context: RequestContext, request: Any) -> Any:
        began_s = monotonic_s()
        # now, since what is held of it may be patched, or gone, when the answer is there
        line = f"{context.connection} client {context.client_id}: {api} v{context.api_version} {_fields(request)}"

        def end(outcome: str) -> None:
            log.debug("%s: %s, %.2f ms", line, outcome, (monotonic_s() - began_s) * 1000)

        try:
            response = handle(context, request)
        except Exception as error:
            end(f"failed, {_failure(error)}")
            raise
        if isinstance(response, Later):
            return _LoggedLater(response, end)
        end(_outcome(response))
        return response

    return call


def waited(context: RequestContext, waited_s: float, *, in_vain: bool) -> None:
    """A line for a request that has waited for what the node is getting ready for; its own line follows."""
    api = f"{APIS[context.api_key].name} v{context.api_version}"
    how = " in vain" if in_vain else ""
    log.debug(
        "%s client %s: %s waited%s, %.2f ms", context.connection, context.client_id, api, how, waited_s * 1000
    )


class _LoggedLater:
    """A `Later`, for the dispatcher's side of it."""

    __slots__ = ("_end", "_later", "when_answered")

    def __init__(self, later: Later[Any], end: Callable[[str], None]) -> None:
        self._later = later
        self._end = end
        self.when_answered = later.when_answered

    def result(self) -> Any:
        try:
            response = self._later.result()
        except Exception as error:
            self._end(f"failed, {_failure(error)}")
            raise
        self._end(_outcome(response))
        return response

    def abandon(self, on_failure: Callable[[BaseException], object] | None = None) -> None:
        self._end("not answered, the client has hung up")
        self._later.abandon(on_failure)


def _failure(error: Exception) -> str:
    return str(error) or type(error).__name__


def _outcome(response: Any) -> str:
    """The errors in an answer with how many times each, or NONE."""
    if response is None:
        return "no answer wanted"
    found: dict[int, int] = {}
    for code in error_codes(response):
        if code:
            found[code] = found.get(code, 0) + 1
    return ", ".join(f"{error_name(code)} ({count})" for code, count in found.items()) or Error.NONE.name


def _fields(struct: Struct) -> str:
    """What was asked: the fields that aren't at their default, shortened."""
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
