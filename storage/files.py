"""The port to the disk: every operation on files that storage knows, each under its own name.

`Files` says what an operation does; `disk_files.DiskFiles` does it on a real disk. Each operation asks a hook
before it acts, so that a test can make any of them fail, write less than it was given, or be the last one of a
process.
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
"""Called as (operation, path, size in bytes) before each operation. It may raise; a number makes an operation
that writes stop after so many bytes.
"""

_P = ParamSpec("_P")
_R = TypeVar("_R")

MOST_RETIRED_FILES = 256
"""Files out of use that stay open for those who hold them; past it the oldest is lost to its holders. Kafka keeps each
one that is referred to, as it keeps all files open."""

OUT_OF_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
"""What `OSError` says where a file can't be opened since too many are, in the process or in the system. Nothing was
done, and nothing is known of the disk."""

OPERATIONS: list[str] = []
"""The names of all operations, each a place to inject a fault or a crash."""


def _operation(function: Callable[_P, _R]) -> Callable[_P, _R]:
    OPERATIONS.append(function.__name__)
    return function


def is_out_of_descriptors(failure: BaseException | None) -> TypeGuard[OSError]:
    """Whether it is one of `OUT_OF_DESCRIPTORS`."""
    return isinstance(failure, OSError) and failure.errno in OUT_OF_DESCRIPTORS


def is_shortage(failure: BaseException | None) -> TypeGuard[MemoryError | OSError]:
    """Whether there was too little memory, or no descriptor left: it may be tried again."""
    return isinstance(failure, MemoryError) or is_out_of_descriptors(failure)


class TornWriteError(OSError):
    """A write failed part-way and couldn't be taken back: the file no longer ends where the log believes."""


class LockedError(Exception):
    """Another process, or another log directory of this one, holds the lock; `holder` is the process's id, and
    `command` how it was called, where the system tells them."""

    def __init__(self, message: str, holder: int | None = None, command: str = "") -> None:
        super().__init__(message)
        self.holder = holder
        self.command = command


class Volume(NamedTuple):
    """What a directory lies on, be there other directories on it or not (Java's `FileStore`)."""

    total_bytes: int
    usable_bytes: int
    """What this process may still write to it."""


class File:
    """A path, with a descriptor while it is one of the open ones (else `descriptor` is -1)."""

    __slots__ = ("descriptor", "failure", "held", "path", "used_lately")

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = -1
        self.used_lately = False
        self.failure: OSError | None = None
        """Of closing it while it made way for another: what was written may be lost, as who uses it next is told."""
        self.held: HeldFile | None = None
        """Set while someone is yet to read ranges of it."""


class HeldFile:
    """A file that stays readable for those who hold it, though it is taken out of use meanwhile."""

    __slots__ = ("cuts", "file", "holders", "lost")

    def __init__(self, file: File) -> None:
        self.file = file
        self.holders = 0
        self.cuts: list[int] = []
        """The sizes that it was cut to while it was held, in order."""
        self.lost: OSError | None = None
        """Why it can't be read any more."""


