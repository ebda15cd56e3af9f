"""Random ids, in the form that Kafka gives them."""

from __future__ import annotations

from collections.abc import Callable

from protocol.wire.primitives import uuid_to_text


def random_uuid(token_bytes: Callable[[int], bytes]) -> bytes:
    """A random version 4 uuid whose text begins with no dash, since tools would take it for an option
    (Kafka: `Uuid.randomUuid`)."""
    while True:
        drawn = bytearray(token_bytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        found = bytes(drawn)
        if not uuid_to_text(found).startswith("-"):
            return found
