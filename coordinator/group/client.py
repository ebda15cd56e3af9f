"""Who asks a group coordinator for something."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether somebody may know of a topic by its name."""


class Client(NamedTuple):
    """Who sent a request. `host` is its address with a slash before it, as Kafka records it."""

    client_id: str
    host: str
    api_version: int
    may_describe: MayDescribe
