"""`barnabas --console`: a broker with its console beside it, and their complaints if one of them can't start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, run_cli
from tests.cli.console.asking import Asking
from tests.support.ports import free_ports, is_listening
from tests.support.waiting import until

ENDING_S = 30


@contextmanager
def broker_with_console(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], Asking]]:
    (port,) = free_ports(1)
    console = ["--console", f"127.0.0.1:{port}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "--data", str(folder), *arguments, *console],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process, Asking("127.0.0.1", port, f"http://127.0.0.1:{port}/")
    finally:
        process.kill()
        process.wait(ENDING_S)
        assert process.stderr is not None
        process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_console_ends_with_its_broker_however_that_ends(tmp_path: Path, number: signal.Signals) -> None:
    with broker_with_console(tmp_path / "data", "--port", "0") as (broker, console):
        until(lambda: is_listening("127.0.0.1", console.port), "the console")
        about = console.api("about")
        assert about["live"]
        with console.live("brokers") as events:
            events.until(lambda seen: seen.values.get("brokers", {}).get("brokers"))
            broker.send_signal(number)
            assert broker.wait(ENDING_S) == (0 if number == signal.SIGTERM else -signal.SIGKILL)
        until(lambda: not is_listening("127.0.0.1", console.port), "the end of the console")


def test_without_a_listener_that_needs_no_password_the_broker_runs_and_says_why(tmp_path: Path) -> None:
    secured = (
        "listeners=SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name=SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain."
        'PlainLoginModule required username="admin" password="secret" user_admin="secret";',
    )
    arguments = [part for each in secured for part in ("-o", each)]
    with broker_with_console(tmp_path / "data", *arguments) as (broker, console):
        assert broker.stderr is not None
        said = ""
        while "--console: there is no listener without security" not in said:
            line = broker.stderr.readline()
            assert line, said
            said += line
        assert not is_listening("127.0.0.1", console.port)
        broker.terminate()
        assert broker.wait(ENDING_S) == 0


def test_a_consoles_complaint_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run_cli("console", "--listen", address)
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert f"the console can't listen on {address}" in ran.err
    ran = run_cli("console", "--listen", "nowhere")
    assert (ran.status, ran.err) == (2, "barnabas: --listen nowhere: HOST:PORT is the form\n")
    ran = run_cli("inspect", "--console", "/nowhere", "--listen", "127.0.0.1:0")
    assert ran.status == 2
    assert ran.err == "barnabas: /nowhere isn't a Kafka data folder, and the console shows those\n"
