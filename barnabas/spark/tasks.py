"""What runs on the executors: rows become record batches, and each partition's batches are sent by one task."""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark import arrow_batches, partitioner, wire_records
from barnabas.spark.arrow_batches import Columns
from barnabas.spark.errors import RowError, UnknownTopicError
from barnabas.spark.plan import Blob, Plan
from barnabas.spark.settings import CODECS
from barnabas.spark.writing import Here, report

ARCHIVE = re.compile(r"\.(zip|jar|egg)(/|\\|$)")
# What a task gathers at most before it builds: with many partitions, batches would be small otherwise. It is held two
# or three times over while it is built.
GATHERED_BYTES = 8 << 20
# Of a largest batch for each partition, what is gathered: of a second one that is built with the first, the task would
# have to wait for the first one's answer. Half, for the rows aren't spread evenly.
GATHERED_SHARE = 0.5


def write_rows(
    plan: Plan, gathered_bytes: int = 1
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: writes rows that go to partitions of this task's, or have no place of their own.

    gathered_bytes: as for `build`, at most; a row's worth where each of Arrow's batches goes to one partition anyway.
    """

    def task(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = Here.of_this_task()
        own = [t for t in range(len(plan.targets)) if plan.owner_of(t) == here.task]
        enough = min(gathered_bytes, int(len(own) * plan.batch_bytes * GATHERED_SHARE))
        before = pa.default_memory_pool()
        # Arrow's own gives large buffers back to the system each time, and each page that comes anew is a fault.
        pa.set_memory_pool(pa.system_memory_pool())
        try:
            yield from report(plan, here, build(plan, rows, own, enough))
        finally:
            pa.set_memory_pool(before)
            forget_archives()

    return task


def forget_archives() -> None:
    """Have the worker's next task begin sooner.

    Ahead of each task Spark's worker calls `importlib.invalidate_caches`, upon which Python reads the directory of each
    archive on its path anew that it has imported from: Spark's own once for each package, and all jars of
    `spark.jars.packages`. That takes longer than most of our tasks. What isn't in this cache isn't read, until somebody
    imports what no task before has imported.
    """
    for path in list(sys.path_importer_cache):
        if ARCHIVE.search(path):
            sys.path_importer_cache.pop(path, None)


def build(
    plan: Plan, rows: Iterable[pa.RecordBatch], anywhere: list[int], gathered_bytes: int
) -> Iterator[Blob]:
    """The batches of these rows, in the rows' order within each target.

    anywhere: the targets of rows without partition and key, which they take in turn; some of every topic that has
        such rows here.
    gathered_bytes: how much is gathered before it is built.
    """
    turns = count(plan.batch_id)  # each batch begins with another partition
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        gathered.append(batch)
        size += batch.nbytes
        del batch
        if size >= gathered_bytes:
            yield from _built(plan, _taken(gathered), anywhere, turns)
            size = 0
    if gathered:
        yield from _built(plan, _taken(gathered), anywhere, turns)


def _taken(gathered: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(gathered)
    gathered.clear()
    return table


def _built(plan: Plan, table: pa.Table, anywhere: list[int], turns: Iterator[int]) -> Iterator[Blob]:
    if not len(table):
        return
    named = {name: table.column(name) for name in table.column_names}
    headers = named.get("headers")
    columns = Columns(
        arrow_batches.binary(named["key"]) if "key" in named else None,
        arrow_batches.binary(named["value"]),
        None if headers is None else headers.combine_chunks(),
    )
    targets = _targets(plan, named, columns.key, anywhere, next(turns))
    del table, named, headers
    is_anywhere = isinstance(targets, int)
    if isinstance(targets, int):
        numbers, bounds = [targets], np.array([0, len(columns)])
    else:
        ordered = targets
        if (targets[1:] < targets[:-1]).any():
            # By radix, which numpy has for numbers of 16 bits.
            few = len(plan.targets) <= 1 << 16
            order = np.argsort(targets.astype(np.uint16) if few else targets, kind="stable")
            columns, ordered = columns.take(order), targets[order]
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1, [len(ordered)]])
        numbers = ordered[bounds[:-1]].tolist()
    name = plan.compression
    groups = arrow_batches.build_groups(
        columns,
        bounds,
        int(time.time() * 1000),
        plan.batch_bytes,
        CODECS[name],
        None if name == "none" else lambda data: wire_records.compress(name, data),
    )
    del columns  # what a generator holds while it waits is held in memory
    for place, (group, batch) in enumerate(groups):
        if is_anywhere and place:
            # Another partition, which need not wait for the last one's answer.
            numbers = [anywhere[next(turns) % len(anywhere)]]
        yield Blob(numbers[group], batch)


def _targets(
    plan: Plan, named: dict[str, Any], key: Any, anywhere: list[int], turn: int
) -> npt.NDArray[np.int64] | int:
    """Each row's target, or the one target of all."""
    if plan.topic is not None:
        firsts: npt.NDArray[np.int64] | int = 0
        counts: npt.NDArray[np.int64] | int = len(plan.targets)
        default: npt.NDArray[np.int64] | int = anywhere[turn % len(anywhere)]
        topics: Any = None
    else:
        topics = named["topic"].combine_chunks().dictionary_encode()
        by_topic = _by_topic(plan, topics, anywhere, turn)
        index = topics.indices.to_numpy(zero_copy_only=False)
        firsts, counts, default = by_topic[index, 0], by_topic[index, 1], by_topic[index, 2]
    targets = default
    if key is not None:
        offsets, data = arrow_batches.spans(key)
        hashed = partitioner.partitions_of(partitioner.murmur2(data, offsets), counts) + firsts
        targets = np.where(_nulls(key), default, hashed) if key.null_count else hashed
    if "partition" in named:
        column = named["partition"].combine_chunks()
        chosen = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        given = ~_nulls(column)
        wrong = np.flatnonzero(given & ((chosen < 0) | (chosen >= counts)))
        if len(wrong):
            number = chosen[wrong[0]]
            topic = plan.topic or topics.dictionary[topics.indices[wrong[0]].as_py()].as_py()
            raise RowError(
                f"a row's partition is {number}, and {topic} has the partitions 0 to "
                f"{len(plan.targets_of(topic)) - 1}"
            )
        targets = np.where(given, chosen + firsts, targets)
    return targets


def _by_topic(plan: Plan, topics: Any, anywhere: list[int], turn: int) -> npt.NDArray[np.int64]:
    """Of each topic in the dictionary: its first target, its number of partitions, and whose turn it is."""
    if topics.null_count:
        raise RowError("a row's topic is null; give the sink a topic=... for all rows, or fill the column")
    ranges = plan.ranges()
    own: dict[str, list[int]] = defaultdict(list)
    for number in anywhere:
        own[plan.targets[number].topic].append(number)
    found = []
    for topic in topics.dictionary.to_pylist():
        if topic not in plan.max_message_bytes:
            raise UnknownTopicError(
                f"a row's topic is {topic!r}, which is none of the sink's topics: {', '.join(plan.max_message_bytes)}"
            )
        numbers = ranges[topic]
        # A task that owns none was sent a row of this topic to name its partition, which isn't there.
        some = own.get(topic) or numbers
        found.append((numbers.start, len(numbers), some[turn % len(some)]))
    return np.array(found, np.int64).reshape(-1, 3)


def _nulls(column: Any) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
