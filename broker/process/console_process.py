"""`barnabas --console`: a console beside a broker, in a process of its own that ends with the broker.

The console is a client of the broker like any other. It costs the broker only its requests.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker.quorum.controller_server import ControllerNode
    from broker.server import Server

log = logging.getLogger("barnabas")

LAST_WORDS_S: Final = 5.0
"""How long a console may take to end before it is killed."""
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from cli.main import main; sys.exit(main(sys.argv[1:]))"
)


class ConsoleProcess:
    """The console's process. Its standard input is a pipe from this process, so that it ends when this one does."""

    def __init__(self, bootstrap: str, listen: str, metrics: str = "") -> None:
        floors = str(Path(__file__).parents[2])
        listening = ["--listen", listen] if listen else []
        watching = ["--metrics", metrics] if metrics else []
        # It has a session of its own, so that it doesn't get the terminal's signals to the broker.
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _START,
                floors,
                "console",
                "--bootstrap",
                bootstrap,
                "--parent-fd",
                "0",
                *listening,
                *watching,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the console, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start_console(server: Server | ControllerNode, listen: str) -> ConsoleProcess | None:
    """Start a console. Returns None, with a warning, if that isn't possible: the console knows no password, so it needs
    a listener without security."""
    plain = {each.name for each in server.endpoints if each.security_protocol == "PLAINTEXT"}
    for name, host, port, _ in server.endpoints.all_advertised():
        if name in plain:
            metrics = "" if server.metrics is None else server.metrics.address
            try:
                return ConsoleProcess(
                    f"[{host}]:{port}" if ":" in host else f"{host}:{port}", listen, metrics
                )
            except OSError as error:
                log.warning("--console: it can't be started: %s", error.strerror or error)
                return None
    log.warning(
        "--console: there is no listener without security: start it by `barnabas console --config FILE`, with the"
        " settings of a client"
    )
    return None
