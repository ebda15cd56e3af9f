"""The files of a real disk. No other module opens, reads, writes, syncs, renames, deletes or locks files.

The number of open files is bounded. Beyond the limit, one that wasn't used lately is closed, and opens again
at its next use.
"""

import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Callable
from contextlib import suppress

from protocol.wire.primitives import Bytes
from storage.files import File, Files, LockedError, TornWriteError, Volume, is_out_of_descriptors

DEFAULT_OPEN_FILES = 512

_MODE = 0o644

_PAGE_BYTES = 1 << 12
_FIRST_READ_BYTES = 1 << 14
_READ_BYTES = 1 << 20

_COMMAND_BYTES = 200
"""How much of a lock holder's command line to report."""

_OTHER_DESCRIPTORS = 64
"""The other descriptors of a process at its start: sockets, pipes, locks."""

_FLOCK = struct.Struct("@hhqqi0q")
"""Linux's `struct flock`: type, whence, start, length, process id."""

_locked_paths: dict[str, int] = {}
"""The locks of the whole process, as the kernel sees them: real path → the descriptor that holds it."""


class DiskFiles(Files):
    """Files of a real disk, with their own descriptors and faults. The locks belong to the process, as the
    kernel's do.

    Files are used in one thread. Operations on a path may run in any.
    """

    __slots__ = ("_access", "_may_make_room", "_open_files", "_open_files_limit")

    def __init__(self, may_make_room: Callable[[], bool] = lambda: True, *, only_reads: bool = False) -> None:
        """`may_make_room` returns True in the thread that uses files, where one may be closed for another.
        `only_reads`: open files for reading only, which needs no right to write them."""
        super().__init__()
        self._may_make_room = may_make_room
        self._access = os.O_RDONLY if only_reads else os.O_RDWR
        self._open_files: dict[File, None] = {}
        self._open_files_limit = DEFAULT_OPEN_FILES

    # ---- open files

    def limit_open_files(self, limit: int) -> None:
        self._open_files_limit = limit
        while len(self._open_files) > limit:
            self._close_one()
        _make_room_for_descriptors(limit + _OTHER_DESCRIPTORS)

    def open_files_count(self) -> int:
        return len(self._open_files) + len(self._retired)

    def _close_one(self) -> None:
        open_files = self._open_files
        while True:
            file = next(iter(open_files))
            del open_files[file]
            if not file.used_lately:
                try:
                    _let_go(file)
                except OSError as failure:  # not the failure of the file that needs the room
                    file.failure = failure
                return
            file.used_lately = False
            open_files[file] = None

    def _keep(self, file: File, descriptor: int) -> int:
        while len(self._open_files) >= self._open_files_limit:
            self._close_one()
        file.descriptor = descriptor
        file.used_lately = True
        self._open_files[file] = None
        return descriptor

    def _open(self, path: str, flags: int) -> int:
        """Open a path. If no descriptor is left, close one of ours to make room."""
        try:
            return self._opened(path, flags)
        except OSError as failure:
            if not (is_out_of_descriptors(failure) and self._may_make_room() and self._open_files):
                raise
        self._close_one()
        return self._opened(path, flags)

    def _opened(self, path: str, flags: int) -> int:
        """Open a path. When only reading, check what it is: a pipe would make us wait, a device could be read
        forever."""
        flags |= os.O_CLOEXEC
        if self._access != os.O_RDONLY:
            return os.open(path, flags, _MODE)
        descriptor = os.open(path, flags | os.O_NONBLOCK, _MODE)
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return descriptor

    def open_existing(self, file: File) -> int:
        if file.descriptor >= 0:
            file.used_lately = True
            return file.descriptor
        self._ask("open_existing", file.path)
        if file.failure is not None:
            failure, file.failure = file.failure, None
            try:
                raise failure
            finally:
                del failure
        return self._keep(file, self._open(file.path, self._access))

    def create(self, file: File) -> None:
        self._ask("create", file.path)
        self.close(file)
        self._keep(file, self._open(file.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))

    def _close(self, file: File) -> None:
        self._open_files.pop(file, None)
        _let_go(file)

    def _disown(self, file: File) -> None:
        del self._open_files[file]

    def append(self, file: File, data: Bytes, position: int) -> None:
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self.open_existing(file)
        else:
            file.used_lately = True
        size = len(data)
        try:
            if self._fault_hook is not None:
                allowed = self._fault_hook("append", file.path, size)
                if allowed is not None:
                    data = memoryview(data)[:allowed]
            written = os.pwrite(descriptor, data, position)
            if written == size:
                return
            error = OSError(errno.ENOSPC, f"wrote {written} of {size} bytes", file.path)
        except OSError as failure:
            failure.filename = file.path
            error = failure
        try:
            self.truncate(file, position)
        except OSError as failure:
            raise TornWriteError(
                failure.errno, f"can't take back a failed write: {failure}", file.path
            ) from error
        try:
            raise error
        finally:
            del error  # its traceback holds this frame, and that the bytes

    def read(self, file: File, size: int, position: int) -> bytes:
        descriptor = file.descriptor
        if descriptor < 0:
            descriptor = self.open_existing(file)
        else:
            file.used_lately = True
        if self._fault_hook is not None:
            self._fault_hook("read", file.path, size)
        return os.pread(descriptor, size, position)

    def read_into(self, file: File, buffer: memoryview, position: int) -> int:
        self._ask("read_into", file.path, len(buffer))
        return os.preadv(self.open_existing(file), [buffer], position)

    def truncate(self, file: File, size: int) -> None:
        self._ask("truncate", file.path, size)
        self._cut(file, size)
        os.ftruncate(self.open_existing(file), size)

    def size_of(self, file: File) -> int:
        self._ask("size_of", file.path)
        return os.fstat(file.descriptor).st_size if file.descriptor >= 0 else os.stat(file.path).st_size

    # ---- paths

    def modified_ms(self, path: str) -> int:
        self._ask("modified_ms", path)
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._ask("set_modified_ms", path)
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def exists(self, path: str) -> bool:
        self._ask("exists", path)
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False  # if the disk refuses in another way, it may still exist
        return True

    def real_path(self, path: str) -> str:
        self._ask("real_path", path)
        return os.path.realpath(path)

    def volume(self, path: str) -> Volume:
        self._ask("volume", path)
        found = os.statvfs(path)
        return Volume(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    def sync(self, path: str) -> None:
        self._ask("sync", path)
        self._sync(path, os.O_RDONLY)

    def sync_directory(self, path: str) -> None:
        self._ask("sync_directory", path)
        self._sync(path, os.O_RDONLY | os.O_DIRECTORY)

    def _sync(self, path: str, flags: int) -> None:
        try:
            descriptor = self._open(path, flags)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read_whole(self, path: str) -> bytes:
        self._ask("read_whole", path)
        descriptor = self._open(path, os.O_RDONLY)
        try:
            data = os.read(descriptor, _FIRST_READ_BYTES)
            # Less than a page is the whole file. After whole pages an error may have ended the read.
            more = os.read(descriptor, _READ_BYTES) if len(data) >= _PAGE_BYTES else b""
            if not more:
                return data
            parts = [data]
            while more:
                parts.append(more)
                more = os.read(descriptor, _READ_BYTES)
            return b"".join(parts)
        except OSError as failure:
            failure.filename = path
            raise
        finally:
            os.close(descriptor)

    def write_whole(self, path: str, data: Bytes) -> None:
        allowed = self._ask("write_whole", path, len(data))
        descriptor = self._open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            view = memoryview(data)[:allowed]
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError as failure:
            failure.filename = path
            raise
        finally:
            os.close(descriptor)
        if allowed is not None and allowed < len(data):
            raise OSError(errno.ENOSPC, f"wrote {allowed} of {len(data)} bytes", path)

    def rename(self, old: str, new: str) -> None:
        self._ask("rename", old)
        os.rename(old, new)

    def remove(self, path: str) -> None:
        self._ask("remove", path)
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        self._ask("remove_tree", path)
        for folder, _subfolders, names in os.walk(path, topdown=False):
            for name in names:
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)

    def make_directory(self, path: str) -> None:
        self._ask("make_directory", path)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def list_directory(self, path: str) -> list[str]:
        self._ask("list_directory", path)
        return sorted(os.listdir(path))

    def list_subdirectories(self, path: str) -> list[str]:
        self._ask("list_subdirectories", path)
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    # ---- locks

    def lock(self, path: str) -> None:
        """Take the lock that Kafka takes: fcntl's, which its JVM uses. One of flock's would be granted beside it.

        The kernel drops it with the process, and when this process closes *any* descriptor of the file:
        nothing else may open it.
        """
        self._ask("lock", path)
        real_path = os.path.realpath(path)
        if real_path in _locked_paths:
            raise _locked(f"{path} is locked by this process", os.getpid())
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            holder = _lock_holder(descriptor)
            os.close(descriptor)
            if failure.errno in (errno.EACCES, errno.EAGAIN):
                raise _locked(f"{path} is locked by another process", holder) from failure
            raise
        _locked_paths[real_path] = descriptor

    def unlock(self, path: str) -> None:
        self._ask("unlock", path)
        os.close(_locked_paths.pop(os.path.realpath(path)))


