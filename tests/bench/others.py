"""Brokers that this project knows nothing of: one that runs at an address, or one that a command starts."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from pathlib import Path

import psutil

from tests.support.ports import free_ports, is_listening

HOST = "127.0.0.1"
PATIENCE_S = 60.0
POLL_S = 0.001


class AtAddress:
    """One that runs already and goes on afterwards. Its process, where it is one of this machine that may be seen, is
    found by the port that it listens on; else nothing of its memory and processor time is known (`pid` raises
    LookupError)."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.data = folder

    @property
    def pid(self) -> int:
        port = int(self.bootstrap.rpartition(":")[2])
        for process in psutil.process_iter():
            try:
                connections = process.net_connections("tcp")
            except (psutil.AccessDenied, psutil.NoSuchProcess):
                continue
            if any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections):
                return process.pid
        raise LookupError(f"no process that may be seen here listens on port {port}")

    def start(self) -> None:
        self.data.parent.mkdir(parents=True, exist_ok=True)

    def stop(self) -> None:
        """It isn't ours to stop."""

    kill = stop


class ByCommand:
    """One that `command` starts, in which `{port}` stands for the port that it is to listen on and `{folder}` for an
    empty folder. It ends by SIGINT, as a Ctrl-C would have it."""

    def __init__(self, command: str, folder: Path) -> None:
        self.data = folder
        (self._port,) = free_ports(1)
        self.bootstrap = f"{HOST}:{self._port}"
        self._command = [part.format(port=self._port, folder=folder) for part in shlex.split(command)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Raises RuntimeError where nothing listens in time."""
        self.data.mkdir(parents=True, exist_ok=True)
        log = self.data.with_name(f"{self.data.name}.log")
        with log.open("ab") as written:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=written, stderr=subprocess.STDOUT
            )
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_listening(HOST, self._port):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise RuntimeError(f"{shlex.join(self._command)} doesn't listen:\n{log.read_text()[-2000:]}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        self._end(signal.SIGTERM)  # who runs in the background may be deaf to SIGINT

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None
