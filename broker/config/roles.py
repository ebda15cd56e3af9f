"""What a node is in its cluster, by `process.roles` and the settings that go with it.

Source: Kafka's QuorumConfig.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from broker.config.errors import ConfigError

if TYPE_CHECKING:
    from broker.config.settings import Setting

BOOTSTRAP_SERVERS, VOTERS = "controller.quorum.bootstrap.servers", "controller.quorum.voters"
QUORUM = (BOOTSTRAP_SERVERS, VOTERS)
"""Where the controllers are; the first one that says something counts."""

Address = tuple[str, int]
"""Host and port."""

_HOST_AND_PORT = re.compile(r"\[?([0-9a-zA-Z\-%._:]+)\]?:([0-9]+)", re.ASCII)
"""Kafka's `Utils.HOST_PORT_PATTERN`, which takes an empty host and a scheme in front, too."""


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


def bootstrap_servers(entries: Sequence[str]) -> list[Address]:
    """`controller.quorum.bootstrap.servers`: `host:port` each. Raises ConfigError."""
    return [_address(entry, entry, BOOTSTRAP_SERVERS, "host:port") for entry in entries]


def voters(entries: Sequence[str]) -> dict[int, Address]:
    """`controller.quorum.voters`: `id@host:port` each, by id. Raises ConfigError."""
    found: dict[int, Address] = {}
    for entry in entries:
        node_id, at, address = entry.partition("@")
        if not at or "@" in address:
            raise _no_entry(entry, VOTERS, "id@host:port", "there is no id")
        if re.fullmatch(r"[+-]?[0-9]{1,10}", node_id) is None or not abs(int(node_id)) < 1 << 31:
            raise _no_entry(entry, VOTERS, "id@host:port", f"{node_id or 'nothing'} is no id")
        host, port = _address(entry, address, VOTERS, "id@host:port")
        if host == "0.0.0.0":  # noqa: S104
            raise ConfigError(
                f"{VOTERS}: host 0.0.0.0 of {entry} is not routable: others can't reach it", VOTERS
            )
        found[int(node_id)] = host, port
    return found


def _address(entry: str, text: str, name: str, form: str) -> Address:
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        raise _no_entry(entry, name, form, "there is no host and port")
    host, port = match.groups()
    if len(port) > 5 or not 0 < int(port) < 65_536:
        raise _no_entry(entry, name, form, f"{port} is no port")
    return host, int(port)


def _no_entry(entry: str, name: str, form: str, reason: str) -> ConfigError:
    return ConfigError(f"{name}: failed to parse {entry}: {reason}; each entry is {form}", name)
