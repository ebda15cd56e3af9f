"""What the system keeps for a broker's descriptors."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas
from broker.starting import MOST_OPEN_FILES

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="Linux alone tells the size of the table, and waits as it grows"
)

TELLS_ITS_THREADS = """
import os
from barnabas.launcher import main
from storage import disk_files

make_room = disk_files._make_room_for_descriptors

def told(count):
    print(f"made with {len(os.listdir('/proc/self/task'))} threads", flush=True)
    make_room(count)

disk_files._make_room_for_descriptors = told
main()
"""


def test_their_table_is_as_large_as_the_logs_will_need_it_once_the_broker_has_started(tmp_path: Path) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with barnabas.Broker(data=tmp_path / "data") as broker:
        status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"^FDSize:\s*(\d+)$", status, re.MULTILINE)
    assert found is not None
    assert int(found[1]) >= min(MOST_OPEN_FILES, soft // 2)


def test_it_is_made_before_there_are_threads(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TELLS_ITS_THREADS, "--data", str(tmp_path / "data"), "--port", "0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        told = [line for line in process.stdout if line.startswith("made with ") or process.terminate()]
    assert told == ["made with 1 threads\n"]
