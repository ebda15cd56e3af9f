"""What a node is in its cluster, by `process.roles` and the settings that go with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.config.settings import Setting

VOTERS = "controller.quorum.voters"
QUORUM = ("controller.quorum.bootstrap.servers", VOTERS)
"""Where the controllers are; the first one that says something counts."""


def is_only_controller(static: Mapping[str, Setting]) -> bool:
    """Whether the node is no broker."""
    roles = static.get("process.roles")
    return roles is not None and [each.strip() for each in roles.value.split(",")] == ["controller"]


def controls(static: Mapping[str, Setting]) -> bool:
    """Whether other nodes may be controlled from here, at a controller's listener."""
    roles = static.get("process.roles")
    return roles is None or "controller" in map(str.strip, roles.value.split(","))


def joins_a_cluster(static: Mapping[str, Setting]) -> bool:
    """Whether another node is the controller. What says that this one isn't, without saying who is, was made for a
    node that stands beside a controller; alone it is its own."""
    roles = static.get("process.roles")
    if roles is None or "controller" in map(str.strip, roles.value.split(",")):
        return False
    return any(name in static and static[name].value.strip() for name in QUORUM)


def controllers(bootstrap: Sequence[str], voters: Sequence[str]) -> list[tuple[str, int]]:
    """Host and port of each that the settings of `QUORUM` say; voters are `id@host:port`."""
    entries = bootstrap or [voter.partition("@")[2] for voter in voters]
    found = [entry.rpartition(":") for entry in entries]
    return [(host.removeprefix("[").removesuffix("]"), int(port)) for host, _, port in found]