def locked_by(path: str) -> LockedError | None:
    """The holder of the lock; None if nobody holds it, or the system doesn't reveal it. This changes nothing.

    It doesn't open a descriptor of our own lock file: closing that would release the lock.
    """
    if os.path.realpath(path) in _locked_paths:
        return _locked(f"{path} is locked by this process", os.getpid())
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_locked, holder = _lock_of(descriptor)
    finally:
        os.close(descriptor)
    return _locked(f"{path} is locked by another process", holder) if is_locked else None


def _let_go(file: File) -> None:
    """Close the descriptor. Even if that fails, another file may get its number soon."""
    descriptor, file.descriptor = file.descriptor, -1
    os.close(descriptor)


def _make_room_for_descriptors(count: int) -> None:
    """Let the system grow its table of this process's descriptors to `count`.

    In a process with one thread, as at the start, that costs nothing. Later Linux waits for every core, some
    milliseconds, each time the table doubles.
    """
    with suppress(OSError), open(os.devnull, "rb", buffering=0) as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, count))


def _locked(message: str, holder: int | None) -> LockedError:
    """The error, with the information needed to end the holder."""
    command = ""
    if holder is not None:
        try:
            with open(f"/proc/{holder}/cmdline", "rb") as file:
                command = file.read(_COMMAND_BYTES).replace(b"\0", b" ").decode("utf-8", "replace").strip()
        except OSError:  # there is no such folder on this system, or the process has ended
            pass
    return LockedError(message, holder, command)


def _lock_holder(descriptor: int) -> int | None:
    """The id of the process that holds the lock; None if the system doesn't reveal it. Linux does, unless
    that process is in another container."""
    return _lock_of(descriptor)[1]


def _lock_of(descriptor: int) -> tuple[bool, int | None]:
    """Whether another process holds the lock, and which. False if the system doesn't reveal it."""
    if sys.platform != "linux":
        return False, None
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        kind, *_, process_id = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    except OSError:
        return False, None
    return kind != fcntl.F_UNLCK, process_id if process_id > 0 else None
