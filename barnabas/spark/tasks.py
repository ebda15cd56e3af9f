"""The code that runs on the executors: it turns rows into record batches, stamps and sends them, and reports the
outcome. Each partition belongs to one task and gets one batch at a time."""

from __future__ import annotations

import platform
import re
import sys
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark import arrow_batches, errors, wire
from barnabas.spark import plan as reports
from barnabas.spark.arrow_batches import Batch, Columns
from barnabas.spark.errors import (
    DuplicateWriteError,
    NoAnswerError,
    RecordTooLargeError,
    ResponseError,
    RowError,
    SinkError,
    TaskRepeatedError,
    TryFailedError,
    UnknownTopicError,
    WorkerError,
    as_sink_error,
)
from barnabas.spark.plan import SEQUENCES, Blob, Plan, arrow_schema
from barnabas.spark.settings import CODECS
from barnabas.spark.wire import Appended, Outgoing, Pending, Wire

# The most requests in flight, and the fewest partitions that they go to: one is sent while the next is built.
IN_FLIGHT = 4
IN_FLIGHT_BYTES = 16 << 20  # a single request may be larger
REQUEST_BYTES = 512 << 10  # a request of this size is sent at once
# After these answers the same batch may be sent again. If it was appended after all, the broker says so.
SENT_AGAIN = {*errors.LEADER_MOVES, *errors.COORDINATOR_MOVES, errors.NOT_ENOUGH_REPLICAS}
SENDINGS = 6
PAUSE_S = 0.05
FRESH = -1
MOST_TOLD = 2000  # characters of an error message, which may contain a row

SCHEMA = arrow_schema(reports.SCHEMA)


@dataclass(frozen=True, slots=True)
class Here:
    """Where this code runs.

    attempt: unique in the application. is_again: True if the task was tried before. stage: its id.
    """

    task: int
    attempt: int
    is_again: bool
    stage: int = -1

    @classmethod
    def of_this_task(cls) -> Self:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise TryFailedError("this code runs outside of a Spark task")
        return cls(
            context.partitionId(), context.taskAttemptId(), context.attemptNumber() > 0, context.stageId()
        )


