"""The broker's process and the standard streams that it was started with."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.records.batch import build_batch
from protocol.records.compression import GZIP
from tests.support.ready_requests import produce_frame
from tests.support.wire import Client

ROOT = Path(__file__).parents[2]


def test_a_standard_stream_that_was_closed_does_not_hurt_the_end(tmp_path: Path) -> None:
    control, ours = socket.socketpair()
    with control, ours:
        arguments = [sys.executable, "-m", "broker", "--data", str(tmp_path), "--port", "0"]
        arguments += ["--control-fd", str(ours.fileno())]
        broker = subprocess.Popen(
            ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *arguments],
            pass_fds=[ours.fileno()],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        control.settimeout(240)
        assert control.recv(1000)
        broker.send_signal(signal.SIGTERM)
        _, said = broker.communicate(timeout=240)
    assert (broker.returncode, said) == (0, b"")


@pytest.mark.parametrize("amid", [None, "a batch that is unpacked"])
def test_an_unread_log_holds_nobody_up(tmp_path: Path, amid: str | None) -> None:
    arguments = [
        sys.executable,
        "-m",
        "broker",
        "--data",
        str(tmp_path),
        "--port",
        "0",
        "--log-level",
        "debug",
    ]
    with subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as broker:
        assert broker.stdout is not None
        [where] = re.findall(r"connect to ([^;]*)", broker.stdout.readline().decode())
        with Client.of(where) as client, Client.of(where) as other:
            if amid:
                topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
                client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
            for number in range(3_000):  # each request logs a line of some 100 bytes, and a pipe holds 65,536
                client.ask(FindCoordinatorRequest(key=f"group-{number}", key_type=0), 2)
            if amid:
                packed = build_batch([(0, None, bytes(250 << 20), ())], codec=GZIP)
                for _ in range(4):
                    other.send_bytes(produce_frame("t", bytes(packed), acks=-1))
                client.ask(FindCoordinatorRequest(key="behind it", key_type=0), 2)
            broker.send_signal(signal.SIGTERM)
            _, said = broker.communicate(timeout=240)
        assert broker.returncode == 0
    assert said.count(b"FindCoordinator") >= 3_000
