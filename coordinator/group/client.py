"""Who asks a group coordinator for something."""

from __future__ import annotations

from typing import NamedTuple


class Client(NamedTuple):
    """Who sent a request. `host` is its address with a slash before it, as Kafka records it."""

    client_id: str
    host: str
    api_version: int
