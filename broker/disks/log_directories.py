"""The log directories as the APIs name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.server import Server
    from storage.directory.log_directory import LogDirectory


def log_directories(server: Server) -> dict[str, LogDirectory | None]:
    """The log directories by their path in `log.dirs`; None for one that is offline."""
    opened = {directory.path: directory for directory in server.directories}
    return {path: opened.get(path) for path in server.config.log_dirs}
