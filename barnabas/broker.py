"""`Broker`: a broker as a process of its own, which lives no longer than the one that started it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from barnabas.blocks import InBlocks
from barnabas.child import BrokerError, Child

__all__ = ["Broker", "BrokerError"]

LAUNCHER = Path(__file__).with_name("launcher.py")


class Broker(InBlocks):
    """One broker on loopback; use it in `with` or `async with`, or call `start()` and `stop()`.

    data: the folder of its topics, kept when the broker stops. Without one it works in a temporary
        folder, which goes with it.
    port: None or 0 has the broker take a free one. Where `config` or `properties` name `listeners`,
        these decide instead of `host` and `port`.
    config: settings by Kafka's names, such as {"num.partitions": 3}; they win over `properties`. A value is a text, a
        number, a bool or several texts. A name that Kafka doesn't have keeps the broker from starting.
    properties: path of a `server.properties` file.
    log_level: "debug", "info", "warning" or "error".
    startup_timeout_s: how long `start()` waits for it to be ready (a folder that was not closed
        well is read through first).

    The environment's `KAFKA_*` variables, which a broker started by hand listens to, count for nothing.
    Not safe to share between threads. A process forked from this one leaves the broker alone.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        config: Mapping[str, object] | None = None,
        properties: str | os.PathLike[str] | None = None,
        log_level: str | None = None,
        startup_timeout_s: float = 60.0,
    ) -> None:
        self._host = host
        self._asked_port = self._port = port or 0
        self._config = {name: _config_text(name, value) for name, value in (config or {}).items()}
        if not self._config.keys().isdisjoint(("log.dir", "log.dirs")):
            raise ValueError("a broker's folder is given as data=..., not by log.dirs")
        self._properties = None if properties is None else Path(properties).absolute()
        self._log_level = log_level
        self._startup_timeout_s = startup_timeout_s
        self._data = None if data is None else Path(data).absolute()
        self._listeners: dict[str, str] = {}
        self._bootstrap = ""
        self._makes_folder = False
        self._child = self._new_child()
        weakref.finalize(self, self._child.end)

    def start(self) -> Self:
        """Start it and wait until it answers. Raises BrokerError, with its reason, if it does not.

        After `kill()`, and where it has ended by itself, it starts on the same folder and port.
        """
        if os.name != "posix":
            raise OSError("barnabas needs a POSIX system")
        self._begin_to_start()
        return self._wait_until_started()

    def _begin_to_start(self) -> None:
        child = self._child
        if child.runs:
            raise RuntimeError("this broker was started already")
        child.forget()
        self._makes_folder = self._data is None and child.temporary_folder is None
        if self._makes_folder:
            child.temporary_folder = Path(tempfile.mkdtemp(prefix="barnabas-"))
        try:
            child.spawn(self._command, self._first_question())
        except BaseException:
            self._give_up_start()
            raise

    def _wait_until_started(self) -> Self:
        try:
            ready = self._child.wait_until_ready(self._startup_timeout_s)
        except BaseException:
            self._give_up_start()
            raise
        self._bootstrap = ready["bootstrap"]
        self._listeners = ready["listeners"]
        self._port = self.port
        return self

    def _give_up_start(self) -> None:
        self._child.kill()
        if self._makes_folder:
            self._child.remove_temporary_folder()

    def _first_question(self) -> Mapping[str, object] | None:
        """What the process is asked before all else, where it is anything."""
        return None

    def stop(self) -> None:
        """Stop it cleanly, and remove its folder if that is temporary; nothing if it doesn't run.

        Raises BrokerError if it had ended by itself, or fails to end well.
        """
        child = self._child
        try:
            if child.temporary_folder is None:
                child.terminate()
            else:
                child.let_go()
        finally:
            child.remove_temporary_folder()
            self._port = self._asked_port

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would. Its folder stays, for `start()` or until `stop()`."""
        self._child.kill()

    def restart(self) -> None:
        """Stop it cleanly, if it runs, and start it on the same folder and port, however it ended."""
        with contextlib.suppress(BrokerError):
            self._child.terminate()
        self.start()

    def __repr__(self) -> str:
        return f"<barnabas.Broker {self._bootstrap if self.running else 'not running'}>"

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._child.runs

    @property
    def bootstrap(self) -> str:
        """`host:port` for a client's bootstrap servers. It outlives `kill()`."""
        if not self._bootstrap:
            raise RuntimeError("this broker was not started")
        return self._bootstrap

    @property
    def host(self) -> str:
        return self.bootstrap.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def listeners(self) -> dict[str, str]:
        """Each listener's name and the `host:port` that it advertises."""
        return dict(self._listeners)

    @property
    def pid(self) -> int:
        """The process id of the broker that runs, or ran last."""
        return self._child.pid

    @property
    def data(self) -> Path:
        """The folder of its topics."""
        folder = self._data or self._child.temporary_folder
        if folder is None:
            raise RuntimeError("this broker has no folder before it is started, nor after it is stopped")
        return folder

    @property
    def log(self) -> str:
        """All that it printed since it was first started, one event a line."""
        return self._child.log_text

    def _new_child(self) -> Child:
        return Child()

    def _command(self, control_fd: int) -> list[str]:
        # -P keeps the launcher's own folder, whose modules are the front's, off the broker's path.
        command = [sys.executable, "-P", str(LAUNCHER), "--control-fd", str(control_fd)]
        command += ["--data", str(self.data)]
        if self._data is None:
            command += ["--temporary"]
        if self._properties is not None:
            command += ["--config", str(self._properties)]
        if not self._names_listeners():
            command += ["--host", self._host, "--port", str(self._port)]
        if self._log_level is not None:
            command += ["--log-level", self._log_level]
        for key, value in self._config.items():
            command += ["-o", f"{key}={value}"]
        return command

    def _names_listeners(self) -> bool:
        if "listeners" in self._config:
            return True
        if self._properties is None or not self._properties.is_file():
            return False
        text = self._properties.read_text("utf-8", errors="replace")
        return re.search(r"^\s*listeners\s*[=:\s]", text, re.MULTILINE) is not None


def _config_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    raise TypeError(f"{name}={value!r}: a setting is a text, a number, a bool or several texts")
