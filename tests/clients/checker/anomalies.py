"""Searches a history for anomalies, by Jepsen's names.

Not looked for, since Kafka allows it: transactions that overlap in the log (G0), and the cycles that come of it where
one of two such transactions reads what the other committed meanwhile; sends of one transaction with others' between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tests.clients.checker.cycles import cycles
from tests.clients.checker.history import History, Key, Operation, Outcome, Send
from tests.clients.checker.index import Index

Found = dict[str, list[str]]


def find(history: History) -> Found:
    """Return the anomalies found, by name, with a sentence for every case."""
    index = Index.of(history)
    found: Found = {}
    for name, sentences in (check(index) for check in CHECKS):
        found.setdefault(name, []).extend(sentences)
    for name, sentence in _orders(index):
        found.setdefault(name, []).append(sentence)
    return {name: sentences for name, sentences in sorted(found.items()) if sentences}


def _inconsistent_offsets(index: Index) -> tuple[str, Iterable[str]]:
    return "inconsistent-offsets", (
        f"{key}@{offset} holds {sorted(values)}"
        for (key, offset), values in index.values_at.items()
        if len(values) > 1
    )


def _duplicates(index: Index) -> tuple[str, Iterable[str]]:
    return "duplicate", (
        f"{value} is in {key} at {sorted(offsets)}"
        for (key, value), offsets in index.offsets_of.items()
        if len(offsets) > 1
    )


def _aborted_reads(index: Index) -> tuple[str, Iterable[str]]:
    """Find aborted records that were read, also by operations that weren't OK: the consumer still returned them."""
    return "G1a", (
        f"{value} of an aborted transaction ({writer}) was read by {reader}"
        for (key, value), writer in index.writer_of.items()
        if writer.outcome is Outcome.FAILED
        for reader, _poll in index.readers_of.get((key, value), ())
    )


def _precommitted_reads(index: Index) -> tuple[str, Iterable[str]]:
    return "precommitted-read", (
        f"{value} was read by {reader} before its transaction ({writer}) asked to commit"
        for (key, value), writer in index.writer_of.items()
        if writer.commit_at_ns is not None and not writer.singly
        for reader, poll in index.readers_of.get((key, value), ())
        if poll.at_ns < writer.commit_at_ns
    )


def _unwritten_reads(index: Index) -> tuple[str, Iterable[str]]:
    return "unwritten-read", (
        f"{value}, which nobody sent to {key}, was read by {readers[0][0]}"
        for (key, value), readers in index.readers_of.items()
        if (key, value) not in index.writer_of
    )


def _lost_writes(index: Index) -> tuple[str, Iterable[str]]:
    return "lost-write", (
        f"{send.value} at {send.key}@{send.offset} ({operation}) was never read, though later ones were"
        for operation, send in _unread(index)
        if _is_passed(index, send)
    )


def _unseen(index: Index) -> tuple[str, Iterable[str]]:
    return "unseen", (
        f"{send.value} of {send.key} ({operation}) was never read"
        for operation, send in _unread(index)
        if not _is_passed(index, send)
    )


def _unread(index: Index) -> Iterator[tuple[Operation, Send]]:
    for operation in index.history:
        for send in operation.sends:
            if (send.key, send.value) not in index.readers_of and index.must_be_there(operation, send):
                yield operation, send


def _is_passed(index: Index, send: Send) -> bool:
    read = index.read_offsets.get(send.key)
    return send.offset is not None and bool(read) and read[-1] > send.offset


def _copied_twice(index: Index) -> tuple[str, Iterable[str]]:
    return "copied-twice", (
        f"{source} was copied to {key} as {copies}"
        for (key, source), copies in index.copies_of.items()
        if len(copies) > 1
    )


def _not_copied(index: Index) -> tuple[str, Iterable[str]]:
    """If anything was copied, everything read of the same key must have been copied."""
    sources = sorted({(record.key, record.value) for op in index.history for record in op.records})
    uncopied: list[str] = []
    for to in sorted({to for to, _source in index.copies_of}):
        keys = {key for key, value in sources if (to, value) in index.copies_of}
        uncopied += [
            f"{value} of {key} has no copy in {to}"
            for key, value in sources
            if key in keys and (to, value) not in index.copies_of
        ]
    return "not-copied", uncopied


