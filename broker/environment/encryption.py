"""The parts of the machine that encryption needs beside connections: files for keys, and sockets for a last alert."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

_LARGEST_FILE = 16 * 1024 * 1024  # of keys or certificates; all that a machine trusts have 300 KB


@contextlib.contextmanager
def file_of(text: str) -> Iterator[str]:
    """A file with this text, since OpenSSL reads keys only from files. It is in memory if the system has such files."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("keys", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("latin-1"))
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    import tempfile  # imported only where it is needed

    with tempfile.NamedTemporaryFile() as named:  # other users can't read it
        named.write(text.encode("latin-1"))
        named.flush()
        yield named.name


def content_of(path: str) -> bytes:
    """The content of a file with keys or certificates. Raises OSError; ValueError if it is too large."""
    with open(path, "rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"it is larger than {_LARGEST_FILE} bytes")
    return content


def is_file(path: str) -> bool:
    """True if it is a regular file. Reading a pipe would block until something writes to it."""
    return os.path.isfile(path)


def modified_ns(path: str) -> int | None:
    """When a file was last written, in ns; None if that isn't known."""
    try:
        return os.stat(path).st_mtime_ns
    except (OSError, ValueError):
        return None


def last_words(transport: asyncio.BaseTransport, said: bytes) -> socket.socket | None:
    """Send these bytes and the end of the connection. Returns its socket, held open beyond the end of the transport: a
    socket that is closed with unread bytes drops the bytes that it has yet to send. None if nothing can be sent."""
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
