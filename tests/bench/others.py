"""Brokers that this project doesn't know: one that runs at an address, or one that a command starts."""

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
    """A broker that is already running, and goes on afterwards. Its process is found by the port that it listens on, if
    it runs on this machine and is visible. Otherwise its memory and processor time are unknown (`pid` raises
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
        """Do nothing: it isn't ours to stop."""

    kill = stop


class ByCommand:
    """A broker that `command` starts. In it `{port}` stands for the port to listen on, and `{folder}` for an empty
    folder. It is stopped by SIGTERM."""

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
        """Start it. Raises RuntimeError if nothing listens in time."""
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
        self._end(signal.SIGTERM)  # processes in the background may ignore SIGINT

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(PATIENCE_S)
            self._process = None
