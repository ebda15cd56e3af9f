"""A disk, or one log directory of it, that refuses writes, syncs, or everything."""

from __future__ import annotations

import errno
import random
from collections.abc import Collection, Sequence

from tests.simulation.full_disk import PARTLY, WRITING

SYNCING = frozenset({"sync", "sync_directory"})
OF_THE_PROCESS = frozenset({"unlock"})
"""Operations that need no disk."""


class FailingDisk:
    """The fault hook of one run's files (`Files.set_fault_hook`)."""

    def __init__(self, luck: random.Random, folders: Sequence[str]) -> None:
        """`folders`: the folders to refuse."""
        self._luck = luck
        self._folders = tuple(f"{folder}/" for folder in folders)
        self._refused: Collection[str] | None
        self._errno, self._refused = luck.choice(
            ((errno.ENOSPC, WRITING), (errno.EIO, SYNCING), (errno.EIO, WRITING | SYNCING), (errno.EIO, None))
        )

    def __call__(self, operation: str, path: str, size: int) -> int | None:
        if not path.startswith(self._folders) or operation in OF_THE_PROCESS:
            return None
        if self._refused is not None and operation not in self._refused:
            return None
        if operation in PARTLY and size and self._luck.random() < 0.4:
            return self._luck.randrange(size)
        raise OSError(self._errno, "the virtual disk refuses", path)
