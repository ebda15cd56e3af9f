"""The files of a process on a virtual disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from protocol.wire.primitives import Bytes
from storage.files import File, Files, LockedError, TornWriteError, Volume
from tests.simulation.history import History, short
from tests.simulation.virtual_disk import VOLUME_BYTES, Directory, Inode, VirtualDisk


class MachineDied(BaseException):
    """The machine is off: nobody is left to get an error."""


class VirtualFiles(Files):
    """The files of one process on the disk. The process may die at any of their operations."""

    __slots__ = (
        "_clock_ms",
        "_count",
        "_disk",
        "_history",
        "_inodes",
        "_next_descriptor",
        "dead",
        "die_at",
        "die_at_sync",
        "on_death",
    )

    def __init__(self, disk: VirtualDisk, history: History, now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._disk = disk
        self._history = history
        self._clock_ms = now_ms
        self._inodes: dict[int, Inode] = {}
        self._next_descriptor = 3
        self._count = 0
        self.dead = False
        self.die_at = -1
        """The number of the operation, counted from the first, before which the machine dies."""
        self.die_at_sync = -1
        """The same for operations that sync a file, counted from now."""
        self.on_death: Callable[[], None] = lambda: None

    @property
    def operations(self) -> int:
        """How many operations there were."""
        return self._count

    def _ask(self, operation: str, path: str, size: int = 0) -> int | None:
        if self.dead:
            raise MachineDied
        self._count += 1
        if operation == "sync":
            self.die_at_sync = max(self.die_at_sync - 1, -1)
        if self._count == self.die_at or self.die_at_sync == 0:
            self.die_at_sync = -1
            self._history.note("disk", f"dies before {operation} {path}")
            self.on_death()
            raise MachineDied
        return super()._ask(operation, path, size)

    def _note(self, operation: str, path: str, detail: str = "") -> None:
        self._history.note("disk", f"{operation} {path} {detail}")

    # ---- open files

    def limit_open_files(self, limit: int) -> None:
        pass

    def open_files_count(self) -> int:
        return len(self._inodes)

    def _opened(self, file: File) -> Inode:
        if file.descriptor < 0:
            self.open_existing(file)
        return self._inodes[file.descriptor]

    def open_existing(self, file: File) -> int:
        if file.descriptor < 0:
            self._ask("open_existing", file.path)
            self._keep(file, self._disk.inode(file.path))
        return file.descriptor

    def _keep(self, file: File, inode: Inode) -> None:
        file.descriptor = self._next_descriptor
        self._next_descriptor += 1
        self._inodes[file.descriptor] = inode

    def create(self, file: File) -> None:
        self._ask("create", file.path)
        self._note("create", file.path)
        self.close(file)
        self._keep(file, self._made(file.path))

    def _made(self, path: str) -> Inode:
        directory = self._disk.directory(os.path.dirname(path))
        name = os.path.basename(path)
        inode = directory.names.get(name)
        if isinstance(inode, Inode):
            inode.cut(0)
        else:
            inode = Inode()
            directory.change({name: inode})
        inode.modified_ms = self._clock_ms()
        return inode

    def _close(self, file: File) -> None:
        del self._inodes[file.descriptor]
        file.descriptor = -1

    def _disown(self, file: File) -> None:
        pass

    def append(self, file: File, data: Bytes, position: int) -> None:
        inode = self._opened(file)
        size = len(data)
        try:
            allowed = self._ask("append", file.path, size)
            if allowed is not None:
                data = memoryview(data)[:allowed]
            inode.write(data, position)
            inode.modified_ms = self._clock_ms()
            if len(data) == size:
                self._note("append", file.path, f"{position} {short(data)}")
                return
            error = OSError(errno.ENOSPC, f"wrote {len(data)} of {size} bytes", file.path)
        except OSError as failure:
            error = failure
        try:
            self.truncate(file, position)
        except OSError as failure:
            raise TornWriteError(
                failure.errno, f"can't take back a failed write: {failure}", file.path
            ) from error
        raise error

    def read(self, file: File, size: int, position: int) -> bytes:
        inode = self._opened(file)
        self._ask("read", file.path, size)
        return bytes(inode.data[position : position + size])

    def read_into(self, file: File, buffer: memoryview, position: int) -> int:
        inode = self._opened(file)
        self._ask("read_into", file.path, len(buffer))
        data = inode.data[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def truncate(self, file: File, size: int) -> None:
        self._ask("truncate", file.path, size)
        self._note("truncate", file.path, str(size))
        self._cut(file, size)
        self._opened(file).cut(size)

    def size_of(self, file: File) -> int:
        self._ask("size_of", file.path)
        inode = self._inodes[file.descriptor] if file.descriptor >= 0 else self._disk.inode(file.path)
        return len(inode.data)

    # ---- paths

    def modified_ms(self, path: str) -> int:
        self._ask("modified_ms", path)
        return self._disk.inode(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._ask("set_modified_ms", path)
        self._disk.inode(path).modified_ms = modified_ms

    def exists(self, path: str) -> bool:
        self._ask("exists", path)
        return self._disk.find(path) is not None

    def real_path(self, path: str) -> str:
        self._ask("real_path", path)
        return os.path.normpath(os.path.join("/", path))

    def volume(self, path: str) -> Volume:
        self._ask("volume", path)
        self._disk.directory(path)
        return Volume(VOLUME_BYTES, VOLUME_BYTES - self._disk.used_bytes)

    def sync(self, path: str) -> None:
        self._ask("sync", path)
        inode = self._disk.find(path)
        if isinstance(inode, Inode):
            self._note("sync", path, short(inode.data))
            inode.sync()

    def sync_directory(self, path: str) -> None:
        self._ask("sync_directory", path)
        directory = self._disk.find(path)
        if isinstance(directory, Directory):
            self._note("sync_directory", path)
            directory.sync()

    def read_whole(self, path: str) -> bytes:
        self._ask("read_whole", path)
        return bytes(self._disk.inode(path).data)

    def write_whole(self, path: str, data: Bytes) -> None:
        allowed = self._ask("write_whole", path, len(data))
        self._note("write_whole", path, short(data))
        inode = self._made(path)
        inode.cut(0)
        inode.write(memoryview(data)[:allowed], 0)
        if allowed is not None and allowed < len(data):
            raise OSError(errno.ENOSPC, f"wrote {allowed} of {len(data)} bytes", path)

    def rename(self, old: str, new: str) -> None:
        self._ask("rename", old)
        self._note("rename", old, new)
        node = self._disk.find(old)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        source = self._disk.directory(os.path.dirname(old))
        target = self._disk.directory(os.path.dirname(new))
        old_name, new_name = os.path.basename(old), os.path.basename(new)
        if source is target:
            source.change({old_name: None, new_name: node})
        else:
            target.change({new_name: node})
            source.change({old_name: None})

    def remove(self, path: str) -> None:
        self._ask("remove", path)
        if self._disk.find(path) is not None:
            self._note("remove", path)
            self._disk.directory(os.path.dirname(path)).change({os.path.basename(path): None})

    def remove_tree(self, path: str) -> None:
        self._ask("remove_tree", path)
        if self._disk.find(path) is None:
            return
        self._note("remove_tree", path)
        for name in [*self._disk.directory(path).names]:
            if isinstance(self._disk.find(f"{path}/{name}"), Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self._disk.directory(path).change({name: None})
        self._disk.directory(os.path.dirname(path)).change({os.path.basename(path): None})

    def make_directory(self, path: str) -> None:
        self._ask("make_directory", path)
        name = os.path.basename(path)
        if not name:
            return
        above = self._disk.directory(os.path.dirname(path))
        node = above.names.get(name)
        if node is None:
            self._note("make_directory", path)
            above.change({name: Directory()})
        elif not isinstance(node, Directory):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def list_directory(self, path: str) -> list[str]:
        self._ask("list_directory", path)
        return sorted(self._disk.directory(path).names)

    def list_subdirectories(self, path: str) -> list[str]:
        self._ask("list_subdirectories", path)
        names = self._disk.directory(path).names
        return sorted(name for name, node in names.items() if isinstance(node, Directory))

    def lock(self, path: str) -> None:
        self._ask("lock", path)
        if path in self._disk.locked:
            raise LockedError(f"{path} is locked")
        directory = self._disk.directory(os.path.dirname(path))
        if os.path.basename(path) not in directory.names:
            self._made(path)
        self._disk.locked.add(path)

    def unlock(self, path: str) -> None:
        self._ask("unlock", path)
        self._disk.locked.discard(path)
