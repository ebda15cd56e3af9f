"""A range of a file that is read when its bytes are wanted (Kafka: a slice of `FileRecords`)."""

import errno

from storage.files import File, Files


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

    def part(self, at: int, size: int) -> "FileRange":
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
