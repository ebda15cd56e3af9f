"""Restarts a test's node within its process, with an empty folder or with a copy of its files from some moment.
Only the interpreter and the ports stay. Everything else is a stop and a start, in milliseconds.

A copy is what a crash at that moment would leave: a node that starts on it recovers, and open transactions and groups
go on. One turn of the loop determines its contents, so that nothing is written meanwhile: it reads small files, and
notes the size of larger ones. These only grow, or are replaced by others: their bytes up to that size are read beside
the loop, where all files of the copy are made. To make a file takes a file system longer than to read a small one.
(Hard links would take no space, but flipping a byte in one file, or cutting it, would change the other, too.)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.checkpoints import CLEAN_SHUTDOWN_FILE
from storage.directory.log_directory import LOCK_FILE

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig

_TRIES = 5
SMALL_BYTES = 4 * 1024
"""A file of this size or less is read at once."""
MOST_LARGE_FILES = 500
"""Most files that are read beside the loop, since each stays open meanwhile: the largest ones."""
_PIECE_BYTES = 8 * 1024 * 1024
_NOT_COPIED = frozenset((LOCK_FILE, CLEAN_SHUTDOWN_FILE))


class RenewalError(Exception):
    """The node can't begin anew, or can't be copied. The message says why, in one line."""


class _Taken(NamedTuple):
    """A file of the copy, yet to be made. A larger one is read by descriptor: its path may belong to another file by
    then."""

    name: str
    size_bytes: int
    changed_ns: int
    data: bytes | None
    descriptor: int

    def make(self, to: str) -> None:
        path = os.path.join(to, self.name)
        with open(path, "wb", buffering=0) as file:
            if self.data is not None:
                file.write(self.data)
            else:
                self._read_into(file.fileno())
        os.utime(path, ns=(self.changed_ns, self.changed_ns))

    def _read_into(self, made: int) -> None:
        left = self.size_bytes
        while left:
            count = os.sendfile(made, self.descriptor, self.size_bytes - left, min(left, _PIECE_BYTES))
            if not count:
                raise RenewalError(f"{self.name} was cut while it was copied")
            left -= count


class Copy:
    """A copy of a node's only folder. Making this object determines its contents; `complete` makes the files."""

    def __init__(self, folders: Sequence[str], to: str) -> None:
        """Raises RenewalError, OSError.

        Threads beside the loop may clean a log meanwhile, so that files come and go. Then the copy begins again."""
        folder = _only_one_of(folders)
        self._to = to
        for _ in range(_TRIES):
            self._open = ExitStack()
            try:
                names, self._folders = _names(folder)
                largest_first = sorted(names, key=lambda name: -os.path.getsize(os.path.join(folder, name)))
                self._files = [
                    self._taken(folder, name, may_stay_open=number < MOST_LARGE_FILES)
                    for number, name in enumerate(largest_first)
                ]
                if names == _names(folder)[0]:
                    return
            except FileNotFoundError:
                pass
            except BaseException:
                self._open.close()
                raise
            self._open.close()
        raise RenewalError(f"{folder} changes while it is copied")

    def _taken(self, folder: str, name: str, *, may_stay_open: bool) -> _Taken:
        descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_CLOEXEC)
        is_kept = False
        try:
            found = os.fstat(descriptor)
            data = None
            if found.st_size > SMALL_BYTES and may_stay_open:
                self._open.callback(os.close, descriptor)
                is_kept = True
            else:
                data = os.read(descriptor, found.st_size)
            return _Taken(name, found.st_size, found.st_mtime_ns, data, descriptor)
        finally:
            if not is_kept:
                os.close(descriptor)

    def complete(self) -> int:
        """Make the files, in the calling thread. Returns the bytes of the whole copy. Raises RenewalError, OSError."""
        with self._open:
            shutil.rmtree(self._to, ignore_errors=True)
            os.makedirs(self._to)
            for name in self._folders:
                os.mkdir(os.path.join(self._to, name))
            for each in self._files:
                each.make(self._to)
        return sum(each.size_bytes for each in self._files)


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


def _names(folder: str) -> tuple[set[str], list[str]]:
    """The files and the folders below the folder, by their paths from there; each folder comes before those in it."""
    files, folders = set(), []
    within = [""]
    while within:
        parent = within.pop()
        for entry in os.scandir(os.path.join(folder, parent)):
            if entry.is_dir(follow_symlinks=False):
                folders.append(parent + entry.name)
                within.append(f"{parent}{entry.name}{os.sep}")
            elif entry.name not in _NOT_COPIED:
                files.add(parent + entry.name)
    return files, folders
