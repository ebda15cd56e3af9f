"""What a service manager is told (systemd's `Type=notify`): datagrams to the socket named by `NOTIFY_SOCKET`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping

log = logging.getLogger("barnabas")

READY = "READY=1"
STOPPING = "STOPPING=1"


PATIENCE_S = 1.0
"""With a service manager that doesn't read what it is told: the loop stands still meanwhile."""


def notify(environ: Mapping[str, str], *lines: str) -> None:
    """Tell the service manager that started this process, where one did. A name that begins with @ is an abstract one.
    See sd_notify(3)."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.settimeout(PATIENCE_S)
            manager.connect(address)
            manager.sendall("\n".join(lines).encode())
    except OSError as error:
        log.warning("the service manager can't be told %s: %s", lines[0], error)
