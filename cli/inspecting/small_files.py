"""Kafka's small text files: checkpoints, ids, the quorum's state, the mark of a clean shutdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from broker.controller.quorum_state import FILE as QUORUM_STATE
from broker.disks.examination import wrong_with_quorum_state
from cli.inspecting.entry import Entry
from cli.inspecting.place import FILES, Place, names_in
from storage import checkpoints
from storage.checkpoints import CheckpointError
from storage.file_examination import told_of
from storage.files import LOG_SUFFIX, offset_of
from storage.log.segment_recovery import end_of_file

MEANINGS = {
    checkpoints.RECOVERY_POINT_FILE: "synced up to there: after a kill a start reads what follows",
    checkpoints.HIGH_WATERMARK_FILE: "high watermarks: readers see what is below",
    checkpoints.LOG_START_FILE: "where logs begin that don't begin with their first segment (DeleteRecords)",
    checkpoints.CLEANER_OFFSET_FILE: "up to where the log cleaner has cleaned",
}


def offsets(place: Place) -> Iterator[Entry]:
    """Yield a line for each partition."""
    try:
        said = checkpoints.read_offsets(FILES, place.path)
    except (CheckpointError, OSError) as failure:
        yield _unreadable(place, failure, "a start takes it for empty")
        return
    for key, offset in said.items():
        end = end_of_log(f"{place.directory}/{key[0]}-{key[1]}")
        why = "it has no folder here" if end is None else f"its log ends at {end}"
        beyond = end is not None and not 0 <= offset <= end
        wrong = f"offset {offset} isn't in the log, which ends at {end}" if beyond else ""
        fields: dict[str, object] = {"topic": key[0], "partition": key[1], "offset": offset, "log_end": end}
        yield Entry("offset", fields, f"{key[0]}-{key[1]}  {offset}", why, wrong)
    yield Entry("end", {"entries": len(said)}, f"{len(said)} partitions", MEANINGS[place.name])


def end_of_log(directory: str) -> int | None:
    """Return the offset after the last batch of the last segment, or None if there is no log."""
    bases = [offset_of(name) for name in names_in(directory) if name.endswith(LOG_SUFFIX)]
    last = max((base for base in bases if base is not None), default=None)
    if last is None:
        return None
    try:
        return end_of_file(FILES, f"{directory}/{last:020d}{LOG_SUFFIX}") or last
    except OSError:
        return None


def leader_epochs(place: Place) -> Iterator[Entry]:
    """Yield a line for each epoch."""
    try:
        said = checkpoints.read_leader_epochs(FILES, place.path)
    except (CheckpointError, OSError) as failure:
        yield _unreadable(place, failure, "a start rebuilds it from the batches")
        return
    ends: list[int | None] = [start for _, start in said[1:]]
    previous = -1
    for (epoch, start), end in zip(said, [*ends, end_of_log(place.directory)], strict=False):
        wrong = f"epoch {epoch} comes after {previous}" if epoch <= previous else ""
        if end is not None and end < start:
            wrong = wrong or f"it begins at offset {start}, and the next one at {end}"
        previous = epoch
        fields: dict[str, object] = {"epoch": epoch, "start_offset": start, "end_offset": end}
        text = f"epoch {epoch}  from offset {start}" + (
            f" to {end - 1}" if end is not None and end > start else ""
        )
        yield Entry("epoch", fields, text, "" if end != start else "nothing was written in it", wrong)
    yield Entry("end", {"entries": len(said)}, f"{len(said)} leader epochs")


def meta_properties(place: Place) -> Iterator[Entry]:
    """Yield the folder's owner."""
    try:
        said = checkpoints.read_meta_properties(FILES, place.path) or {}
    except OSError as failure:
        yield _unreadable(place, failure, checkpoints.META_PROPERTIES_TODO)
        return
    for name, value in said.items():
        wrong = "" if name in (*checkpoints.META_PROPERTIES, "broker.id") else "it is an unknown name"
        yield Entry("property", {"name": name, "value": value}, f"{name}  {value}", "", wrong)
    missing = [name for name in checkpoints.META_PROPERTIES if not said.get(name)]
    wrong = f"{', '.join(missing)} missing: {checkpoints.META_PROPERTIES_TODO}" if missing else ""
    yield Entry("end", {"properties": len(said)}, f"{len(said)} properties", "", wrong)


def partition_metadata(place: Place) -> Iterator[Entry]:
    """Yield the topic id."""
    try:
        topic_id = checkpoints.read_partition_metadata(FILES, place.path)
    except (CheckpointError, OSError) as failure:
        yield _unreadable(place, failure, checkpoints.partition_metadata_todo("ITS TOPIC'S ID"))
        return
    wrong = "" if topic_id else "it says nothing: a start writes it again"
    yield Entry("topic", {"topic_id": topic_id}, f"topic id {topic_id}", "", wrong)


def quorum_state(place: Place) -> Iterator[Entry]:
    """Yield what the node knows of the quorum."""
    todo = "Kafka refuses to start with it, but starts without"
    try:
        said = json.loads(FILES.read_whole(place.path))
        wrong = wrong_with_quorum_state(said)
    except (ValueError, TypeError, AttributeError, OSError) as failure:
        yield _unreadable(place, failure, todo)
        return
    text = "  ".join(f"{name} {value}" for name, value in said.items())
    yield Entry("quorum", said, text, "", f"{wrong}: {todo}" if wrong else "")


def clean_shutdown(place: Place) -> Iterator[Entry]:
    """Yield the mark that a clean stop leaves."""
    try:
        epoch = checkpoints.read_clean_shutdown(FILES, place.path)
        says = checkpoints.says_clean_shutdown(FILES.read_whole(place.path))
    except OSError as failure:
        yield _unreadable(place, failure, "remove it: then a start checks everything")
        return
    wrong = "" if says else "it doesn't say which run stopped cleanly"
    text = f"the run with broker epoch {epoch} stopped cleanly: a start checks nothing"
    yield Entry("clean", {"broker_epoch": epoch}, text, "", wrong)


def _unreadable(place: Place, failure: Exception, start: str) -> Entry:
    return Entry("damage", {}, place.name, wrong=f"{' '.join(told_of(failure).split())}; {start}")


READERS: dict[str, Callable[[Place], Iterator[Entry]]] = {
    **dict.fromkeys(MEANINGS, offsets),
    checkpoints.LEADER_EPOCH_FILE: leader_epochs,
    checkpoints.META_PROPERTIES_FILE: meta_properties,
    checkpoints.PARTITION_METADATA_FILE: partition_metadata,
    checkpoints.CLEAN_SHUTDOWN_FILE: clean_shutdown,
    QUORUM_STATE: quorum_state,
}
"""The readers by the file's name."""