class Files(ABC):
    """The files of one node: its faults and its bound on open descriptors are its own, whoever else is in the process.

    What an implementation owes:

    - Each operation calls `_ask` with its own name before it acts. What the hook raises ends the operation with
      nothing done; a number that it returns cuts `append` and `write_whole` short.
    - An operation on a path opens and closes for itself and may run in any thread. One that takes a `File` belongs
      to the thread that runs the logs.
    - An open `File` stays the file that it was opened as, though its path is renamed or removed; an implementation
      may close it between two calls (a bound on descriptors), and then the next call opens its path again. So whoever
      renames a path changes `File.path` too.
    - Bytes outlive a crash of the machine once `sync` of their file has returned, and names in a directory once
      `sync_directory` has. What wasn't synced may be lost, a later write though an earlier one is kept. A killed
      process loses nothing that an operation has done.
    - Failures are `OSError` with an errno, and those that the operations name.
    """

    __slots__ = ("_fault_hook", "_most_retired", "_retired")

    def __init__(self) -> None:
        self._fault_hook: FaultHook | None = None
        self._most_retired = MOST_RETIRED_FILES
        self._retired: dict[HeldFile, None] = {}

    def set_fault_hook(self, hook: FaultHook | None) -> None:
        """Sets what every operation asks before it acts; `None` is the ordinary state."""
        self._fault_hook = hook

    def _ask(self, operation: str, path: str, size: int = 0) -> int | None:
        return None if self._fault_hook is None else self._fault_hook(operation, path, size)

    # ---- open files

    @abstractmethod
    def limit_open_files(self, limit: int) -> None:
        """Bounds the descriptors kept open, from now on (Kafka has no such bound and asks for a higher ulimit)."""

    def limit_retired_files(self, limit: int) -> None:
        """Bounds, from now on, how many files out of use stay open beside those for those who hold them."""
        self._most_retired = limit

    @abstractmethod
    def open_files_count(self) -> int:
        """How many descriptors are open."""

    @abstractmethod
    @_operation
    def open_existing(self, file: File) -> int:
        """The descriptor, opened if need be. Raises `FileNotFoundError`: no file is ever made in passing."""

    @abstractmethod
    @_operation
    def create(self, file: File) -> None:
        """Makes the file, empty even where one was, and keeps it open."""

    def close(self, file: File) -> None:
        """Lets the descriptor go; a later use opens the path again. Who holds the file goes on reading what it is."""
        if file.held is not None:
            self._retire(file, file.held)
        if file.descriptor >= 0:
            self._close(file)

    @abstractmethod
    def _close(self, file: File) -> None:
        """Closes the descriptor that the file has."""

    @abstractmethod
    def _disown(self, file: File) -> None:
        """The file's descriptor is another's from now on, and doesn't count as one of the open ones."""

    def hold(self, file: File) -> HeldFile:
        """Keeps the file readable as it is, until `release`, whatever becomes of its path."""
        held = file.held
        if held is None:
            held = file.held = HeldFile(file)
        held.holders += 1
        return held

    def release(self, held: HeldFile) -> None:
        """One holder less."""
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
        """The file goes out of use: its descriptor becomes that of its holders alone."""
        file.held = None
        try:
            self.open_existing(file)  # it may have made way for another
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
        """Writes all of `data` at `position`, the file's end, in one call; or nothing.

        What a short or failed write left behind is cut off again before `OSError` is raised; where even that
        fails it is `TornWriteError`.
        """

    @abstractmethod
    @_operation
    def read(self, file: File, size: int, position: int) -> bytes:
        """Up to `size` bytes at `position`; fewer at the file's end."""

    @abstractmethod
    @_operation
    def read_into(self, file: File, buffer: memoryview, position: int) -> int:
        """Fills the buffer from `position` on: how many bytes came, fewer at the file's end."""

    @abstractmethod
    @_operation
    def truncate(self, file: File, size: int) -> None:
        """Cuts the file to `size` bytes. Who holds the file must be told, by `_cut`."""

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
        """When the file was last written, in milliseconds since 1970."""

    @abstractmethod
    @_operation
    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Makes it look as if the file had last been written then. Raises `FileNotFoundError`."""

    @abstractmethod
    @_operation
    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory of that path."""

    @abstractmethod
    @_operation
    def real_path(self, path: str) -> str:
        """The one absolute path that all paths of the same file or directory lead to. There need be none."""

    @abstractmethod
    @_operation
    def volume(self, path: str) -> Volume:
        """How large the volume is that the directory lies on. Raises `FileNotFoundError`."""

    @abstractmethod
    @_operation
    def sync(self, path: str) -> None:
        """Waits until the file's bytes are on the disk. A file that is gone (renamed to be deleted) needs none."""

    @abstractmethod
    @_operation
    def sync_directory(self, path: str) -> None:
        """Waits until the names in the directory are on the disk. A directory that is gone needs none."""

    @abstractmethod
    @_operation
    def read_whole(self, path: str) -> bytes:
        """All of the file. Raises `FileNotFoundError`."""

    @abstractmethod
    @_operation
    def write_whole(self, path: str, data: Bytes) -> None:
        """The file anew with these bytes, not synced; one that was there is written over."""

    @abstractmethod
    @_operation
    def rename(self, old: str, new: str) -> None:
        """Raises `FileNotFoundError` where there is no `old`; a file at `new` is replaced."""

    @abstractmethod
    @_operation
    def remove(self, path: str) -> None:
        """Deletes the file, if there is one."""

    @abstractmethod
    @_operation
    def remove_tree(self, path: str) -> None:
        """Deletes the directory with all that is in it, if there is one."""

    @abstractmethod
    @_operation
    def make_directory(self, path: str) -> None:
        """The directory, if there is none. Raises `FileNotFoundError` where the one above is missing: a partition must
        not make a lost log directory anew."""

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
        """Takes the lock of a log directory, for this process against all others, and within the process against
        every other holder. Raises `LockedError`."""

    @abstractmethod
    @_operation
    def unlock(self, path: str) -> None:
        """Gives the lock back."""

    # ---- made of operations

    def replace_whole(self, path: str, data: Bytes, *, synced: bool = True) -> None:
        """The file with these bytes or the old ones, never a part: written beside it as `.tmp`, then renamed.

        With `synced` false that holds for a killed process, but not for a power failure until `sync` is called.
        """
        temporary = path + ".tmp"
        self.write_whole(temporary, data)
        if synced:
            self.sync(temporary)
        self.rename(temporary, path)
        if synced:
            self.sync_directory(os.path.dirname(path))

    def make_directories(self, path: str) -> None:
        """The directory with those above it, as far as there are none."""
        try:
            self.make_directory(path)
        except FileNotFoundError:
            above = os.path.dirname(path)
            if above == path:
                raise
            self.make_directories(above)
            self.make_directory(path)

    def make_say(self, file: File, data: Bytes) -> None:
        """The file with these bytes. One that has them already isn't touched; otherwise a killed process may leave a
        part of them."""
        try:
            if self.size_of(file) == len(data) and (not data or self.read_whole(file.path) == data):
                return
        except FileNotFoundError:
            pass
        self.create(file)
        if data:
            self.append(file, data, 0)


