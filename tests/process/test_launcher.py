"""The command's first moments, before the broker has installed its own signal handlers."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from barnabas import launcher

MEANWHILE = f"""
import os, runpy, signal, sys
def interrupted(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    print("goes on")
runpy.run_module = interrupted
sys.argv = ["barnabas"]
from {launcher.__name__} import main
main()
"""


@pytest.mark.parametrize(
    ("before", "status", "output"),
    [
        ("default_int_handler", -signal.SIGINT, ""),
        ("SIG_DFL", -signal.SIGINT, ""),
        ("SIG_IGN", 0, "goes on\n"),
    ],
)
def test_ctrl_c_before_there_is_a_broker_ends_it_without_a_traceback(
    before: str, status: int, output: str
) -> None:
    program = f"import signal; signal.signal(signal.SIGINT, signal.{before})" + MEANWHILE
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, output, "")
