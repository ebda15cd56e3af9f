"""Apache Kafka itself, through the runner `tests/kafka/kafka`: a broker to compare with, and its tools."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.kafka_tools import Ended, ToolServer
from tests.support.ports import free_ports

RUNNER = Path(__file__).parents[1] / "kafka" / "kafka"
UNAVAILABLE_STATUS = 69
START_ATTEMPTS = 3

BEFORE = "4.3.1"
"""The Kafka that is lived with as well; all else is held against that of `tests/kafka/pom.xml`."""

# Tools end after a second or two, a broker of the tests within minutes: the first compiler is all that pays off.
TOOL_OPTIONS = "-Xmx512m -XX:TieredStopAtLevel=1"
BROKER_OPTIONS = "-Xmx768m -XX:TieredStopAtLevel=1"

# What the runner does in a process of its own: a program of the tests' is no tool, and may leave anything behind.
PROCESSES = ("class", "classpath")
_tools = ToolServer(RUNNER, TOOL_OPTIONS)


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """A running broker: where it answers, and the folder with `data/`, `server.properties`, `broker.log`."""

    bootstrap: str
    directory: Path
    version: str | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def kill(self) -> None:
        """As by SIGKILL. It has to be started again before `running` ends."""
        subprocess.run([RUNNER, "kill", self.directory], check=True)

    def start_again(self) -> None:
        """On the same ports, with the settings that it had. Returns when it answers."""
        started = _run("node", self.directory, version=self.version)
        assert started.returncode == 0, started.stderr


def why_unavailable() -> str:
    """Why Apache Kafka can't be had on this machine, "" where it can. May fetch its jars: 126 MB, once."""
    found = subprocess.run([RUNNER, "classpath"], capture_output=True, text=True, check=False)
    if found.returncode not in (0, UNAVAILABLE_STATUS):
        raise RuntimeError(f"{RUNNER} classpath: {found.stderr}")
    return found.stderr.strip().removeprefix("kafka: ") if found.returncode else ""


def tool(
    name: str,
    *arguments: str | Path,
    stdin: str | bytes = "",
    timeout_s: float = 90.0,
    check: bool = True,
    version: str | None = None,
) -> str:
    """What one of Kafka's tools printed to its standard output; AssertionError if it fails, unless told."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    ended = None
    if name not in PROCESSES and version is None:
        ended = _tools.run([name, *map(str, arguments)], given, timeout_s)
    if ended is None:
        ended = _process(name, *arguments, stdin=given, timeout_s=timeout_s, version=version)
    output, errors = (text.decode(errors="replace") for text in (ended.output, ended.errors))
    assert ended.status == 0 or not check, f"kafka {name}: status {ended.status}\n{output}\n{errors}"
    return output


def _process(name: str, *arguments: str | Path, stdin: bytes, timeout_s: float, version: str | None) -> Ended:
    ended = subprocess.run(
        [RUNNER, name, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=timeout_s,
        env=_environment(TOOL_OPTIONS, version),
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def _environment(options: str, version: str | None, release: str | None = None) -> dict[str, str]:
    found = {**os.environ, "KAFKA_OPTS": options}
    if version is not None:
        found["KAFKA_VERSION"] = version
    if release is not None:
        found["KAFKA_RELEASE"] = release
    return found


@contextlib.contextmanager
def running(
    directory: Path, *settings: str, version: str | None = None, release: str | None = None
) -> Iterator[ApacheKafka]:
    """A broker on free ports, with `key=value` settings, that works in a subfolder of `directory`. `release`: the one
    whose level its cluster begins with."""
    with _ended(_start(directory, settings, version, release)) as kafka:
        yield kafka


@contextlib.contextmanager
def node(
    directory: Path, settings: Mapping[str, object], *, version: str | None = None
) -> Iterator[ApacheKafka]:
    """A node of a cluster: `settings` are all that it has, with its first listener on a port that is free. Where they
    name no `log.dirs` it works in a subfolder of `directory`. It is killed at the end: of a stop, a broker waits for
    its controller's leave."""
    directory.mkdir(parents=True)
    given = {"log.dirs": directory / "data", **settings}
    text = "".join(f"{name}={value}\n" for name, value in given.items())
    (directory / "server.properties").write_text(text)
    started = _run("node", directory, version=version)
    if started.returncode:
        raise RuntimeError(f"Apache Kafka did not start: {started.stderr}")
    with _ended(ApacheKafka(started.stdout.strip(), directory, version), "kill") as kafka:
        yield kafka


@contextlib.contextmanager
def _ended(kafka: ApacheKafka, how: str = "down") -> Iterator[ApacheKafka]:
    # Where this process is killed, its end of the pipe closes and the shell ends what it would leave.
    guard = subprocess.Popen(
        ["/bin/sh", "-c", 'cat; [ ! -e "$1/pid" ] || exec "$0" kill "$1"', RUNNER, kafka.directory],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield kafka
    finally:
        subprocess.run([RUNNER, how, kafka.directory], check=True)
        guard.communicate()


def _up(
    folder: Path, port: str, settings: Sequence[str], version: str | None, release: str | None
) -> subprocess.CompletedProcess[str]:
    return _run("up", folder, port, *settings, version=version, release=release)


def _run(
    verb: str, folder: Path, *arguments: str, version: str | None = None, release: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [RUNNER, verb, folder, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=_environment(BROKER_OPTIONS, version, release),
        check=False,
    )


def _start(
    directory: Path, settings: tuple[str, ...], version: str | None, release: str | None
) -> ApacheKafka:
    for attempt in range(1, START_ATTEMPTS + 1):
        port, controller_port = free_ports(2)
        folder = directory / f"attempt-{attempt}"
        # The runner's own lines come first, and the last value of a setting counts.
        ports = [
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        ]
        started = _up(folder, str(port), [*ports, *settings], version, release)
        if started.returncode == 0:
            return ApacheKafka(started.stdout.strip(), folder, version)
    raise RuntimeError(f"Apache Kafka did not start: {started.stderr}")
