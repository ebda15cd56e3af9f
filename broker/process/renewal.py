"""Lets a test's node begin anew within its process: with an empty folder, or with a copy of its files from some moment.
Only the interpreter and the ports stay; all else is a stop and a start, in milliseconds.

A copy is what a crash at that moment would leave: a node that starts on it recovers, and open transactions and groups
go on. One turn of the loop determines its contents, so that nothing is written meanwhile: it copies small files, and
notes the size of large ones, which are logs and only grow. Their bytes up to that size are copied beside the loop.
(Hard links would take no space, but flipping a byte in one file, or cutting it, would change the other, too.)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.checkpoints import CLEAN_SHUTDOWN_FILE
from storage.directory.log_directory import LOCK_FILE
from storage.files import LOG_SUFFIX

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

_TRIES = 5
LARGE_BYTES = 256 * 1024
"""A log of this size or more is copied beside the loop."""
MOST_LARGE_FILES = 500
"""Most files that are copied beside the loop, since each stays open meanwhile. Other files are copied at once."""
_PIECE_BYTES = 8 * 1024 * 1024
_NOT_COPIED = frozenset((LOCK_FILE, CLEAN_SHUTDOWN_FILE))


class RenewalError(Exception):
    """The node can't begin anew, or can't be copied. The message says why, in one line."""


class _Large(NamedTuple):
    """A log that is yet to be copied, up to this size. It is read by descriptor: its path may belong to another file by
    then."""

    descriptor: int
    size_bytes: int
    to: str

    def copy(self) -> None:
        left = self.size_bytes
        with open(self.to, "wb", buffering=0) as file:
            while left:
                count = os.sendfile(
                    file.fileno(), self.descriptor, self.size_bytes - left, min(left, _PIECE_BYTES)
                )
                if not count:
                    raise RenewalError(f"{self.to} was cut while it was copied")
                left -= count


class Copy:
    """A copy of a node's only folder. Making this object determines its contents; `complete` ends the copy."""

    def __init__(self, folders: Sequence[str], to: str) -> None:
        """Raises RenewalError, OSError.

        Threads beside the loop may clean a log meanwhile, so that files come and go. Then the copy begins again."""
        folder = _only_one_of(folders)
        for _ in range(_TRIES):
            shutil.rmtree(to, ignore_errors=True)
            self._open = ExitStack()
            self._large: list[_Large] = []
            self._bytes = 0
            taken = set()
            try:
                for source, target in _files(folder, to):
                    self._take(source, target)
                    taken.add(source)
            except FileNotFoundError:
                self._open.close()
                continue
            except BaseException:
                self._open.close()
                raise
            if taken == _names(folder):
                return
            self._open.close()
        raise RenewalError(f"{folder} changes while it is copied")

    def _take(self, source: str, target: str) -> None:
        size = os.path.getsize(source)
        self._bytes += size
        if size < LARGE_BYTES or not source.endswith(LOG_SUFFIX) or len(self._large) >= MOST_LARGE_FILES:
            shutil.copy2(source, target)
            return
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        self._open.callback(os.close, descriptor)
        self._large.append(_Large(descriptor, size, target))

    def complete(self) -> int:
        """Copy the rest, in the calling thread. Returns the bytes of the whole copy. Raises RenewalError, OSError."""
        with self._open:
            for each in self._large:
                each.copy()
        return self._bytes


class Renewal(NamedTuple):
    """`copy`: the folder to begin with; None for an empty one. `told` is called with the node's new addresses."""

    copy: str | None
    told: Callable[[Any], None]


def check_can_begin_anew(config: BrokerConfig, copy: str | None) -> None:
    """Check that a node with these settings can begin anew. Raises RenewalError."""
    if config.joins or config.is_only_controller:
        raise RenewalError("a node of a cluster can't begin anew: the other nodes would still know its past")
    _only_one_of(config.log_dirs)
    if copy is not None and not os.path.isdir(copy):
        raise RenewalError(f"there is no folder {copy}")


def begin_anew(config: BrokerConfig, cluster_id: str, copy: str | None) -> None:
    """After the end of the node: prepare its folder, drop altered settings, and keep the cluster's id. Raises
    OSError."""
    (folder,) = config.log_dirs
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    if copy is not None:
        shutil.copytree(copy, folder, dirs_exist_ok=True)
    config.cluster_id = cluster_id
    config.set_dynamic(broker={}, cluster={})


def _only_one_of(folders: Sequence[str]) -> str:
    """The only folder. Raises RenewalError if there are several."""
    if len(folders) != 1:
        raise RenewalError("it has several log directories")
    return folders[0]


def _names(folder: str) -> set[str]:
    return {
        os.path.join(root, name)
        for root, _, names in os.walk(folder)
        for name in names
        if name not in _NOT_COPIED
    }


def _files(folder: str, to: str) -> Iterator[tuple[str, str]]:
    """Yield each file, and the path for its copy. The folder of the copy exists."""
    for root, _, names in os.walk(folder):
        target = os.path.join(to, os.path.relpath(root, folder))
        os.makedirs(target, exist_ok=True)
        for name in names:
            if name not in _NOT_COPIED:
                yield os.path.join(root, name), os.path.join(target, name)
