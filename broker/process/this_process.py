"""The faults of a process: they act on its threads, on its files, and on the process itself."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable


class ThisProcess:
    """The port `broker.faults.faults.Process`."""

    def __init__(self, tell_crash: Callable[[], None]) -> None:
        """`tell_crash` is called before a crash, in any thread."""
        self._tell_crash = tell_crash
        self.one_thread_at_a_time = threading.Lock()

    def block(self, for_ms: int) -> None:
        """Block the calling thread."""
        time.sleep(for_ms / 1000)

    def flip_a_byte(self, path: str, drawn: int) -> None:
        """Flip a byte of the file on the disk, always the same one for the same number. Does nothing if the file is
        empty or missing."""
        with contextlib.suppress(FileNotFoundError), open(path, "r+b", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size:
                at = int.from_bytes(hashlib.sha256(f"{drawn}".encode()).digest()[:7]) % size
                (byte,) = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes((byte ^ 0xFF,)), at)

    def crash(self) -> None:
        """Kill this process at once."""
        with contextlib.suppress(Exception):  # whether anybody hears of it or not
            self._tell_crash()
        os.kill(os.getpid(), signal.SIGKILL)

    def pause(self) -> None:
        """Stop this process until it gets a SIGCONT."""
        os.kill(os.getpid(), signal.SIGSTOP)
