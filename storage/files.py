"""The only place that opens, reads, writes, syncs, renames, deletes and locks files.

Every operation stands under its own name in `OPERATIONS`, and asks one hook before it acts: a test makes any
of them fail, write less than it was given, or be the last one of a process (`set_fault_hook`).

Open files are bounded. A `File` is a path and, for a while, a descriptor; when more than the limit are open,
one that wasn't used lately is closed, and opens again at its next use. Because of that everything here that
takes a `File` belongs to the one thread that runs the logs. What takes a path opens and closes for itself,
and may run in any thread.
"""

import errno
import fcntl
import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Bytes = bytes | bytearray | memoryview
FaultHook = Callable[[str, str, int], int | None]
"""Called as (operation, path, size in bytes) before each operation. It may raise; a number makes an operation
that writes stop after so many bytes.
"""

_FIRST_READ_BYTES = 1 << 14
_READ_BYTES = 1 << 20

_P = ParamSpec("_P")
_R = TypeVar("_R")

OPERATIONS: dict[str, Callable[..., object]] = {}
DEFAULT_OPEN_FILES = 512

_fault_hook: FaultHook | None = None
_open_files: dict["File", None] = {}
_open_files_limit = DEFAULT_OPEN_FILES
_locked_paths: dict[str, int] = {}


class TornWriteError(OSError):
    """A write failed part-way and couldn't be taken back: the file no longer ends where the log believes."""


class LockedError(Exception):
    """Another process, or another log directory of this one, holds the lock."""


class File:
    """A path, with a descriptor while it is one of the open ones (else `descriptor` is -1)."""

    __slots__ = ("descriptor", "path", "used_lately")

    def __init__(self, path: str) -> None:
        self.path = path
        self.descriptor = -1
        self.used_lately = False


def set_fault_hook(hook: FaultHook | None) -> None:
    """Sets what every operation asks before it acts; `None` is the ordinary state of things."""
    global _fault_hook
    _fault_hook = hook


def limit_open_files(limit: int) -> None:
    """Bounds the descriptors kept open, from now on (Kafka has no such bound and asks for a higher ulimit)."""
    global _open_files_limit
    _open_files_limit = limit
    while len(_open_files) > limit:
        _close_one()


def open_files_count() -> int:
    return len(_open_files)


def _operation(function: Callable[_P, _R]) -> Callable[_P, _R]:
    OPERATIONS[function.__name__] = function
    return function


def _ask(operation: str, path: str, size: int = 0) -> int | None:
    return None if _fault_hook is None else _fault_hook(operation, path, size)


def _close_one() -> None:
    while True:
        file = next(iter(_open_files))
        del _open_files[file]
        if not file.used_lately:
            os.close(file.descriptor)
            file.descriptor = -1
            return
        file.used_lately = False
        _open_files[file] = None


def _keep(file: File, descriptor: int) -> int:
    while len(_open_files) >= _open_files_limit:
        _close_one()
    file.descriptor = descriptor
    file.used_lately = True
    _open_files[file] = None
    return descriptor


@_operation
def open_existing(file: File) -> int:
    """The descriptor, opened if need be. Raises `FileNotFoundError`: no file is ever made in passing."""
    if file.descriptor >= 0:
        file.used_lately = True
        return file.descriptor
    _ask("open_existing", file.path)
    return _keep(file, os.open(file.path, os.O_RDWR | os.O_CLOEXEC))


@_operation
def create(file: File) -> None:
    """Makes the file, empty even where one was, and keeps it open."""
    _ask("create", file.path)
    close(file)
    _keep(file, os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))


def close(file: File) -> None:
    """Lets the descriptor go; a later use opens the path again."""
    if file.descriptor >= 0:
        del _open_files[file]
        os.close(file.descriptor)
        file.descriptor = -1


@_operation
def append(file: File, data: Bytes, position: int) -> None:
    """Writes all of `data` at `position`, the file's end, in one call; or nothing.

    What a short or failed write left behind is cut off again before `OSError` is raised; where even that
    fails it is `TornWriteError`.
    """
    descriptor = file.descriptor
    if descriptor < 0:
        descriptor = open_existing(file)
    else:
        file.used_lately = True
    size = len(data)
    try:
        if _fault_hook is not None:
            allowed = _fault_hook("append", file.path, size)
            if allowed is not None:
                data = memoryview(data)[:allowed]
        written = os.pwrite(descriptor, data, position)
        if written == size:
            return
        error = OSError(errno.ENOSPC, f"wrote {written} of {size} bytes", file.path)
    except OSError as failure:
        error = failure
    try:
        truncate(file, position)
    except OSError as failure:
        raise TornWriteError(
            failure.errno, f"can't take back a failed write: {failure}", file.path
        ) from error
    raise error


