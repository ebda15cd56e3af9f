"""What lies in a log's directory when it is opened."""

from collections.abc import Iterable

from storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    offset_of,
)

_UNFINISHED_SUFFIXES = (CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX)
END_OF_OFFSET = 20


class FoundFiles:
    """By their names, in one walk: a start does this for each partition."""

    __slots__ = ("base_offsets", "indexes", "snapshots", "unfinished")

    def __init__(self, names: Iterable[str]) -> None:
        self.base_offsets: list[int] = []
        self.snapshots: list[int] = []
        self.indexes: list[tuple[int, str]] = []
        self.unfinished = False
        """Whether something was on its way in or out."""
        for name in names:
            offset = offset_of(name)
            if offset is None:
                self.unfinished = self.unfinished or name.endswith(_UNFINISHED_SUFFIXES)
                continue
            suffix = name[END_OF_OFFSET:]
            if suffix in INDEX_SUFFIXES:
                self.indexes.append((offset, name))
            elif suffix == LOG_SUFFIX:
                self.base_offsets.append(offset)
            elif suffix == SNAPSHOT_SUFFIX:
                self.snapshots.append(offset)
            else:
                self.unfinished = self.unfinished or suffix.endswith(_UNFINISHED_SUFFIXES)
        self.base_offsets.sort()
        self.snapshots.sort()
