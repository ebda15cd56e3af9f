"""Ports for servers that can't be told to take a free one."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 10_240, 32_767
"""Below those that systems give to who asks for any: else a server started meanwhile may be given one of ours."""

_CLAIMS = Path(tempfile.gettempdir()) / f"barnabas-test-ports-{os.getuid()}"
_chance = random.SystemRandom()  # tests that run beside each other may have one seed


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on: different ones, and no other process that asks here has them for as long as this
    one runs."""
    _CLAIMS.mkdir(exist_ok=True)
    found: list[int] = []
    while len(found) < count:
        port = _chance.randint(FIRST, LAST)
        if _is_free(port) and _claim(port):
            found.append(port)
    return found


def is_listening(host: str, port: int) -> bool:
    """Whether somebody takes connections there."""
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
    """The lock goes with the process."""
    descriptor = os.open(_CLAIMS / str(port), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    return True
