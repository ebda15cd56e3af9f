"""`Broker`: a broker in a process of its own. It ends with the process that started it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from barnabas.assertions import WithAssertions
from barnabas.child import Asked, BrokerError, Child, InBlocks, QuestionRefusedError
from barnabas.faults import WithFaults
from barnabas.journal import WithJournal
from barnabas.now import WithNowVerbs
from barnabas.secured import Secured

if TYPE_CHECKING:
    from barnabas.looking import Topics
    from barnabas.security import Security

_LOGICAL_LINE = re.compile(r"^[ \t\f]*(?:[#!].*|(?:[^\\\n]+|\\[\s\S])*)", re.MULTILINE)
_LINE_BREAK = re.compile(r"\\\n[ \t\f]*")
_PROPERTY = re.compile(r"[ \t\f]*((?:[^\\=: \t\f]|\\.)+)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+|$)(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def value_in(text: str, name: str) -> str | None:
    """Return the value of a property in the text of a .properties file, or None if it isn't there. Escapes of
    characters that aren't ASCII stay as they are."""
    value = None
    for line in _LOGICAL_LINE.findall(text.replace("\r\n", "\n").replace("\r", "\n")):
        found = _PROPERTY.fullmatch(_LINE_BREAK.sub("", line))
        if found is not None and _ESCAPED.sub(r"\1", found[1]) == name:
            value = _ESCAPED.sub(r"\1", found[2])
    return value


def cluster_id_in(folder: Path) -> str | None:
    """Return the cluster id from a node's `meta.properties`. Raises FileNotFoundError if the folder isn't formatted."""
    found = value_in((folder / "meta.properties").read_text("utf-8", errors="replace"), "cluster.id")
    return None if found is None else found.strip()


# --- Ports that brokers keep from before their first start until they are closed, whether they run or not ---


