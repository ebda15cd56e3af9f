"""The user's program: a command in a process group of its own, which can be started, killed and restarted."""

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
FOLDER_VARIABLE = "BARNABAS_FOLDER"
FOLDER_WORD = "{folder}"

_SHOWN_BYTES = 4_096


class Program:
    """One process of the program. It finds the broker's address in `BARNABAS_BOOTSTRAP`, and in place of
    `{bootstrap}`. It finds a folder for files of its own in `BARNABAS_FOLDER`, and in place of `{folder}`."""

    def __init__(
        self, command: Sequence[str], bootstrap: str, folder: str, environment: Mapping[str, str]
    ) -> None:
        """Raises OSError if there is no such program."""
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - goes with this object
        self._process = subprocess.Popen(
            [word.replace(BOOTSTRAP_WORD, bootstrap).replace(FOLDER_WORD, folder) for word in command],
            env={**os.environ, **environment, BOOTSTRAP_VARIABLE: bootstrap, FOLDER_VARIABLE: folder},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def status(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """Send SIGKILL to its whole process group, as when a machine is lost."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def ended(self) -> str:
        """Kill it if it still runs, and return the end of its output."""
        self.kill()
        with self._output:
            return self.printed

    @property
    def printed(self) -> str:
        """The end of its output."""
        size = os.fstat(self._output.fileno()).st_size
        shown = os.pread(self._output.fileno(), _SHOWN_BYTES, max(size - _SHOWN_BYTES, 0))
        return shown.decode("utf-8", errors="replace")
