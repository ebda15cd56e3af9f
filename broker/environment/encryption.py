"""What encryption needs of the machine beside connections: files for keys, and sockets for last words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def file_of(text: str) -> Iterator[str]:
    """A file with this in it, since OpenSSL reads keys from files alone: in memory, where the system has that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("keys", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("latin-1"))
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    import tempfile  # here, where it is needed

    with tempfile.NamedTemporaryFile() as named:  # nobody else may read it
        named.write(text.encode("latin-1"))
        named.flush()
        yield named.name


def content_of(path: str) -> bytes:
    """Of a file with keys or certificates. Raises OSError, ValueError."""
    with open(path, "rb") as file:
        return file.read()


def last_words(transport: asyncio.BaseTransport, said: bytes) -> socket.socket | None:
    """The connection's socket, which has these bytes and its end to send, held open over the end of the transport: a
    socket that is closed with unread bytes drops what it has yet to send. None where nothing can be said."""
    known = transport.get_extra_info("socket")
    if known is None:
        return None
    try:
        held = socket.socket(fileno=os.dup(known.fileno()))
    except OSError:
        return None
    try:
        held.setblocking(False)
        held.send(said)
        held.shutdown(socket.SHUT_WR)
    except OSError:
        held.close()
        return None
    return held