class HeldPorts:
    """Holds one free port on each of these hosts; hosts may repeat. On Linux the system gives a held port to nobody
    else: a socket is bound to it without listening. A node that asks for exactly this port can still bind its own
    socket beside it."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """An empty host means all interfaces. Raises OSError if a host isn't one of this machine's."""
        sockets: list[socket.socket] = []
        self.let_go = weakref.finalize(self, _close, sockets)
        """Release the ports, so that anybody may have them."""
        try:
            for host in hosts:
                family, *_, address = _address(host)
                sockets.append(socket.socket(family, socket.SOCK_STREAM))
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sockets[-1].bind(address)
            self.numbers = [int(each.getsockname()[1]) for each in sockets]
        except OSError:
            self.let_go()
            raise
        if sys.platform != "linux":  # on other systems two sockets can't be bound to one port
            self.let_go()


def _address(host: str) -> tuple[Any, ...]:
    return socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


# --- The broker ---------------------------------------------------------------------------------------------

__all__ = ["Broker", "BrokerError"]

LAUNCHER = Path(__file__).with_name("launcher.py")

_FREE_PORT = re.compile(r"((?:[^:/]+://)?)(.*):0+")

_NOT_OF_THIS_MACHINE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Clock:
    """A broker's time. It is the machine's, unless a test moves or stops it. Everything in the broker goes by it:
    sessions, timeouts of transactions, retention, delayed answers. The timers of clients don't."""

    def __init__(self, ask: Callable[[Mapping[str, object]], Any]) -> None:
        self._ask = ask

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return float(self._told()["now_ms"]) / 1000

    @property
    def frozen(self) -> bool:
        """True if the clock is stopped."""
        return bool(self._told()["stands"])

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Move the clock on. When this returns, everything that was due on the way has happened, in order."""
        late = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._told(do="advance", ms=round(late.total_seconds() * 1000))

    def freeze(self) -> None:
        """Stop the clock until `run()`. Only `advance` and `skip_to_next` move it meanwhile."""
        self._told(do="freeze")

    def skip_to_next(self) -> None:
        """Move the clock to when the next thing is due. It has happened when this returns."""
        self._told(do="skip_to_next")

    def run(self) -> None:
        """Let the clock run again by itself, from where it stopped."""
        self._told(do="run")

    def _told(self, **how: object) -> Any:
        return self._ask({"ask": "clock", **how})


class Snapshot:
    """A broker's state at one moment, in a folder at `path`. It is removed with this object, or by `remove()`."""

    def __init__(self) -> None:
        root = Path(tempfile.mkdtemp(prefix="barnabas-snapshot-"))
        self.path = root / "data"
        self._end = weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder now."""
        self._end()


class Broker(InBlocks, Secured, WithFaults, WithJournal, WithNowVerbs, WithAssertions):
    """One broker on loopback; use it in `with` or `async with`, or call `start()` and `close()`.

    data: the folder for its data, which is kept when the broker is closed. Without one it works in a temporary
        folder, which is removed at the end.
    port: None or 0 takes a free one. If `config` or `properties` name `listeners`, these decide instead of `host` and
        `port`.
    config: settings by Kafka's names, such as {"num.partitions": 3}; they win over `properties`. A value is a text, a
        number, a bool or several texts. With a name that Kafka doesn't have the broker doesn't start.
    properties: path of a `server.properties` file.
    kafka_version: the Kafka whose metadata.version a new cluster begins with, such as "4.3" (4.3-IV0); by default the
        latest one.
    log_level: "debug", "info", "warning" or "error".
    startup_timeout_s: how long `start()` waits until it is ready. It first reads through a folder that was not closed
        cleanly.
    security: "sasl_ssl", "ssl" (clients show certificates), "sasl_plaintext" or "plaintext": the kind of its listener.
        Nobody may do anything there until `allow(...)` says so. `client_config(...)` is what a client needs to connect.
        Encryption needs the extra `security`.
    users: passwords by user name, or only names; then the passwords are drawn.
    tokens: clients may also sign in by tokens (OAUTHBEARER), which `token(...)` makes. Needs the extra `security`.
    topics: topics that are there from the start on, and after each `reset()`, as `create_topics` takes them.

    Folder and port stay over stops and kills, until `close()` or the end of the block. `KAFKA_*` variables of the
    environment have no effect here; only a broker started by hand reads them. Not safe to share between threads. A
    process forked from this one leaves the broker alone.
    """

    def __init__(
        self,
        *,
        data: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        config: Mapping[str, object] | None = None,
        properties: str | os.PathLike[str] | None = None,
        kafka_version: str | None = None,
        log_level: str | None = None,
        startup_timeout_s: float = 60.0,
        security: str | None = None,
        users: Mapping[str, str] | Iterable[str] | None = None,
        tokens: bool = False,
        topics: Topics | None = None,
    ) -> None:
        self._topics: Topics = topics or {}
        self._control_token: str | None = None
        self._arguments: dict[str, Any] = {
            "host": host,
            "config": config,
            "properties": properties,
            "kafka_version": kafka_version,
            "log_level": log_level,
            "startup_timeout_s": startup_timeout_s,
            "security": security,
            "users": users,
            "tokens": tokens,
        }
        self._host = host
        self._port = port or 0
        self._ports: dict[str, int] = {}  # port numbers by the address as it is written in the listeners
        self._held_ports: list[HeldPorts] = []
        self._config = _config_texts(config or {})
        if not self._config.keys().isdisjoint(("log.dir", "log.dirs")):
            raise ValueError("a broker's folder is given as data=..., not by log.dirs")
        self._properties = None if properties is None else Path(properties).absolute()
        self._kafka_version = kafka_version
        self._log_level = log_level
        self._startup_timeout_s = startup_timeout_s
        self._data = None if data is None else Path(data).absolute()
        self._security = made_security(security, users, tokens, (host,), self._config)
        self._listeners: dict[str, str] = {}
        self._bootstrap = ""
        self._is_first_start = True
        self._spare: Broker | None = None
        """The broker that the next fork will be. It is started already, and empty."""
        self._forked_cluster_id: str | None = None
        self._child = self._new_child()
        weakref.finalize(self, self._child.end)

    def start(self) -> Self:
        """Start it and wait until it answers. Raises BrokerError, with its reason, if it does not.

        After `stop()` and `kill()`, or if it has ended by itself, it starts on the same folder and port.
        """
        if os.name != "posix":
            raise OSError("barnabas needs a POSIX system")
        self._begin_to_start()
        return self._wait_until_started()

    def _begin_to_start(self) -> None:
        child = self._child
        if child.runs:
            raise RuntimeError("this broker was started already")
        child.kill()  # it has ended by itself, if there was one
        if self._data is None and child.temporary_folder is None:
            child.temporary_folder = Path(tempfile.mkdtemp(prefix="barnabas-"))
        try:
            with contextlib.ExitStack() as held:
                secrets = self._secret_settings()
                inherited = () if secrets is None else (held.enter_context(_unnamed(secrets)).fileno(),)
                child.spawn(
                    lambda control_fd: self._command(control_fd) + _overrides_in(inherited),
                    self._first_question(),
                    inherited,
                )
        except BaseException:
            self._give_up_start()
            raise

    def _wait_until_started(self) -> Self:
        try:
            ready = self._child.wait_until_ready(self._startup_timeout_s)
            self._secure()
            if self._is_first_start:
                self._make_topics(self._topics, if_missing=True)
        except BaseException:
            self._give_up_start()
            raise
        self._bootstrap = ready["bootstrap"]
        self._listeners = ready["listeners"]
        self._is_first_start = False
        return self

    def _give_up_start(self) -> None:
        self._child.kill()
        if self._is_first_start:
            self._forget()

    def _first_question(self) -> Mapping[str, object] | None:
        """Return the question to ask the process before all others, or None if there is none."""
        return None

    def stop(self) -> None:
        """Stop it cleanly; then `start()` or `close()` it. Does nothing if it doesn't run.

        Raises BrokerError if it had ended by itself, or fails to end well.
        """
        self._child.stop()

    def close(self) -> None:
        """Stop it cleanly, if it runs, and remove its folder if that is temporary. `start()` then starts a new one.

        Raises BrokerError if it had ended by itself, or fails to end well.
        """
        spare, self._spare = self._spare, None
        try:
            if spare is not None:
                spare._end_at_once()
            self.stop()
        finally:
            self._forget()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would."""
        self._child.kill()

    def restart(self) -> None:
        """Stop it cleanly, if it runs, and start it again, however it ended."""
        with contextlib.suppress(BrokerError):
            self.stop()
        self.start()

    # --- what it holds, at another moment ---------------------------------------------------------------------

    def reset(self) -> None:
        """Empty it, as when it was first started. It takes milliseconds, in the same process and on the same port.
        Connections end, and no fault is armed any more. Its users are there again, its rules aren't.

        Raises BrokerError if it doesn't run.
        """
        self._begin_anew(None)

    def snapshot(self) -> Snapshot:
        """A copy of all that it holds now, for `restore` and `fork`, with open transactions and groups. It is what a
        crash at this moment would leave, and barnabas and Apache Kafka can start on it."""
        found = Snapshot()
        self._ask({"ask": "copy", "to": str(found.path)})
        return found

    def restore(self, snapshot: Snapshot) -> None:
        """Put it back to the moment of the snapshot. Otherwise it is like `reset`."""
        self._begin_anew(snapshot)

    def fork(self, snapshot: Snapshot | None = None) -> Broker:
        """A second broker that goes on from now, or from the snapshot, on ports of its own. It is started already, and
        has this one's settings and users. Close it like any other.

        The first fork takes as long as a start. Each fork also starts the next one in advance, which then only has to
        read the snapshot. This broker's `close()` ends the one that is left over.
        """
        taken = snapshot or self.snapshot()
        other, self._spare = self._spare or self._begun_fork(), None
        try:
            other._wait_until_started()
            other.restore(taken)
        except BaseException:
            other._end_at_once()
            raise
        self._spare = self._begun_fork()
        return other

    def _begun_fork(self) -> Broker:
        arguments = dict(self._arguments)
        if self._security is not None:
            arguments["users"] = self._security.users  # with the passwords that were drawn
        other = type(self)(**arguments)
        other._forked_cluster_id = cluster_id_in(self.data)
        other._begin_to_start()
        return other

    def _end_at_once(self) -> None:
        """Kill it and keep nothing of it."""
        self._child.kill()
        self._forget()

    @property
    def clock(self) -> Clock:
        """The broker's time, which a test can move."""
        return Clock(self._ask)

    def _begin_anew(self, snapshot: Snapshot | None) -> None:
        self._ask({"ask": "begin_anew", "copy": None if snapshot is None else str(snapshot.path)})
        self._armed_faults().clear()
        self._add_users()
        if snapshot is None:
            self._make_topics(self._topics, if_missing=True)

    def _ask(self, question: Mapping[str, object]) -> Any:
        """Ask the broker and return its answer. Raises BrokerError."""
        if not self.running:
            raise BrokerError("the broker doesn't run")
        try:
            return self._child.ask(question)
        except QuestionRefusedError as refusal:
            raise BrokerError(str(refusal)) from None

    def pause(self) -> None:
        """SIGSTOP: it does nothing, and its connections stay, as if its machine hung. No effect if it is paused."""
        if not self.running:
            raise RuntimeError("the broker doesn't run, so it can't be paused")
        self._child.pause()

    def resume(self) -> None:
        """SIGCONT: it goes on, and notices that time has passed. No effect if it isn't paused."""
        self._child.resume()

    def _forget(self) -> None:
        """Remove the temporary folder and release the ports."""
        self._child.remove_temporary_folder()
        self._let_go_of_tokens()
        for held in self._held_ports:
            held.let_go()
        self._held_ports = []
        self._ports = {}
        self._bootstrap = ""
        self._listeners = {}
        self._is_first_start = True

    def __repr__(self) -> str:
        state = "paused" if self.paused else self._bootstrap if self.running else "not running"
        return f"<barnabas.Broker {state}>"

    @property
    def running(self) -> bool:
        """True if its process runs."""
        return self._child.runs

    @property
    def paused(self) -> bool:
        """True between `pause()` and `resume()`."""
        return self._child.paused

    @property
    def bootstrap(self) -> str:
        """`host:port` for a client's bootstrap servers. It stays while the broker is stopped, until it is closed."""
        if not self._bootstrap:
            raise RuntimeError("this broker was not started, or is closed")
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
        """The process id of the broker that runs now, or ran last."""
        return self._child.pid

    @property
    def data(self) -> Path:
        """The folder of its data."""
        folder = self._data or self._child.temporary_folder
        if folder is None:
            raise RuntimeError("this broker has no folder before it is started, nor after it is closed")
        return folder

    @property
    def log(self) -> str:
        """All that it has printed since it was first started, a line for each event."""
        return self._child.log_text

    # --- for programs in other languages ----------------------------------------------------------------------

    @property
    def control_url(self) -> str:
        """The address at which a program in any language can do over HTTP what a test can: `http://host:port/v1`. The
        first call opens it, on a free loopback port. A stop or a kill changes the port, a reset doesn't. Needs the
        extra `metrics`. Raises BrokerError if the broker doesn't run."""
        found = self._ask({"ask": "serve_http", "token": self.control_token})
        return f"http://{found['host']}:{found['port']}/v1"

    @property
    def control_token(self) -> str:
        """The token that each request there has to bring, as `Authorization: Bearer TOKEN`."""
        if self._control_token is None:
            from secrets import token_urlsafe

            self._control_token = token_urlsafe()
        return self._control_token

    # --- security -------------------------------------------------------------------------------------------

    def rotate_certificates(self, *, expired: bool = False) -> None:
        """Give it another key and certificate. New connections see it, open ones stay. `expired`: one that has expired,
        so that no client can connect any more. Raises ValueError if its listener isn't encrypted."""
        if self._security is None:
            raise ValueError("this broker's listener isn't encrypted by Broker(security=...)")
        self._security.rotate(self.data, expired=expired)
        if self.running:
            self._child.ask({"ask": "renew_certificates"})

    @property
    def _is_secured(self) -> bool:
        """True if its listener is the one that `security` describes. The nodes of a cluster have the cluster's
        listeners."""
        return self._security is not None

    def _security_listener(self) -> str:
        assert self._security is not None
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._security.protocol}://{host}:{self._port}"

    def _secure(self) -> None:
        """Do what has to be done before anybody learns its address: add the users at the first start."""
        if self._is_first_start:
            self._add_users()

    def _secret_settings(self) -> Mapping[str, str] | None:
        """Return the settings that a list of processes mustn't show, or None if there are none."""
        if self._security is None:
            return None
        return {
            **self._security.settings(self.data),
            "inter.broker.listener.name": self._security.protocol,
        }

    def _decider(self) -> Asked:
        return self._child

    def _followers(self) -> Sequence[Asked]:
        return [self._child]

    def _named_nodes(self) -> Iterable[tuple[str, Asked]]:
        return [("", self._child)]

    def _asked_brokers(self) -> Sequence[Asked]:
        return [self._child]

    def _new_child(self) -> Child:
        return Child()

    def _command(self, control_fd: int) -> list[str]:
        command = [*_launch(), "--control-fd", str(control_fd), "--data", str(self.data)]
        if self._data is None:
            command += ["--temporary"]
        if self._properties is not None:
            command += ["--config", str(self._properties)]
        if self._kafka_version is not None:
            command += ["--release-version", self._kafka_version]
        if self._log_level is not None:
            command += ["--log-level", self._log_level]
        if self._forked_cluster_id is not None:
            command += [f"--cluster-id={self._forked_cluster_id}"]
        listeners = self._said_listeners()
        config = dict(self._config)
        if listeners is None:
            (port,) = self._with_ports([f"{self._host}:{self._port}"])
            command += ["--host", self._host, "--port", port.rpartition(":")[2]]
        elif self._is_secured or any(map(_FREE_PORT.fullmatch, listeners)):
            config["listeners"] = ",".join(self._with_ports(listeners))
        return command + _overrides(config)

    def _said_listeners(self) -> list[str] | None:
        """Return the listeners that security, config or properties name, or None if none of them does."""
        if self._is_secured:
            return [self._security_listener()]
        text = self._config.get("listeners")
        if text is None and self._properties is not None and self._properties.is_file():
            text = value_in(self._properties.read_text("utf-8-sig", errors="replace"), "listeners")
        return None if text is None else [each.strip() for each in text.split(",")]

    def _with_ports(self, addresses: Sequence[str]) -> list[str]:
        """Replace port 0 in each address with a port that was free when the address first came up. Nobody else has had
        that port since."""
        free = {address: found for address in addresses if (found := _FREE_PORT.fullmatch(address))}
        new = [address for address in free if address not in self._ports]
        if new:
            self._hold_ports(new, [free[address][2].strip("[]") for address in new])
        return [
            f"{free[address][1]}{free[address][2]}:{self._ports[address]}"
            if address in self._ports
            else address
            for address in addresses
        ]

    def _hold_ports(self, addresses: Sequence[str], hosts: Sequence[str]) -> None:
        """Hold a free port on each host. If a host is unknown or isn't one of this machine's, hold none: the broker
        can't listen there either, and its own error is better. Raises OSError for anything else, such as no port
        left."""
        try:
            held = HeldPorts(hosts)
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno in _NOT_OF_THIS_MACHINE:
                return
            raise
        self._held_ports.append(held)
        self._ports.update(zip(addresses, held.numbers, strict=True))


