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
"""An older Kafka that must also work with barnabas. All other tests compare with the version in
`tests/kafka/pom.xml`."""

# Tools end after a second or two, a tests' broker within minutes. Only the first compiler pays off.
TOOL_OPTIONS = "-Xmx512m -XX:TieredStopAtLevel=1"
BROKER_OPTIONS = "-Xmx768m -XX:TieredStopAtLevel=1"

# The runner does these in a process of their own: a program of the tests isn't a tool, and may leave anything behind.
PROCESSES = ("class", "classpath")
_tools = ToolServer(RUNNER, TOOL_OPTIONS)


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    """A running broker: its address, and the folder with `data/`, `server.properties` and `broker.log`."""

    bootstrap: str
    directory: Path
    version: str | None = None

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def kill(self) -> None:
        """Kill it with SIGKILL. It has to be started again before `running` ends."""
        subprocess.run([RUNNER, "kill", self.directory], check=True)

    def start_again(self) -> None:
        """Start it on the same ports with the same settings. Returns when it answers."""
        started = _run("node", self.directory, version=self.version)
        assert started.returncode == 0, started.stderr


def why_unavailable() -> str:
    """Return why this machine can't run Apache Kafka, or "". May fetch its jars once: 126 MB."""
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
    """Run one of Kafka's tools and return its standard output. Raises AssertionError if it fails, unless `check` is
    False."""
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
    """Run a broker on free ports, with `key=value` settings, in a subfolder of `directory`. `release` is the one whose
    metadata.version its cluster begins with."""
    with _ended(_start(directory, settings, version, release)) as kafka:
        yield kafka


@contextlib.contextmanager
def node(
    directory: Path, settings: Mapping[str, object], *, version: str | None = None
) -> Iterator[ApacheKafka]:
    """Run a node of a cluster. `settings` are all its settings; its first listener gets a free port. Without `log.dirs`
    it works in a subfolder of `directory`. It is killed at the end: a clean stop would wait for the controller."""
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
    # If this process is killed, its end of the pipe closes, and the shell ends the broker that would be left.
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
        # The runner's own lines come first. The last value of a setting counts.
        ports = [
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        ]
        started = _up(folder, str(port), [*ports, *settings], version, release)
        if started.returncode == 0:
            return ApacheKafka(started.stdout.strip(), folder, version)
    raise RuntimeError(f"Apache Kafka did not start: {started.stderr}")
