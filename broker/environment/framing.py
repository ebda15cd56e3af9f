"""Messages between the broker and a process of its own: a length, then plain data, pickled.

Apart from `workers`, so that such a process needn't load what the broker needs to have it.
"""

from __future__ import annotations

from typing import Any

_LENGTH_BYTES = 4


def framed(message: object) -> bytes:
    """A message as both ends write it."""
    import pickle  # with the first message: most brokers send none in their first seconds

    data = pickle.dumps(message, protocol=5)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def taken(unread: bytearray) -> list[Any]:
    """Takes the messages that are whole out of what was read."""
    import pickle

    messages = []
    start = 0
    while len(unread) - start >= _LENGTH_BYTES:
        end = start + _LENGTH_BYTES + int.from_bytes(unread[start : start + _LENGTH_BYTES], "big")
        if end > len(unread):
            break
        messages.append(pickle.loads(memoryview(unread)[start + _LENGTH_BYTES : end]))
        start = end
    del unread[:start]
    return messages