def _skipped_by_a_group(index: Index) -> tuple[str, Iterable[str]]:
    """One of the group's members must have read everything below its committed offset."""
    last = {sample.group: sample.ends for op in index.history for sample in op.samples}
    return "skipped-by-group", (
        f"{key}@{offset} was not read by {group}, which has committed {end}"
        for group, ends in last.items()
        for key, end in ends.items()
        for offset in index.read_offsets.get(key, ())
        if offset < end and (key, offset) not in index.read_by[group]
    )


def _offsets_back(index: Index) -> tuple[str, Iterable[str]]:
    """A group's committed offset is no less than earlier ones, and no less than those acknowledged earlier."""
    samples = [(sample.at_ns, 1, sample.group, sample.ends) for op in index.history for sample in op.samples]
    acknowledged = [
        (op.done_at_ns, 0, op.group, op.ends)
        for op in index.history
        if op.group and op.outcome is Outcome.OK and op.done_at_ns is not None
    ]
    found: list[str] = []
    most: dict[tuple[str, Key], int] = {}
    for _at_ns, is_sample, group, ends in sorted(samples + acknowledged, key=lambda each: each[:2]):
        if is_sample:
            found += [
                f"{group} had committed {end} of {key}, and later {ends.get(key, 'nothing')}"
                for (of, key), end in most.items()
                if of == group and ends.get(key, 0) < end
            ]
        for key, end in ends.items():
            most[group, key] = max(end, most.get((group, key), 0))
    return "offset-back", found


def _circular_information(index: Index) -> tuple[str, Iterable[str]]:
    """T reads from one that reads from T."""
    committed = [operation for operation in index.history if index.is_committed(operation)]
    after: dict[int, set[int]] = {id(operation): set() for operation in committed}
    for reader in committed:
        for record in reader.records:
            writer = index.writer_of.get((record.key, record.value))
            if writer is not None and writer is not reader and index.is_committed(writer):
                after[id(writer)].add(id(reader))
    by_id = {id(operation): operation for operation in committed}
    return "G1c", (" → ".join(str(by_id[each]) for each in cycle) for cycle in cycles(after))


Check = Callable[[Index], tuple[str, Iterable[str]]]

CHECKS: tuple[Check, ...] = (
    _inconsistent_offsets,
    _duplicates,
    _aborted_reads,
    _precommitted_reads,
    _unwritten_reads,
    _lost_writes,
    _unseen,
    _copied_twice,
    _not_copied,
    _skipped_by_a_group,
    _offsets_back,
    _circular_information,
)


# --- the order in which one process sees and sends ----------------------------------------------------------


def _orders(index: Index) -> Iterator[tuple[str, str]]:
    polled: dict[tuple[int, Key], int] = {}
    sent: dict[tuple[int, Key], int] = {}
    for operation in index.history:
        yield from _poll_order(index, operation, polled)
        yield from _send_order(index, operation, sent)


def _poll_order(
    index: Index, operation: Operation, polled: dict[tuple[int, Key], int]
) -> Iterator[tuple[str, str]]:
    """`polled`: the last offset of each process and key. A consumer rewinds where its transaction isn't OK."""
    here: dict[Key, int] = {}
    for record in operation.records:
        before, prefix = here.get(record.key), "int-"
        if before is None and not operation.group:
            before, prefix = polled.get((operation.process, record.key)), ""
        here[record.key] = record.offset
        if before is None:
            continue
        # Told only where there is something to tell: the operation may be all that was read.
        if record.offset <= before:
            anomaly = "nonmonotonic-poll"
        elif index.was_read_between(record.key, before, record.offset):
            anomaly = "poll-skip"
        else:
            continue
        yield prefix + anomaly, f"{record.key}@{record.offset} came after {before} ({operation})"
    if operation.outcome is Outcome.OK:
        polled.update({(operation.process, key): offset for key, offset in here.items()})


def _send_order(
    index: Index, operation: Operation, sent: dict[tuple[int, Key], int]
) -> Iterator[tuple[str, str]]:
    """Of what was not acknowledged, too, where it was read."""
    here: dict[Key, int] = {}
    for send in operation.sends:
        offset = index.offset_of(send)
        if offset is None:
            continue
        before, prefix = here.get(send.key), "int-"
        if before is None:
            before, prefix = sent.get((operation.process, send.key)), ""
        if before is not None and offset <= before:
            yield f"{prefix}nonmonotonic-send", f"{send.key}@{offset} came after {before} ({operation})"
        here[send.key] = offset
    sent.update({(operation.process, key): offset for key, offset in here.items()})
