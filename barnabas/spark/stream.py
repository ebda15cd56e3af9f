"""The streaming query that a batch belongs to: its identity, and the offsets at which the batch ends in its source.

Spark tells the function of `foreachBatch` neither. The query's id is in the thread's local properties. The source's
offsets are in the checkpoint: before each batch Spark logs in `offsets/<batch id>` where the batch ends, and a repeated
batch ends there again. So a group's committed offsets are those that the batch was made of. They don't depend on its
rows, which a filter or an aggregation may have dropped. A source's offsets are the next to read, like a consumer
group's.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.spark.errors import OutsideQueryError, SecondFrameError, SourceOffsetsError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


QUERY_ID = "sql.streaming.queryId"  # org.apache.spark.sql.execution.streaming.StreamExecution
VERSION = "v1"  # the version of OffsetSeqLog

Offsets = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class LoggedOffsets:
    """A file of the checkpoint's offset log: a version, metadata, and each source's offset, one per line."""

    path: str
    text: str

    @property
    def digest(self) -> str:
        """Equal for a repeated batch, and for batches of equal offsets if all sources are Kafka's.

        Other sources may just number their batches, perhaps in the checkpoint itself, and a number doesn't identify the
        contents. The metadata do, by their timestamp: Spark never rewrites a file that exists.
        """
        sources = self.text.rstrip().split("\n")[2:]
        are_kafkas = all(line.strip() in ("", "-") or _is_of_kafka(_parsed(line)) for line in sources)
        told = "\n".join(sources) if are_kafkas else self.text.rstrip()
        return hashlib.sha256(told.encode()).hexdigest()

    def of_topics(self) -> Offsets:
        """Return the offsets of Kafka sources. Raises SourceOffsetsError."""
        return parse_offsets(self.text, self.path)


@dataclass(frozen=True, slots=True)
class Stream:
    """A streaming query. `query_id` belongs to the checkpoint: it is the same whenever the query restarts from it."""

    query_id: str
    session: Any
    execution: Any

    @property
    def is_active(self) -> bool:
        """True if nobody has asked it to stop."""
        return self.execution is None or bool(self.execution.isActive())

    @property
    def run_id(self) -> str:
        """The id of this run of the query. Each start makes a new one."""
        return "" if self.execution is None else str(self.execution.runId().toString())

    def logged_offsets(self, batch_id: int) -> LoggedOffsets:
        """Return where the batch ends in its sources. Raises SourceOffsetsError, and what Spark raises."""
        if self.execution is None:
            raise SourceOffsetsError("the running query can't be found, and so its checkpoint can't either")
        jvm = self.session.sparkContext._jvm
        root = self.execution.resolvedCheckpointRoot()
        path = jvm.org.apache.hadoop.fs.Path(f"{root}/offsets/{batch_id}")
        file = path.getFileSystem(self.session._jsparkSession.sessionState().newHadoopConf()).open(path)
        try:
            text = jvm.org.apache.commons.io.IOUtils.toString(file, "UTF-8")
        finally:
            file.close()
        return LoggedOffsets(str(path.toString()), text)


def stream_of(batch: DataFrame, *, by_hand: bool = False) -> Stream | None:
    """Return the streaming query whose `foreachBatch` runs in this thread, or None for a batch by hand.

    Raises OutsideQueryError if that is unclear: a query runs in another thread, and `by_hand` isn't set.
    """
    session: Any = batch.sparkSession
    if by_hand:
        return None
    query_id = session.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:
        if _some_query_runs(session):
            raise OutsideQueryError(
                "a streaming query runs, and its foreachBatch function was called in another thread. "
                "So the batch's checkpoint is unknown: call the sink in that thread, or in a "
                "pyspark.InheritableThread. For a batch that is no query's: write(…, by_hand=True)"
            )
        return None
    try:
        key = session.sparkContext._jvm.java.util.UUID.fromString(query_id)
        execution = session._jsparkSession.sharedState().activeStreamingQueries().get(key)
    except Exception:  # Spark's internals, which only stop() and `group` need
        execution = None
    return Stream(query_id, session, execution)


def _some_query_runs(session: Any) -> bool:
    queries = session._jsparkSession.sharedState().activeStreamingQueries()
    if queries.isEmpty():  # to py4j, the end of a loop is an exception that crosses from the JVM
        return False
    executions = (queries.get(key) for key in list(queries.keySet()))
    return any(execution is not None and execution.isActive() for execution in executions)


def parse_offsets(text: str, where: str) -> Offsets:
    """Return the offsets by topic and partition in a file of the offset log, the lowest if sources differ.

    Its lines: a version, metadata, and for each source its offset in JSON, or `-` while it has none. Sources other than
    Kafka's are skipped. Raises SourceOffsetsError.
    """
    version, _, *sources = text.split("\n")
    if version.strip() != VERSION:
        raise SourceOffsetsError(f"{where} has version {version!r}, and only {VERSION!r} is known")
    offsets: Offsets = {}
    for line in sources:
        if line.strip() in ("", "-"):
            continue
        source = _parsed(line)
        if not _is_of_kafka(source):
            continue
        for topic, ends in source.items():
            known = offsets.setdefault(topic, {})
            for partition, end in ends.items():
                known[int(partition)] = min(end, known.get(int(partition), end))
    if not offsets:
        raise SourceOffsetsError(
            f"the query has no Kafka source, according to {where}: leave out the sink's group"
        )
    return offsets


def _parsed(line: str) -> Any:
    """Return None for text that isn't JSON, which sources other than Kafka's may write."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _is_of_kafka(source: Any) -> bool:
    return (
        isinstance(source, dict)
        and bool(source)
        and all(
            isinstance(ends, dict)
            and all(key.isdigit() and isinstance(end, int) for key, end in ends.items())
            for ends in source.values()
        )
    )


# --- One frame a batch --------------------------------------------------------------------------------------
#
# What a sink keeps of the batch that it wrote last, to recognize another frame of the same batch. The marker knows
# batches by number, so it would skip a second frame of the batch as done. The same frame may come again: a
# `foreachBatch` function may repeat its work.


@dataclass(frozen=True, slots=True)
class Written:
    """A committed batch, and the frame that it was given as. `run` is the query's, new at each start."""

    run: str
    batch_id: int
    frame: DataFrame


def run_of(stream: Stream | None) -> str:
    """Return the query's id and run, or "" for a batch by hand."""
    return "" if stream is None else f"{stream.query_id}/{stream.run_id}"


def refuse_second(last: Written | None, run: str, batch_id: int, frame: DataFrame) -> None:
    """Raise SecondFrameError if this batch was already written from another frame."""
    if last is None or (last.run, last.batch_id) != (run, batch_id) or last.frame is frame:
        return
    if not last.frame.sameSemantics(frame):
        raise SecondFrameError(
            f"this sink already wrote batch {batch_id}, from another DataFrame, or from the same one made again: call "
            "it once per batch, with several frames joined by unionByName. Or give each frame a sink with a query "
            "name of its own"
        )