def made_security(
    security: str | None,
    users: Mapping[str, str] | Iterable[str] | None,
    tokens: bool,
    hosts: Sequence[str],
    config: Mapping[str, object],
) -> Security | None:
    """Return the security of a broker or a cluster, or None. Raises ValueError if the arguments contradict each other,
    and RuntimeError if the extra `security` is missing."""
    if security is None:
        if users is not None or tokens:
            raise ValueError('users=... and tokens=True need security=..., such as "sasl_plaintext"')
        return None
    from barnabas.security import SET_BY_SECURITY, Security

    taken = SET_BY_SECURITY.intersection(config)
    if taken:
        raise ValueError(f"{', '.join(sorted(taken))}: security={security!r} sets that itself")
    return Security(security, users, hosts, tokens=tokens)


def _unnamed(settings: Mapping[str, str]) -> IO[bytes]:
    """Return a temporary file without a name that holds the settings. No other process can find it."""
    from barnabas.security import properties_text

    file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
    file.write(properties_text(settings).encode())
    return file


def _overrides_in(descriptors: Sequence[int]) -> list[str]:
    return [part for each in descriptors for part in ("--override-fd", str(each))]


def check_settings(config: Mapping[str, object]) -> str | None:
    """Return in one line why a broker doesn't start with these settings, or None if it does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    command = [*_launch(), "--check", *_overrides(_config_texts(config))]
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return checked.stderr.strip().removeprefix("barnabas: ") if checked.returncode else None


def _launch() -> list[str]:
    # -P keeps the launcher's own folder off the broker's path: its modules belong to the front.
    return [sys.executable, "-P", str(LAUNCHER)]


def _overrides(config: Mapping[str, str]) -> list[str]:
    return [part for name, value in config.items() for part in ("-o", f"{name}={value}")]


def _config_texts(config: Mapping[str, object]) -> dict[str, str]:
    return {name: _config_text(name, value) for name, value in config.items()}


def _config_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Sequence) and all(isinstance(part, str) for part in value):
        return ",".join(value)
    raise TypeError(f"{name}={value!r}: a setting is a text, a number, a bool or several texts")