@dataclass(slots=True)
class Partition:
    """The progress of one partition. `request` holds a batch of it that isn't answered yet."""

    target: int
    sequence: int = 0
    records: int = 0
    batches: int = 0
    bytes: int = 0
    first_offset: int = -1
    last_offset: int = -1
    request: Request | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch and its target."""

    partition: Partition
    batch: Batch


@dataclass(slots=True)
class Request:
    """Batches for partitions of one leader, at most one for each. They are being gathered, or in flight once `pending`
    is set."""

    leader: int
    batches: list[Sent] = field(default_factory=list)
    size: int = 0
    pending: Pending | None = None

    def add(self, sent: Sent) -> None:
        self.batches.append(sent)
        self.size += sent.batch.size
        sent.partition.request = self


@dataclass(slots=True)
class Writer:
    """Sends blobs. Raises a SinkError as soon as the try can't succeed any more.

    gathered: the next request to each leader. It is sent once it is large enough, or something waits for it.
    """

    plan: Plan
    connection: Wire
    partitions: dict[int, Partition] = field(default_factory=dict)
    leaders: list[int] = field(default_factory=list)
    gathered: dict[int, Request] = field(default_factory=dict)
    in_flight: deque[Request] = field(default_factory=deque)

    def send(self, blob: Blob) -> None:
        """Send a batch soon, one at a time for each partition, to keep their order.

        Raises RecordTooLargeError, and the outcome of the batches that it waited for.
        """
        partition = self.partitions.setdefault(blob.target, Partition(blob.target))
        self._check(blob)
        if partition.request is not None and partition.request.pending is None:
            self._begin(partition.request)
        while partition.request is not None:
            self._finish(self.in_flight.popleft())
        arrow_batches.stamp(blob.batch, self.plan.producer_id, self.plan.epoch, partition.sequence)
        partition.sequence = (partition.sequence + blob.batch.records) % SEQUENCES
        request = self._gather(Sent(partition, blob.batch))
        if request.size >= REQUEST_BYTES:
            self._begin(request)

    def finish(self) -> None:
        """Send what is left, and wait for all answers."""
        while self.gathered:
            self._begin(next(iter(self.gathered.values())))
        while self.in_flight:
            self._finish(self.in_flight.popleft())

    def _gather(self, sent: Sent) -> Request:
        leader = self.leaders[sent.partition.target]
        request = self.gathered.setdefault(leader, Request(leader))
        request.add(sent)
        return request

    def _check(self, blob: Blob) -> None:
        topic = self.plan.targets[blob.target].topic
        limit = self.plan.max_message_bytes[topic]
        if blob.batch.size > limit:
            raise RecordTooLargeError(
                f"a record batch of {blob.batch.size} bytes, with {blob.batch.records} record(s), is larger than "
                f"max.message.bytes={limit} of the topic {topic}"
            )

    def _begin(self, request: Request) -> None:
        """Send a leader's gathered request, once there is room in flight."""
        del self.gathered[request.leader]
        while self.in_flight and (
            len(self.in_flight) >= IN_FLIGHT
            or sum(one.size for one in self.in_flight) + request.size > IN_FLIGHT_BYTES
        ):
            self._finish(self.in_flight.popleft())
        self._send(request)
        self.in_flight.append(request)

    def _send(self, request: Request) -> None:
        # `Wire.send` wants the batches of a topic side by side.
        request.batches.sort(key=lambda sent: sent.partition.target)
        request.pending = self.connection.send(
            request.leader,
            self.plan.transactional_id,
            [Outgoing(*self.plan.targets[one.partition.target], one.batch.pieces) for one in request.batches],
        )

    def _finish(self, request: Request) -> None:
        refused = self._answers(request, is_last=False)
        for number in range(1, SENDINGS):
            if not refused:
                return
            time.sleep(PAUSE_S * 2 ** (number - 1))
            self._find_leaders()
            again: dict[int, Request] = {}
            for sent in refused:
                leader = self.leaders[sent.partition.target]
                again.setdefault(leader, Request(leader)).add(sent)
            refused = []
            for one in again.values():
                self._send(one)
                refused += self._answers(one, is_last=number == SENDINGS - 1)

    def _answers(self, request: Request, *, is_last: bool) -> list[Sent]:
        """Record what was appended, and return what has to be sent again. Raises an error that no resending would
        repair."""
        assert request.pending is not None
        refused = []
        for sent, answer in zip(request.batches, self.connection.wait(request.pending), strict=True):
            if isinstance(answer, Appended):
                self._take(sent, answer)
            elif is_last or answer.code not in SENT_AGAIN:
                raise answer
            else:
                refused.append(sent)
        return refused

    def _take(self, sent: Sent, appended: Appended) -> None:
        partition, batch = sent.partition, sent.batch
        target = self.plan.targets[partition.target]
        if appended.log_append_time_ms != FRESH or appended.base_offset <= partition.last_offset:
            raise DuplicateWriteError(
                f"partition {target.partition} of {target.topic} already holds a batch with the same sequences, "
                f"at offset {appended.base_offset}: another attempt wrote it, with unknown contents"
            )
        if not partition.batches:
            partition.first_offset = appended.base_offset
        partition.last_offset = appended.base_offset + batch.records - 1
        partition.records += batch.records
        partition.batches += 1
        partition.bytes += batch.size
        partition.request = None

    def _find_leaders(self) -> None:
        found = self.connection.leaders(list(self.plan.max_message_bytes))
        self.leaders = [found[topic][number] for topic, number in self.plan.targets]
        gathered = list(self.gathered.values())
        self.gathered.clear()
        for request in gathered:
            for sent in request.batches:
                self._gather(sent)


def report(plan: Plan, here: Here, blobs: Iterable[Blob]) -> Iterator[pa.RecordBatch]:
    """Write the blobs, and yield rows of `plan.SCHEMA`: what was written, or that it failed, and why.

    No error may leave the task: Spark would try the task again, and the second attempt's error would hide the first
    one's.
    """
    try:
        partitions = _write(plan, here, blobs)
    except SinkError as error:
        yield _rows([_no_partition(here, type(error).__name__, str(error))])
        return
    except ImportError as error:
        yield _rows([_no_partition(here, WorkerError.__name__, _missing(error))])
        return
    except Exception as error:
        yield _rows([_no_partition(here, TryFailedError.__name__, _unexpected(error))])
        return
    rows: list[tuple[object, ...]] = [
        (
            *plan.targets[one.target], here.attempt, one.records, one.batches, one.bytes,
            one.first_offset, one.last_offset, None, None, None,
        )
        for one in partitions
    ]  # fmt: skip
    yield _rows(rows or [_no_partition(here, None, None)])


def _write(plan: Plan, here: Here, blobs: Iterable[Blob]) -> list[Partition]:
    if here.is_again:
        raise TaskRepeatedError("Spark tried a task again whose first attempt may have written already")
    iterator = iter(blobs)
    first = next(iterator, None)
    if first is None:
        return []  # without even connecting
    connection = Wire(plan.bootstrap, plan.client, plan.request_timeout_ms)
    try:
        connection.connect()
        writer = Writer(plan, connection, leaders=list(plan.leaders))
        writer.send(first)
        for blob in iterator:
            writer.send(blob)
        writer.finish()
        return list(writer.partitions.values())
    except NoAnswerError as error:
        raise TryFailedError(f"a task lost its broker: {error}") from error
    except ResponseError as error:
        raise as_sink_error(error) from error
    finally:
        connection.close()


def _no_partition(here: Here, error: str | None, reason: str | None) -> tuple[object, ...]:
    told = None if reason is None else reason[:MOST_TOLD]
    return None, None, here.attempt, 0, 0, 0, -1, -1, error, told, here.stage


