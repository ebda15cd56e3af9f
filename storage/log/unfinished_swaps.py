"""What an earlier run has left of segments that were about to take the place of others, or to go.

`replacing` says in which order the names change. A kill leaves what one of its steps left; after a power loss any of
the names that weren't synced may be the old one or the new one, each by itself. Source: org.apache.kafka.storage
LogLoader (removeTempFilesAndCollectSwapFiles, load).
"""

from storage.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, offset_of
from storage.files import Files
from storage.log import segment_recovery

_METADATA_SNAPSHOT_DELETED_SUFFIX = ".checkpoint.deleted"


def settle(files: Files, directory: str, names: set[str]) -> set[str]:
    """Finishes the swaps that were complete, and undoes the others; what is out of use goes. Returns the names that are
    there then. Raises `OSError`."""
    return _finish_swaps(files, directory, _remove_temporary(files, directory, names))


def _remove_temporary(files: Files, directory: str, names: set[str]) -> set[str]:
    """Deletes what was on its way out, or on its way in and not complete."""
    cleaned = [offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    least_cleaned = min((offset for offset in cleaned if offset is not None), default=None)
    undone: set[str] = set()
    if least_cleaned is not None:
        # a swap at or above a segment still being made is part of a split that didn't come to its end
        # (KAFKA-6264); not so where its old segment has made way for it: nothing else has these records
        undone = {
            name
            for name in names
            if name.endswith(SWAP_SUFFIX)
            and (base := offset_of(name)) is not None
            and base >= least_cleaned
            and not _has_made_way(base, names)
        }
    _remove(files, directory, undone)
    if undone:
        # what says that it isn't complete goes after it
        files.sync_directory(directory)
    out_of_use = {
        name
        for name in names
        if name.endswith(CLEANED_SUFFIX)
        or (name.endswith(DELETED_SUFFIX) and not name.endswith(_METADATA_SNAPSHOT_DELETED_SUFFIX))
    }
    _remove(files, directory, out_of_use)
    return names - undone - out_of_use


def _has_made_way(base_offset: int, names: set[str]) -> bool:
    log = f"{base_offset:020d}{LOG_SUFFIX}"
    return log + DELETED_SUFFIX in names and log not in names


def _finish_swaps(files: Files, directory: str, names: set[str]) -> set[str]:
    """Compacted segments that were complete take the place of those that they were made from."""
    swaps = {name for name in names if name.endswith(SWAP_SUFFIX) and offset_of(name) is not None}
    if not swaps:
        return names
    # killed before it had synced these names: a power loss must not take them back while the old files are gone
    files.sync_directory(directory)
    logs = {name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)}
    bases = {offset for offset in map(offset_of, logs) if offset is not None}
    names = _remove_doubtful(
        files, directory, names, {name for name in swaps if offset_of(name) not in bases}
    )
    swaps &= names
    if bases:
        # where nothing is left in the new one, what lies beside the old one at its base goes all the same
        end = max(segment_recovery.end_of_file(files, f"{directory}/{name}") for name in logs)
        end = max(end, *(base + 1 for base in bases))
        replaced = {
            name
            for name in names - swaps
            if (offset := offset_of(name)) is not None and min(bases) <= offset < end
        }
        _remove(files, directory, replaced)
        names = names - replaced
    # the logs last: what lies beside one that has its name, under the name of a swap, is doubtful
    for name in sorted(swaps, key=lambda name: (name in logs, name)):
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    files.sync_directory(directory)
    return {name.removesuffix(SWAP_SUFFIX) if name in swaps else name for name in names}


def _remove_doubtful(files: Files, directory: str, names: set[str], swaps: set[str]) -> set[str]:
    """Of a swap only indexes are left: the `.log` has its name by now, or a power loss took it, and the old one is
    there. Nobody can tell whether they are that one's, or those that have their names: all of them are made anew. Kafka
    takes the former to be."""
    named = {name.removesuffix(SWAP_SUFFIX) for name in swaps} & names
    if named:
        _remove(files, directory, named)
        files.sync_directory(directory)  # first: without the swaps nobody would doubt them
    _remove(files, directory, swaps)
    return names - named - swaps


def _remove(files: Files, directory: str, names: set[str]) -> None:
    for name in sorted(names):
        files.remove(f"{directory}/{name}")
