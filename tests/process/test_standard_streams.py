"""The broker's process and the streams that it was given."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

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
