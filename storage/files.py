"""The port to the disk: every operation on files that storage uses, each under its own name.

`Files` specifies each operation, and `disk_files.DiskFiles` does it on a real disk. Each operation calls a hook
before it acts. So a test can make any of them fail, write less than it was given, or be the last one of a process.
"""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, ParamSpec, TypeGuard, TypeVar

from protocol.wire.primitives import Bytes

FaultHook = Callable[[str, str, int], int | None]
"""Called as (operation, path, size in bytes) before each operation. It may raise. If it returns a number, an
operation that writes stops after that many bytes."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

MOST_RETIRED_FILES = 256
"""The most files out of use that stay open for their holders. Beyond that the oldest is lost to its holders.
Kafka keeps each one that is referred to, as it keeps all files open."""

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""Errnos of `OSError` if a file can't be opened because too many are, in the process or in the system.
Nothing was done, and the disk may be all right."""

OPERATIONS: list[str] = []
"""The names of all operations. At each a fault or a crash can be injected."""


def _operation(function: Callable[_P, _R]) -> Callable[_P, _R]:
    OPERATIONS.append(function.__name__)
    return function


def is_out_of_descriptors(failure: BaseException | None) -> TypeGuard[OSError]:
    """True if it is one of `OUT_OF_DESCRIPTORS`."""
    return isinstance(failure, OSError) and failure.errno in OUT_OF_DESCRIPTORS


def is_shortage(failure: BaseException | None) -> TypeGuard[MemoryError | OSError]:
    """True if there was too little memory, or no descriptor left. A retry may succeed."""
    return isinstance(failure, MemoryError) or is_out_of_descriptors(failure)


class TornWriteError(OSError):
    """A write failed part-way and couldn't be undone: the file no longer ends where the log believes."""


class LockedError(Exception):
    """Another process, or another log directory of this one, holds the lock.

    `holder` is its process id and `command` its command line, if the system reveals them.
    """

    def __init__(self, message: str, holder: int | None = None, command: str = "") -> None:
        super().__init__(message)
        self.holder = holder
        self.command = command


class Volume(NamedTuple):
    """The volume that a directory is on, maybe with others (Java's `FileStore`)."""

    total_bytes: int
    usable_bytes: int
    """How much this process may still write to it."""


class File:
    """A path, with a descriptor while it is open (else `descriptor` is -1)."""

    __slots__ = ("descriptor", "failure", "held", "path", "used_lately")

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = -1
        self.used_lately = False
        self.failure: OSError | None = None
        """The failure of closing it to make room for another: written data may be lost. Its next user gets
        this failure."""
        self.held: HeldFile | None = None
        """Set as long as someone may still read ranges of it."""


class HeldFile:
    """A file that stays readable for its holders even if it is taken out of use meanwhile."""

    __slots__ = ("cuts", "file", "holders", "lost")

    def __init__(self, file: File) -> None:
        self.file = file
        self.holders = 0
        self.cuts: list[int] = []
        """The sizes that it was cut to while it was held, in order."""
        self.lost: OSError | None = None
        """Why it can't be read any more."""


