"""The names of a partition's files, and the offset in each: `00000000000000000369.log`."""

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
