"""Many connections at once, in a process of their own: reading there holds up no client here."""

from __future__ import annotations

import os
import selectors
import socket


def strike_by_many(bootstrap: str, data: bytes, connections: int) -> None:
    """Send the data on each connection, and read until the broker has answered everything."""
    crowd = os.fork()
    if crowd:
        assert os.waitpid(crowd, 0)[1] == 0
        return
    status = 1
    try:
        _strike(bootstrap, data, connections)
        status = 0
    finally:
        os._exit(status)


def _strike(bootstrap: str, data: bytes, connections: int) -> None:
    host, _, port = bootstrap.rpartition(":")
    crowd = [socket.create_connection((host, int(port))) for _ in range(connections)]
    selector = selectors.DefaultSelector()
    for connection in crowd:
        selector.register(connection, selectors.EVENT_READ)
    for connection in crowd:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)  # the broker answers what was sent, and then closes
    answers = bytearray(1 << 20)
    while selector.get_map():
        for key, _ in selector.select():
            assert isinstance(key.fileobj, socket.socket)
            if not key.fileobj.recv_into(answers):
                selector.unregister(key.fileobj)
