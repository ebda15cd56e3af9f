"""What encryption needs of the machine beside connections: files for keys, and sockets for last words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

_LARGEST_FILE = 16 * 1024 * 1024  # of keys or certificates: those that a machine trusts have 300 KB


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
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"it is larger than {_LARGEST_FILE} bytes")
    return content


def is_file(path: str) -> bool:
    """And not one of which each reading waits for somebody who writes."""
    return os.path.isfile(path)


def modified_ns(path: str) -> int | None:
    """When a file was written; None where that can't be said."""
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return None


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
