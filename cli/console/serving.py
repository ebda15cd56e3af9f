"""The console's process: it listens, says where, and ends on a signal or with the process that started it."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any, Final

import uvicorn

from cli.console.app import Console
from cli.console.guard import Guard, is_loopback
from cli.console.sections import Sections
from cli.console.views import Shown
from cli.errors import CommandError
from cli.options import host_and_port
from cli.output import say

DEFAULT_LISTEN: Final = "127.0.0.1:8095"
MOST_CONNECTIONS: Final = 200
KEEP_ALIVE_S: Final = 20
LAST_ANSWERS_S: Final = 1
TOKEN_VARIABLE: Final = "BARNABAS_CONSOLE_TOKEN"  # noqa: S105 - a name


def serve(
    shown: Shown,
    sections: Sections,
    about: Mapping[str, Any],
    listen: str,
    names: tuple[str, ...] = (),
    parent_fd: int | None = None,
) -> None:
    """Serve until a signal, or until the parent's end closes the other end of `parent_fd`. Raises CommandError."""
    host, port = host_and_port(listen, "--listen")
    token = "" if is_loopback(host) else os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=64)
    except OSError as error:
        reason = error.strerror or error
        raise CommandError(
            f"the console can't listen on {listen}: {reason} (--listen takes another)"
        ) from None
    console = Console(shown, sections, Guard(host, token, names), about)
    server = _Server(
        uvicorn.Config(
            console.app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=LAST_ANSWERS_S,
        ),
        console,
        sections,
    )
    if parent_fd is not None:
        threading.Thread(target=_end_with_parent, args=(parent_fd, server), daemon=True).start()
    shown_host = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):  # noqa: S104 - what somebody asked for
        shown_host = socket.gethostname()
    query = f"/?token={token}" if token else "/"
    say(f"the console: http://{shown_host}:{listener.getsockname()[1]}{query}")
    with listener:
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Closes the pages' streams of changes at the end."""

    def __init__(self, config: uvicorn.Config, console: Console, sections: Sections) -> None:
        super().__init__(config)
        self._console = console
        self._sections = sections

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Like uvicorn's method, after waking the pages."""
        self._console.is_ending = True
        self._sections.wake()
        await super().shutdown(sockets)


def _end_with_parent(fd: int, server: uvicorn.Server) -> None:
    while os.read(fd, 4096):
        pass
    server.should_exit = True
