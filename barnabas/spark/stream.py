"""The streaming query that a batch belongs to: its identity, and how far its source was to be read for the batch.

Spark tells the function of `foreachBatch` neither. The query's id lies in the thread's local properties. The source's
offsets lie in the checkpoint: ahead of each batch Spark logs, in `offsets/<batch id>`, where the batch ends, and a
batch that comes again ends there again. So what is committed for a group is what the batch was made of, and nothing
that is computed from its rows, which a filter or an aggregation may have dropped. A source's offsets are the first not
to be read, as a consumer group's are.
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
VERSION = "v1"  # of OffsetSeqLog

Offsets = dict[str, dict[int, int]]


@dataclass(frozen=True, slots=True)
class LoggedOffsets:
    """A file of the checkpoint's offset log: a version, metadata, and for each source its offset, a line each."""

    path: str
    text: str

    @property
    def digest(self) -> str:
        """The same for a batch that comes again, and for one of the same offsets where those are Kafka's.

        Other sources count their batches, perhaps in the checkpoint itself, so that a number alone tells nothing of the
        contents. The metadata do, by their time of day; a file that is there is never written again.
        """
        sources = self.text.rstrip().split("\n")[2:]
        are_kafkas = all(line.strip() in ("", "-") or _is_of_kafka(_parsed(line)) for line in sources)
        told = "\n".join(sources) if are_kafkas else self.text.rstrip()
        return hashlib.sha256(told.encode()).hexdigest()

    def of_topics(self) -> Offsets:
        """Of the sources that are Kafka's. Raises SourceOffsetsError."""
        return parse_offsets(self.text, self.path)


@dataclass(frozen=True, slots=True)
class Stream:
    """A streaming query. `query_id` is the checkpoint's: the same whenever the query is started again from it."""

    query_id: str
    session: Any
    execution: Any

    @property
    def is_active(self) -> bool:
        """Whether nobody has asked it to stop."""
        return self.execution is None or bool(self.execution.isActive())

    @property
    def run_id(self) -> str:
        """Of this run of the query, anew whenever it is started."""
        return "" if self.execution is None else str(self.execution.runId().toString())

    def logged_offsets(self, batch_id: int) -> LoggedOffsets:
        """Where the batch ends in its sources. Raises SourceOffsetsError, and what Spark raises."""
        if self.execution is None:
            raise SourceOffsetsError("the running query can't be found, nor so its checkpoint")
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
    """The streaming query whose `foreachBatch` runs in this thread; None where it is a batch by hand.

    Raises OutsideQueryError where that can't be told: some query runs, in another thread, and nobody said `by_hand`.
    """
    session: Any = batch.sparkSession
    if by_hand:
        return None
    query_id = session.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:
        if _some_query_runs(session):
            raise OutsideQueryError(
                "a streaming query runs, and this thread isn't the one that its function of foreachBatch was called "
                "in, so that the batch's checkpoint can't be told: call the sink there, or in a "
                "pyspark.InheritableThread. For a batch that is no query's: write(…, by_hand=True)"
            )
        return None
    try:
        key = session.sparkContext._jvm.java.util.UUID.fromString(query_id)
        execution = session._jsparkSession.sharedState().activeStreamingQueries().get(key)
    except Exception:  # internals of Spark's, which only stop() and `group` want
        execution = None
    return Stream(query_id, session, execution)


def _some_query_runs(session: Any) -> bool:
    queries = session._jsparkSession.sharedState().activeStreamingQueries()
    if queries.isEmpty():  # to py4j the end of a loop is an exception that crosses from the JVM
        return False
    executions = (queries.get(key) for key in list(queries.keySet()))
    return any(execution is not None and execution.isActive() for execution in executions)


def parse_offsets(text: str, where: str) -> Offsets:
    """The offsets by topic and partition in a file of the checkpoint's offset log, the least where sources differ.

    Its lines: a version, metadata, and for each source its offset in JSON, or `-` while it has none. Sources other than
    Kafka's are passed over. Raises SourceOffsetsError.
    """
    version, _, *sources = text.split("\n")
    if version.strip() != VERSION:
        raise SourceOffsetsError(f"{where} is of version {version!r}, and only {VERSION!r} is known")
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
            f"the query has no source of Kafka's, as {where} says: leave the sink's group out"
        )
    return offsets


def _parsed(line: str) -> Any:
    """None for what is no JSON, as sources other than Kafka's may write."""
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
# What a sink keeps of the batch that it wrote last, to tell another frame from the same again. The marker knows
# batches by number, and would have a second frame of the same batch skipped as done. That the same frame comes again
# is no mistake: a function of `foreachBatch` may repeat what it does.


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that is committed, and the frame that it was given as. run: of the query, anew at each start."""

    run: str
    batch_id: int
    frame: DataFrame


def run_of(stream: Stream | None) -> str:
    """ "" for a batch by hand."""
    return "" if stream is None else f"{stream.query_id}/{stream.run_id}"


def refuse_second(last: Written | None, run: str, batch_id: int, frame: DataFrame) -> None:
    """Raises SecondFrameError where the batch was written already, and from another frame."""
    if last is None or (last.run, last.batch_id) != (run, batch_id) or last.frame is frame:
        return
    if not last.frame.sameSemantics(frame):
        raise SecondFrameError(
            f"this sink wrote batch {batch_id} already, from another DataFrame, or from the same one made anew: call "
            "it once a batch, several frames as one by unionByName; or give each a sink of its own, with a query name "
            "of its own"
        )
