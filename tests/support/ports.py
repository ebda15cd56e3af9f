"""Ports for servers that can't choose a free one themselves."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 10_240, 32_767
"""Below the system's ephemeral ports: a server started meanwhile could get one of ours otherwise."""

_CLAIMS = Path(tempfile.gettempdir()) / f"barnabas-test-ports-{os.getuid()}"
_chance = random.SystemRandom()  # tests that run side by side may have the same seed


def free_ports(count: int) -> list[int]:
    """Return different ports that nobody listens on. No other process that asks here gets them while this one runs."""
    _CLAIMS.mkdir(exist_ok=True)
    found: list[int] = []
    while len(found) < count:
        port = _chance.randint(FIRST, LAST)
        if _is_free(port) and _claim(port):
            found.append(port)
    return found


def is_listening(host: str, port: int) -> bool:
    """Return True if somebody accepts connections there."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _claim(port: int) -> bool:
    """Lock the port. The lock ends with the process."""
    descriptor = os.open(_CLAIMS / str(port), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True