# ---- a range of a file that is read when its bytes are wanted (Kafka: a slice of `FileRecords`)


class FileRange:
    """Bytes of a file, as they were when this was made: the file is held for as long as this exists.

    Its length is their number. Reading raises `OSError` where they aren't there any more: the file's end was cut off,
    or too many files that are out of use were held.
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
        """`size` bytes of the range from its byte `at` on, left in their file. Raises as `read`."""
        self._check()
        return FileRange(self._files, self._held.file, self._position + at, size)

    def read(self, at: int, size: int) -> bytes:
        """`size` bytes of the range from its byte `at` on, at most up to its end."""
        size = min(size, self._size - at)
        self._check()
        data = self._files.read(self._held.file, size, self._position + at)
        if len(data) < size:
            raise self._ended(at + len(data))
        return data

    def read_into(self, at: int, buffer: memoryview) -> int:
        """Fill the buffer from byte `at` on, at most up to the range's end; how many bytes that is, at least one."""
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


# ---- the names of a partition's files, and the offset in each: `00000000000000000369.log`

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
    """The offset at the front of the name; None for a name of another kind, a metadata snapshot's
    (`<offset>-<epoch>.checkpoint`) among them."""
    digits = name[:_DIGITS]
    if len(name) > _DIGITS and name[_DIGITS] == "." and digits.isascii() and digits.isdigit():
        return int(digits)
    return None