class Files(ABC):
    """The files of one node. Each node has its own faults and its own bound on open descriptors, even within
    one process.

    An implementation has to ensure:

    - Each operation calls `_ask` with its own name before it acts. An exception from the hook ends the
      operation before it has done anything. A number from the hook cuts `append` and `write_whole` short.
    - An operation on a path opens and closes by itself, and may run in any thread. One on a `File` belongs to
      the thread that runs the logs.
    - An open `File` stays the same file even if its path is renamed or removed. But an implementation may
      close it between two calls (to bound descriptors), and then the next call opens its path again. So code
      that renames a path also changes `File.path`.
    - Bytes survive a crash of the machine once `sync` of their file has returned, and names in a directory
      once `sync_directory` has. Unsynced data may be lost, even a later write while an earlier one is kept. A
      killed process loses nothing that an operation has done.
    - Failures are `OSError` with an errno, or those that the operations name.
    """

    __slots__ = ("_fault_hook", "_most_retired", "_retired")

    def __init__(self) -> None:
        self._fault_hook: FaultHook | None = None
        self._most_retired = MOST_RETIRED_FILES
        self._retired: dict[HeldFile, None] = {}

    def set_fault_hook(self, hook: FaultHook | None) -> None:
        """Set the hook that every operation calls before it acts. `None` is the normal case."""
        self._fault_hook = hook

    def _ask(self, operation: str, path: str, size: int = 0) -> int | None:
        return None if self._fault_hook is None else self._fault_hook(operation, path, size)

    # ---- open files

    @abstractmethod
    def limit_open_files(self, limit: int) -> None:
        """Bound the descriptors kept open, from now on. (Kafka has no such bound and asks for a higher ulimit.)"""

    def limit_retired_files(self, limit: int) -> None:
        """Bound, from now on, how many more files out of use stay open for their holders."""
        self._most_retired = limit

    @abstractmethod
    def open_files_count(self) -> int:
        """The number of open descriptors."""

    @abstractmethod
    @_operation
    def open_existing(self, file: File) -> int:
        """The descriptor, after opening the file if needed. Raises `FileNotFoundError`: this never creates a file."""

    @abstractmethod
    @_operation
    def create(self, file: File) -> None:
        """Create the file, emptying an existing one, and keep it open."""

    def close(self, file: File) -> None:
        """Close the descriptor. A later use opens the path again. Holders of the file can still read the old one."""
        if file.held is not None:
            self._retire(file, file.held)
        if file.descriptor >= 0:
            self._close(file)

    @abstractmethod
    def _close(self, file: File) -> None:
        """Close the file's descriptor."""

    @abstractmethod
    def _disown(self, file: File) -> None:
        """Hand the file's descriptor to another owner. It doesn't count as one of the open ones any more."""

    def hold(self, file: File) -> HeldFile:
        """Keep the file readable as it is until `release`, whatever happens to its path."""
        held = file.held
        if held is None:
            held = file.held = HeldFile(file)
        held.holders += 1
        return held

    def release(self, held: HeldFile) -> None:
        """Drop one holder."""
        held.holders -= 1
        if held.holders:
            return
        if held in self._retired:
            del self._retired[held]
            with suppress(OSError):  # it is only read
                self._close(held.file)
        elif held.file.held is held:
            held.file.held = None

    def _retire(self, file: File, held: HeldFile) -> None:
        """Take the file out of use. From now on its descriptor belongs to its holders alone."""
        file.held = None
        try:
            self.open_existing(file)  # it may have been closed to make room for another
        except OSError as failure:
            held.lost = failure
            return
        held.file = File(file.path)
        held.file.descriptor = file.descriptor
        self._disown(file)
        file.descriptor = -1
        self._retired[held] = None
        if len(self._retired) > self._most_retired:
            oldest = next(iter(self._retired))
            del self._retired[oldest]
            oldest.lost = OSError(errno.EMFILE, "too many files out of use are still read", oldest.file.path)
            with suppress(OSError):  # it is only read
                self._close(oldest.file)

    @abstractmethod
    @_operation
    def append(self, file: File, data: Bytes, position: int) -> None:
        """Write all of `data` at `position`, the file's end, in one call, or nothing.

        What a short or failed write left is cut off again before `OSError` is raised. If even that fails, it
        raises `TornWriteError`.
        """

    @abstractmethod
    @_operation
    def read(self, file: File, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; fewer at the file's end."""

    @abstractmethod
    @_operation
    def read_into(self, file: File, buffer: memoryview, position: int) -> int:
        """Fill the buffer from `position` on. Returns the number of bytes, fewer at the file's end."""

    @abstractmethod
    @_operation
    def truncate(self, file: File, size: int) -> None:
        """Cut the file to `size` bytes. The implementation has to call `_cut` for its holders."""

    def _cut(self, file: File, size: int) -> None:
        if file.held is not None:
            file.held.cuts.append(size)

    @abstractmethod
    @_operation
    def size_of(self, file: File) -> int:
        """The file's size in bytes. Raises `FileNotFoundError`."""

    # ---- paths

    @abstractmethod
    @_operation
    def modified_ms(self, path: str) -> int:
        """The time of the last write to the file, in milliseconds since 1970."""

    @abstractmethod
    @_operation
    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write to the file. Raises `FileNotFoundError`."""

    @abstractmethod
    @_operation
    def exists(self, path: str) -> bool:
        """True if there is a file or a directory with this path."""

    @abstractmethod
    @_operation
    def real_path(self, path: str) -> str:
        """The one absolute path that all paths of the same file or directory lead to. It need not exist."""

    @abstractmethod
    @_operation
    def volume(self, path: str) -> Volume:
        """The size of the volume that the directory is on. Raises `FileNotFoundError`."""

    @abstractmethod
    @_operation
    def sync(self, path: str) -> None:
        """Wait until the file's bytes are on the disk. A missing file (renamed to be deleted) is no error."""

    @abstractmethod
    @_operation
    def sync_directory(self, path: str) -> None:
        """Wait until the names in the directory are on the disk. A missing directory is no error."""

    @abstractmethod
    @_operation
    def read_whole(self, path: str) -> bytes:
        """Read all of the file. Raises `FileNotFoundError`."""

    @abstractmethod
    @_operation
    def write_whole(self, path: str, data: Bytes) -> None:
        """Write a file with these bytes, unsynced. An existing one is overwritten."""

    @abstractmethod
    @_operation
    def rename(self, old: str, new: str) -> None:
        """Rename `old`, replacing a file at `new`. Raises `FileNotFoundError` if there is no `old`."""

    @abstractmethod
    @_operation
    def remove(self, path: str) -> None:
        """Delete the file, if it exists."""

    @abstractmethod
    @_operation
    def remove_tree(self, path: str) -> None:
        """Delete the directory with everything in it, if it exists."""

    @abstractmethod
    @_operation
    def make_directory(self, path: str) -> None:
        """Make the directory, if it doesn't exist. Raises `FileNotFoundError` if its parent is missing: a
        partition must not recreate a lost log directory."""

    @abstractmethod
    @_operation
    def list_directory(self, path: str) -> list[str]:
        """The names in the directory, sorted. Raises `FileNotFoundError`."""

    @abstractmethod
    @_operation
    def list_subdirectories(self, path: str) -> list[str]:
        """The names of the directories in the directory, sorted."""

    @abstractmethod
    @_operation
    def lock(self, path: str) -> None:
        """Take the lock of a log directory, for this process against all others, and against every other
        holder within the process. Raises `LockedError`."""

    @abstractmethod
    @_operation
    def unlock(self, path: str) -> None:
        """Release the lock."""

    # ---- composed of operations

    def replace_whole(self, path: str, data: Bytes, *, synced: bool = True) -> None:
        """Replace the file: it has either these bytes or the old ones, never a part. It is written beside it
        as `.tmp`, then renamed.

        If `synced` is false, that holds for a killed process, but not for a power failure until `sync` is called.
        """
        temporary = path + ".tmp"
        self.write_whole(temporary, data)
        if synced:
            self.sync(temporary)
        self.rename(temporary, path)
        if synced:
            self.sync_directory(os.path.dirname(path))

    def make_directories(self, path: str) -> None:
        """Make the directory with its parents, as far as they are missing."""
        try:
            self.make_directory(path)
        except FileNotFoundError:
            above = os.path.dirname(path)
            if above == path:
                raise
            self.make_directories(above)
            self.make_directory(path)

    def make_say(self, file: File, data: Bytes) -> None:
        """Give the file these bytes. If it has them already it isn't touched. Otherwise a killed process may
        leave a part."""
        try:
            if self.size_of(file) == len(data) and (not data or self.read_whole(file.path) == data):
                return
        except FileNotFoundError:
            pass
        self.create(file)
        if data:
            self.append(file, data, 0)


# ---- a range of a file that is read when its bytes are needed (Kafka: a slice of `FileRecords`)


class FileRange:
    """Bytes of a file, as they were when this was made. It holds the file as long as it exists.

    Its length is the number of bytes. Reading raises `OSError` if they are gone: the file's end was cut off,
    or too many files out of use were held.
    """

    __slots__ = ("_cuts_before", "_files", "_held", "_position", "_size")

    def __init__(self, files: Files, file: File, position: int, size: int) -> None:
        self._files = files
        self._held = files.hold(file)
        self._cuts_before = len(self._held.cuts)
        self._position = position
        self._size = size

    def __del__(self) -> None:
        self._files.release(self._held)

    def __len__(self) -> int:
        return self._size

    def part(self, at: int, size: int) -> FileRange:
        """`size` bytes of the range from its byte `at` on, left in their file. Raises as `read` does."""
        self._check()
        return FileRange(self._files, self._held.file, self._position + at, size)

    def read(self, at: int, size: int) -> bytes:
        """Read `size` bytes of the range from its byte `at` on, at most up to its end."""
        size = min(size, self._size - at)
        self._check()
        data = self._files.read(self._held.file, size, self._position + at)
        if len(data) < size:
            raise self._ended(at + len(data))
        return data

    def read_into(self, at: int, buffer: memoryview) -> int:
        """Fill the buffer from byte `at` on, at most up to the range's end. Returns the number of bytes, at
        least one."""
        self._check()
        count = self._files.read_into(self._held.file, buffer[: self._size - at], self._position + at)
        if not count:
            raise self._ended(at)
        return count

    def _check(self) -> None:
        held = self._held
        if held.lost is not None:
            raise held.lost
        if len(held.cuts) > self._cuts_before:
            end = self._position + self._size
            if min(held.cuts[self._cuts_before :]) < end:
                raise OSError(errno.ESTALE, f"cut off before position {end}", held.file.path)

    def _ended(self, at: int) -> OSError:
        return OSError(errno.EIO, f"ends at position {self._position + at}", self._held.file.path)


# ---- the names of a partition's files with their offset: `00000000000000000369.log`

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
INDEX_SUFFIXES = SEGMENT_SUFFIXES[1:]

_DIGITS = 20


def file_path(directory: str, offset: int, suffix: str) -> str:
    return f"{directory}/{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset at the start of the name. None for a name of another kind, such as a metadata snapshot's
    (`<offset>-<epoch>.checkpoint`)."""
    digits = name[:_DIGITS]
    if len(name) > _DIGITS and name[_DIGITS] == "." and digits.isascii() and digits.isdigit():
        return int(digits)
    return None
