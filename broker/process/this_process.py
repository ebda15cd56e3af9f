"""What a fault can do to this process, its threads and the files on its disk."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import threading
import time


class ThisProcess:
    """The port `broker.faults.faults.Process`."""

    def __init__(self) -> None:
        self.one_thread_at_a_time = threading.Lock()

    def block(self, for_ms: int) -> None:
        """The thread that calls."""
        time.sleep(for_ms / 1000)

    def flip_a_byte(self, path: str, drawn: int) -> None:
        """Of the file on the disk, the same one for the same number; nothing where it has none, or isn't there."""
        with contextlib.suppress(FileNotFoundError), open(path, "r+b", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size:
                at = int.from_bytes(hashlib.sha256(f"{drawn}".encode()).digest()[:7]) % size
                (byte,) = os.pread(file.fileno(), 1, at)
                os.pwrite(file.fileno(), bytes((byte ^ 0xFF,)), at)

    def crash(self) -> None:
        """At once."""
        os.kill(os.getpid(), signal.SIGKILL)

    def pause(self) -> None:
        """Until somebody sends a SIGCONT."""
        os.kill(os.getpid(), signal.SIGSTOP)
