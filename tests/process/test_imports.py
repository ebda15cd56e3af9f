"""What a fresh interpreter loads, and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_family_is_imported_at_its_first_use_and_alone() -> None:
    program = """
import sys
from protocol.apis import APIS

def families():
    return {name for name in sys.modules if name.startswith("protocol.messages.")}

assert not families()
APIS[0].request
assert families() == {"protocol.messages.produce"}, families()
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_a_start_loads_nothing_slow() -> None:
    slow = {
        "asyncio",
        "dataclasses",
        "difflib",
        "inspect",
        "ipaddress",
        "json",
        "logging",
        "shutil",
        "socket",
        "tempfile",
    }
    program = (
        "import sys; before = set(sys.modules)\n"
        "from broker.process.command_line import parse_command_line\n"
        "parse_command_line(['--port', '0', '-o', 'num.partitions=3'], {'HOME': '/h'})\n"
        "print(*set(sys.modules) - before)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert slow.isdisjoint(run.stdout.split())