def _missing(error: ImportError) -> str:
    return (
        f"a worker's Python, {sys.executable} of version {platform.python_version()}, lacks what the sink needs: "
        f"{type(error).__name__}: {error}. Install it there (pip install 'barnabas[spark]'), or let PYSPARK_PYTHON "
        "name another Python"
    )


def _unexpected(error: Exception) -> str:
    *_, frame = traceback.extract_tb(error.__traceback__)
    return f"a task failed at {frame.filename}:{frame.lineno}: {type(error).__name__}: {error}"


def _rows(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [_column(column, one.type) for column, one in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _column(values: tuple[Any, ...], kind: pa.DataType) -> Any:
    # An error's text may not be UTF-8, for example with the name of a file.
    texts = [None if one is None else str(one).encode(errors="backslashreplace") for one in values]
    return arrow_batches.from_bytes(texts).cast(pa.string()).cast(kind)


# --- Rows to batches ----------------------------------------------------------------------------------------

ARCHIVE = re.compile(r"\.(zip|jar|egg)(/|\\|$)")
# The most that a task gathers before it builds batches. With many partitions, batches would be small otherwise. While
# they are built, this is held two or three times over.
GATHERED_BYTES = 8 << 20
# The share of a full batch for each partition that a task gathers. If it built a second batch for a partition with the
# first, it would have to wait for the first one's answer. It is half, because rows aren't spread evenly.
GATHERED_SHARE = 0.5


def write_rows(
    plan: Plan, gathered_bytes: int = 1
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for `mapInArrow` that writes rows of this task's partitions, or rows without a partition.

    gathered_bytes: the most for `build`; 1 if each Arrow batch goes to one partition anyway.
    """

    def task(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        here = Here.of_this_task()
        own = [t for t in range(len(plan.targets)) if plan.owner_of(t) == here.task]
        enough = min(gathered_bytes, int(len(own) * plan.batch_bytes * GATHERED_SHARE))
        before = pa.default_memory_pool()
        # Arrow's own pool returns large buffers to the system each time, and each fresh page is a page fault.
        pa.set_memory_pool(pa.system_memory_pool())
        try:
            yield from report(plan, here, build(plan, rows, own, enough))
        finally:
            pa.set_memory_pool(before)
            forget_archives()

    return task


def forget_archives() -> None:
    """Let the worker's next task begin sooner.

    Before each task Spark's worker calls `importlib.invalidate_caches`. Python then reads the directory of each archive
    on its path again that it has imported from: Spark's own once for each package, and all jars of
    `spark.jars.packages`. That takes longer than most of our tasks. Python doesn't read what isn't in this cache, until
    somebody imports a module that no earlier task has imported.
    """
    for path in list(sys.path_importer_cache):
        if ARCHIVE.search(path):
            sys.path_importer_cache.pop(path, None)


def build(
    plan: Plan, rows: Iterable[pa.RecordBatch], anywhere: list[int], gathered_bytes: int
) -> Iterator[Blob]:
    """Yield the batches of these rows, in the rows' order within each target.

    anywhere: the targets that rows without partition and key take in turn. It has some of every topic with such rows
    here.

    gathered_bytes: how much to gather before building.
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
            # numpy sorts numbers of 16 bits by radix.
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
        None if name == "none" else lambda data: wire.compress(name, data),
    )
    del columns  # a waiting generator keeps its variables in memory
    for place, (group, batch) in enumerate(groups):
        if is_anywhere and place:
            # Another partition: it needn't wait for the last one's answer.
            numbers = [anywhere[next(turns) % len(anywhere)]]
        yield Blob(numbers[group], batch)


def _targets(
    plan: Plan, named: dict[str, Any], key: Any, anywhere: list[int], turn: int
) -> npt.NDArray[np.int64] | int:
    """Return each row's target, or the one target of all rows."""
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
        hashed = arrow_batches.partitions_of(arrow_batches.murmur2(data, offsets), counts) + firsts
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
                f"a row's partition is {number}, but {topic} has the partitions 0 to "
                f"{len(plan.targets_of(topic)) - 1}"
            )
        targets = np.where(given, chosen + firsts, targets)
    return targets


def _by_topic(plan: Plan, topics: Any, anywhere: list[int], turn: int) -> npt.NDArray[np.int64]:
    """Return for each topic in the dictionary its first target, its number of partitions, and the target whose turn it
    is."""
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
                f"a row's topic is {topic!r}, which isn't one of the sink's topics: {', '.join(plan.max_message_bytes)}"
            )
        numbers = ranges[topic]
        # A task that owns none was sent a row of this topic so that it reports the partition, which doesn't exist.
        some = own.get(topic) or numbers
        found.append((numbers.start, len(numbers), some[turn % len(some)]))
    return np.array(found, np.int64).reshape(-1, 3)


def _nulls(column: Any) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
