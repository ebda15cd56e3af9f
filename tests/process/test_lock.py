"""The lock of a log directory between processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage.files import LockedError
from tests.support.disk import files


def test_the_lock_is_refused_to_another_process_and_given_back_with_this_one(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    take = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    files.lock(str(path))
    refused = subprocess.run([sys.executable, "-c", take, path], capture_output=True, check=False)
    files.unlock(str(path))
    granted = subprocess.run([sys.executable, "-c", take, path], capture_output=True, check=False)
    assert (refused.returncode != 0, granted.returncode) == (True, 0)


def test_a_lock_that_another_process_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    hold = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        " print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError) as refused:
            files.lock(str(path))
        if sys.platform == "linux":
            assert refused.value.holder == holder.pid
            assert refused.value.command.startswith(f"{sys.executable} -c import fcntl")
        holder.communicate()
    files.lock(str(path))
    files.unlock(str(path))
