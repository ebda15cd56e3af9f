"""The user's program: a command in a process group of its own, which is started, killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO

BOOTSTRAP_VARIABLE = "BARNABAS_BOOTSTRAP"
BOOTSTRAP_WORD = "{bootstrap}"

_SHOWN_BYTES = 4_096


class Program:
    """One process of it. It finds the broker's address in `BARNABAS_BOOTSTRAP`, and in the place of `{bootstrap}`."""

    def __init__(self, command: Sequence[str], bootstrap: str, environment: Mapping[str, str]) -> None:
        """Raises OSError where there is no such program."""
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - goes with this object
        self._process = subprocess.Popen(
            [word.replace(BOOTSTRAP_WORD, bootstrap) for word in command],
            env={**os.environ, **environment, BOOTSTRAP_VARIABLE: bootstrap},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL to all of its process group, as when a machine is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ended(self) -> str:
        """Killed, if it still runs; what it printed last."""
        self.kill()
        with self._output:
            return self.printed

    @property
    def printed(self) -> str:
        """The end of what it printed."""
        size = os.fstat(self._output.fileno()).st_size
        shown = os.pread(self._output.fileno(), _SHOWN_BYTES, max(size - _SHOWN_BYTES, 0))
        return shown.decode("utf-8", errors="replace")
