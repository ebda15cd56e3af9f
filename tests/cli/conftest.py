"""The same scenes against each kind of Kafka. The first scene that needs one starts it.

Each run plays every scene to one node of barnabas and of Apache Kafka. Scenes for which several nodes matter are also
played to three. Of the others a run draws a fraction, and `make cli` plays all (`support.drawn`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import barnabas
from tests.cli.looking import Looker
from tests.compare.cluster_properties import BROKERS, CLUSTER
from tests.compare.clusters import kafka_cluster
from tests.support import apache_kafka
from tests.support.requirements import need_apache_kafka

SOON: dict[str, object] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
"""Transactions whose time is up are looked for often enough to wait for it."""
ROOT = Path(__file__).parents[2]
APACHE, APACHE_3, OURS, OURS_3 = "apache", "apache-3", "barnabas", "barnabas-3"
ON_OURS_ALONE = pytest.mark.parametrize("kafka", [OURS], indirect=True)
"""For scenes in which what answers doesn't matter: starting and asking Kafka's takes its time."""
ONE_RUN_IN = 5
"""Of the scenes in which it doesn't matter how many nodes there are, a run plays one in so many to three of them."""
_names = itertools.count()


def pytest_itemcollected(item: pytest.Item) -> None:
    callspec = getattr(item, "callspec", None)
    kind = callspec.params.get("kafka") if callspec is not None else None
    if kind is not None:
        item.add_marker(pytest.mark.xdist_group(f"cli-{kind}"))  # so that each is started once
        if kind in (OURS_3, APACHE_3) and item.get_closest_marker("several_nodes_matter") is None:
            item.add_marker(pytest.mark.one_run_in(ONE_RUN_IN))
        elif kind == APACHE:
            item.add_marker(pytest.mark.one_run_in(2))  # the program behind this address seldom changes


@dataclass(frozen=True)
class Kafka:
    """A Kafka to try commands on."""

    kind: str
    bootstrap: str
    brokers: int

    @property
    def is_apache(self) -> bool:
        return self.kind.startswith(APACHE)


@dataclass(frozen=True)
class Ran:
    """What a command wrote, and how it ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@contextlib.contextmanager
def _running(kind: str, folder: Path) -> Iterator[Kafka]:
    if kind == OURS:
        with barnabas.Broker(config={"num.partitions": 1, **SOON}) as broker:
            yield Kafka(kind, broker.bootstrap, 1)
    elif kind == OURS_3:
        with barnabas.Cluster(brokers=3, config=SOON) as cluster:
            yield Kafka(kind, cluster.bootstrap, 3)
    elif kind == APACHE:
        need_apache_kafka()
        with apache_kafka.running(folder, *(f"{name}={value}" for name, value in SOON.items())) as kafka:
            yield Kafka(kind, kafka.bootstrap, 1)
    else:
        need_apache_kafka()
        with kafka_cluster(folder, CLUSTER) as running:
            ports = [running.ports[f"broker {broker}"] for broker in BROKERS]
            yield Kafka(kind, ",".join(f"127.0.0.1:{port}" for port in ports), len(ports))


@pytest.fixture(scope="package", params=[OURS, OURS_3, APACHE, APACHE_3])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Each of the four Kafkas in turn. A Kafka ends after its last scene: an idle JVM costs part of a core, and three
    nodes of Kafka have four JVMs."""
    with _running(request.param, tmp_path_factory.mktemp(request.param)) as kafka:
        yield kafka


@pytest.fixture
def cli(kafka: Kafka) -> Run:
    """Runs `barnabas …` against this Kafka."""

    def run(*arguments: object, stdin: str | bytes = b"", timeout_s: float = 120.0) -> Ran:
        return run_cli(*arguments, stdin=stdin, bootstrap=kafka.bootstrap, timeout_s=timeout_s)

    return run


def run_cli(
    *arguments: object, stdin: str | bytes = b"", bootstrap: str = "", timeout_s: float = 120.0
) -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BARNABAS_BOOTSTRAP": bootstrap},
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def topic() -> str:
    """A topic name that no other scene uses."""
    return f"cli-{os.getpid()}-{next(_names)}"


@pytest.fixture
def look(capsys: pytest.CaptureFixture[str]) -> Looker:
    """Runs `barnabas inspect` and `doctor` in this process."""
    return Looker(capsys)
