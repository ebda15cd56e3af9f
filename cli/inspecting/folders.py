"""The folder of a partition, or of a node: a line for each thing in it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from broker.disks.examination import Examination, drained, look
from cli.inspecting.entry import Entry
from cli.inspecting.place import FILES, Place, names_in
from cli.inspecting.small_files import MEANINGS
from storage import checkpoints
from storage.file_examination import Finding, LogExpectation, SeenLog, Severity, examine_log, told_of
from storage.files import File, offset_of

_KINDS = {
    ".log": "records",
    ".index": "positions of offsets in the segment",
    ".timeindex": "offsets by timestamp",
    ".txnindex": "aborted transactions of the segment",
    ".snapshot": "the producers' state at that offset",
    ".checkpoint": "a snapshot of the metadata",
    ".deleted": "about to be deleted",
    ".cleaned": "the cleaner was writing it",
    ".swap": "cleaned, about to replace the old file",
}
_NAMES = {
    **MEANINGS,
    checkpoints.LEADER_EPOCH_FILE: "at which offset each leader epoch began",
    checkpoints.PARTITION_METADATA_FILE: "the topic's id",
    checkpoints.META_PROPERTIES_FILE: "whose folder it is",
    checkpoints.CLEAN_SHUTDOWN_FILE: "the last run stopped cleanly",
    "quorum-state": "what the node knows of the quorum",
    "bootstrap.checkpoint": "initial metadata of a new cluster",
    f"{0:020d}-{0:010d}.checkpoint": "initial metadata of a new cluster",
    ".lock": "the lock of the broker that uses the folder",
}


def partition(path: str) -> Iterator[Entry]:
    """Yield its files, then a summary of them, then what is wrong."""
    place = Place(f"{path}/{checkpoints.PARTITION_METADATA_FILE}")
    of_it, key = place.looked_at, place.partition
    expected = LogExpectation(
        topic_id=None,
        recovery_point=of_it.recovery_points.get(key, 0),
        log_start_offset=of_it.log_starts.get(key, 0),
        clean=of_it.clean,
        compacted=True,
    )
    found: list[Finding] = []
    seen = drained(examine_log(FILES, path, expected), found)
    for name in names_in(path):
        yield _file(f"{path}/{name}", seen)
    stable = min(seen.open_transactions.values(), default=seen.end_offset)
    fields: dict[str, object] = {
        "start_offset": seen.start_offset,
        "end_offset": seen.end_offset,
        "last_stable_offset": stable,
        "bytes": seen.size_bytes,
        "segments": len(seen.segments),
        "recovery_point": expected.recovery_point,
        "open_transactions": [
            {
                "producer_id": producer,
                "first_offset": began,
                "transactional_id": place.transactional_ids.get(producer),
            }
            for producer, began in seen.open_transactions.items()
        ],
    }
    text = (
        f"offsets {seen.start_offset}–{seen.end_offset - 1}, the next is {seen.end_offset}; "
        f"last stable offset {stable}; {seen.size_bytes:,} bytes in {len(seen.segments)} segments"
    )
    why = "; ".join(
        f"{place.producer(producer)} has been in a transaction since offset {began}"
        for producer, began in seen.open_transactions.items()
    )
    yield Entry("partition", fields, text, why)
    yield from _told(found)


def _file(path: str, seen: SeenLog) -> Entry:
    name = os.path.basename(path)
    base, suffix = offset_of(name), os.path.splitext(name)[1]
    what = _NAMES.get(name) or (_KINDS.get(suffix, "") if base is not None or suffix == ".checkpoint" else "")
    try:
        size = FILES.size_of(File(path))
    except OSError as failure:
        return Entry("file", {"name": name}, name, wrong=told_of(failure))
    fields: dict[str, object] = {"name": name, "bytes": size, "what": what}
    text = f"{name}  {size:,} bytes  {what or 'not a Kafka file'}"
    segment = seen.segments.get(base) if base is not None and suffix == ".log" else None
    if segment is not None and base is not None:
        last = segment.end_offset - 1
        is_empty = not segment.batches
        fields |= {
            "first_offset": None if is_empty else segment.first_offset,
            "last_offset": None if is_empty else last,
            "batches": segment.batches,
        }
        text += ", none" if is_empty else f" {segment.first_offset}–{last} in {segment.batches:,} batches"
    return Entry("file", fields, text)


def data(path: str) -> Iterator[Entry]:
    """Yield its files and its partitions."""
    looked = look(FILES, [path], path)
    directories = set(FILES.list_subdirectories(path))
    for name in names_in(path):
        if name not in directories:
            yield _file(f"{path}/{name}", SeenLog(0, 0, {}, {}))
    yield from _partitions(path, looked)
    if looked.without_folder:
        names = ", ".join(f"{topic}-{number}" for topic, number in sorted(looked.without_folder))
        fields: dict[str, object] = {"without_folder": [[*key] for key in sorted(looked.without_folder)]}
        yield Entry("absent", fields, f"without a folder: {names}", "empty ones need none for barnabas")
    yield from _told(looked.findings)


def _partitions(path: str, looked: Examination) -> Iterator[Entry]:
    seen_ones = dict(looked.partitions[path])
    if looked.metadata_log is not None:
        seen_ones["__cluster_metadata", 0] = looked.metadata_log
    for (topic, number), seen in sorted(seen_ones.items()):
        stable = min(seen.open_transactions.values(), default=seen.end_offset)
        fields: dict[str, object] = {
            "topic": topic,
            "partition": number,
            "start_offset": seen.start_offset,
            "end_offset": seen.end_offset,
            "last_stable_offset": stable,
            "bytes": seen.size_bytes,
            "segments": len(seen.segments),
        }
        text = f"{topic}-{number}  offsets {seen.start_offset}–{seen.end_offset}  {seen.size_bytes:,} bytes"
        count = len(seen.open_transactions)
        why = f"{count} open transactions: readers of committed records stop at {stable}" if count else ""
        yield Entry("partition", fields, text, why)


def _told(findings: list[Finding]) -> Iterator[Entry]:
    for each in findings:
        fields: dict[str, object] = {
            "severity": each.severity.value,
            "path": each.path,
            "what": each.what,
            "what_to_do": each.what_to_do,
        }
        text = f"{each.severity.value}: {each.path}"
        told = f"{each.what}; {each.what_to_do}"
        if each.severity is Severity.NOTE:
            yield Entry("note", fields, text, told)
        else:
            yield Entry("damage", fields, text, wrong=told)