@_operation
def read(file: File, size: int, position: int) -> bytes:
    """Up to `size` bytes at `position`; fewer at the file's end."""
    descriptor = file.descriptor
    if descriptor < 0:
        descriptor = open_existing(file)
    else:
        file.used_lately = True
    if _fault_hook is not None:
        _fault_hook("read", file.path, size)
    return os.pread(descriptor, size, position)


@_operation
def truncate(file: File, size: int) -> None:
    """Cuts the file to `size` bytes."""
    _ask("truncate", file.path, size)
    os.ftruncate(open_existing(file), size)


@_operation
def size_of(file: File) -> int:
    """The file's size in bytes. Raises `FileNotFoundError`."""
    _ask("size_of", file.path)
    return os.fstat(file.descriptor).st_size if file.descriptor >= 0 else os.stat(file.path).st_size


@_operation
def modified_ms(path: str) -> int:
    """When the file was last written, in milliseconds since 1970."""
    _ask("modified_ms", path)
    return os.stat(path).st_mtime_ns // 1_000_000


@_operation
def exists(path: str) -> bool:
    _ask("exists", path)
    return os.path.exists(path)


@_operation
def sync(path: str) -> None:
    """Waits until the file's bytes are on the disk. A file that is gone (renamed to be deleted) needs none."""
    _ask("sync", path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@_operation
def sync_directory(path: str) -> None:
    """Waits until the names in the directory are on the disk. A directory that is gone needs none."""
    _ask("sync_directory", path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@_operation
def read_whole(path: str) -> bytes:
    """All of the file. Raises `FileNotFoundError`."""
    _ask("read_whole", path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, _FIRST_READ_BYTES)
        more = os.read(descriptor, _READ_BYTES) if data else b""
        if not more:
            return data
        parts = [data]
        while more:
            parts.append(more)
            more = os.read(descriptor, _READ_BYTES)
        return b"".join(parts)
    finally:
        os.close(descriptor)


@_operation
def write_whole(path: str, data: Bytes) -> None:
    """The file anew with these bytes, not synced; one that was there is written over."""
    allowed = _ask("write_whole", path, len(data))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)[:allowed]
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
    if allowed is not None and allowed < len(data):
        raise OSError(errno.ENOSPC, f"wrote {allowed} of {len(data)} bytes", path)


def replace_whole(path: str, data: Bytes, *, synced: bool = True) -> None:
    """The file with these bytes or the old ones, never a part: written beside it as `.tmp`, then renamed.

    With `synced` false that holds for a killed process, though not for a lost power supply until `sync` is
    called.
    """
    temporary = path + ".tmp"
    write_whole(temporary, data)
    if synced:
        sync(temporary)
    rename(temporary, path)
    if synced:
        sync_directory(os.path.dirname(path))


def make_say(file: File, data: Bytes) -> None:
    """The file with these bytes: one that has them already isn't touched. Else a killed process may leave a part."""
    try:
        if size_of(file) == len(data) and (not data or read_whole(file.path) == data):
            return
    except FileNotFoundError:
        pass
    create(file)
    if data:
        append(file, data, 0)


@_operation
def rename(old: str, new: str) -> None:
    """Raises `FileNotFoundError` where there is no `old`; a file at `new` is replaced."""
    _ask("rename", old)
    os.rename(old, new)


@_operation
def remove(path: str) -> None:
    """Deletes the file, if there is one."""
    _ask("remove", path)
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


@_operation
def remove_tree(path: str) -> None:
    """Deletes the directory with all that is in it, if there is one."""
    _ask("remove_tree", path)
    for folder, _subfolders, names in os.walk(path, topdown=False):
        for name in names:
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


@_operation
def make_directory(path: str) -> None:
    """The directory with those above it, if there is none."""
    _ask("make_directory", path)
    os.makedirs(path, exist_ok=True)


@_operation
def list_directory(path: str) -> list[str]:
    """The names in the directory, sorted. Raises `FileNotFoundError`."""
    _ask("list_directory", path)
    return sorted(os.listdir(path))


@_operation
def list_subdirectories(path: str) -> list[str]:
    """The names of the directories in the directory, sorted."""
    _ask("list_subdirectories", path)
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir())


@_operation
def lock(path: str) -> int:
    """Takes the lock that Kafka takes (fcntl's, which its JVM uses; flock's would be granted beside it).

    Raises `LockedError`. The kernel drops the lock with the process, and with *any* descriptor of the file
    that this process closes: nothing else may open it.
    """
    _ask("lock", path)
    real_path = os.path.realpath(path)
    if real_path in _locked_paths:
        raise LockedError(f"{path} is locked by this process")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as failure:
        os.close(descriptor)
        if failure.errno in (errno.EACCES, errno.EAGAIN):
            raise LockedError(f"{path} is locked by another process") from failure
        raise
    _locked_paths[real_path] = descriptor
    return descriptor


@_operation
def unlock(path: str) -> None:
    """Gives the lock back."""
    _ask("unlock", path)
    os.close(_locked_paths.pop(os.path.realpath(path)))
