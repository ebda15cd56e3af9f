"""The query's marker: which batch was committed last, written in the same transaction as the batch itself.

Each query has a topic of its own for it, `__barnabas-spark-<query>`, with one partition and compaction. Other places
have drawbacks:

- One topic for all queries: `read_committed` readers see nothing after the first open transaction of the partition.
Another query's batch would hide this query's committed marker, and the batch would be written twice. Waiting for the
other transaction would tie each query's pace to all others'.

- A partition for each query in a shared topic: who gets which one, and what if there are more queries than partitions?

- A group's offset (TxnOffsetCommit, read with require_stable): queries would be as safe from each other. But a group
without members forgets its offsets after `offsets.retention.minutes`, a week, and anybody who cleans up groups deletes
it. A query that was down for longer would write its last batch again.

Only this query's transactional id writes here, and InitProducerId has ended its last transaction before the marker is
read, so the last stable offset is at the end. If it isn't, a stranger writes here, and the sink waits for it.

A marker names the checkpoint (the streaming query's id) beside the batch, because a new checkpoint numbers batches from
0 again: a marker of another checkpoint is no reason to skip. It also identifies the batch's contents, by a digest of
the source's offsets. A checkpoint that went back (a backup, a disk that forgot) makes a new batch with the number of a
committed one, and skipping it would lose it.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from barnabas.spark import arrow_batches, errors, wire, wire_connection
from barnabas.spark.errors import MarkerError, QueryFencedError, ResponseError, TryFailedError
from barnabas.spark.wire import Record, Wire

log = logging.getLogger(__name__)


VERSION = 1
PARTITION = 0
CONFIGS = {"cleanup.policy": "compact"}
# A committed batch takes two offsets, its marker and the transaction's. Failed tries take some more.
STEPS_BACK = (4, 256)
WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class Marker:
    """checkpoint: the streaming query's id, "" for batches by hand.

    contents: equal for batches of equal offsets; None if unknown.
    """

    checkpoint: str
    batch_id: int
    contents: str | None = None


def ensure_topic(connection: Wire, topic: str) -> int:
    """Return the leader of the marker's partition. Creates the topic if it doesn't exist.

    Raises MarkerError if somebody created it with settings by which it may forget.
    """
    try:
        leaders = connection.leaders([topic])
    except ResponseError as error:
        if error.code != errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        connection.create_topic(topic, 1, CONFIGS)
        leaders = _leaders_of_new(connection, topic)
    policy = connection.configs(wire.TOPIC, topic, ["cleanup.policy"])["cleanup.policy"]
    if policy != CONFIGS["cleanup.policy"] or len(leaders[topic]) != 1:
        raise MarkerError(
            f"the topic {topic} keeps the query's marker. It has cleanup.policy={policy} and "
            f"{len(leaders[topic])} partitions, and must have cleanup.policy=compact and one partition: otherwise "
            "Kafka may forget the marker, and the sink may write a batch twice"
        )
    return leaders[topic][PARTITION]


def _leaders_of_new(connection: Wire, topic: str) -> dict[str, dict[int, int]]:
    deadline_s = time.monotonic() + connection.timeout_ms / 1000
    while True:
        try:
            return connection.leaders([topic])
        except ResponseError as error:
            if error.code != errors.UNKNOWN_TOPIC_OR_PARTITION or time.monotonic() > deadline_s:
                raise
            time.sleep(wire_connection.RETRY_S)


def read(connection: Wire, topic: str, leader: int) -> Marker | None:
    """Return the last committed marker, or None. Call it after InitProducerId and before any write.

    Raises MarkerError if a stranger's transaction stays open in the topic, or its records aren't markers.
    """
    last_stable = (wire.LATEST, wire.READ_COMMITTED)
    high_watermark, stable, start = connection.offsets(
        topic,
        PARTITION,
        leader,
        [(wire.LATEST, wire.READ_UNCOMMITTED), last_stable, (wire.EARLIEST, wire.READ_COMMITTED)],
    )
    deadline_s = time.monotonic() + connection.timeout_ms / 1000
    while stable < high_watermark:
        if time.monotonic() > deadline_s:
            raise MarkerError(
                f"a transaction other than this query's has been open in the topic {topic} for "
                f"{connection.timeout_ms} ms: nothing else may write there. If nothing does, the cluster has lost the "
                "marker of a transaction and forgotten the transaction: `kafka-transactions.sh find-hanging` shows "
                "it, and `abort` ends it"
            )
        time.sleep(WAIT_S)
        stable = connection.offset(topic, PARTITION, leader, *last_stable)
    for steps in (*STEPS_BACK, high_watermark - start):
        offset = max(start, high_watermark - steps)
        last = deque(_records(connection, topic, leader, offset, high_watermark), maxlen=1)
        if last:
            return decode(last.pop(), topic)
        if high_watermark - steps <= start:
            break
    return None


def _records(connection: Wire, topic: str, leader: int, offset: int, end: int) -> Iterator[Record]:
    """Yield the committed records of these offsets. Raises TryFailedError if the log can't be read up to the end."""
    while offset < end:
        records, following = connection.read_committed(topic, PARTITION, leader, offset)
        yield from records
        if following == offset:
            # This doesn't mean "no marker", which would have the batch written again.
            raise TryFailedError(
                f"the marker can't be read: {topic} returned nothing at offset {offset}, but it ends at {end}"
            )
        offset = following


def is_done(connection: Wire, topic: str, leader: int, mine: Marker, query: str) -> bool:
    """Return True if the batch that `mine` would mark is committed. Call it when `read` may be called.

    Raises what `read` raises, MarkerError also if another batch was committed under its number, and QueryFencedError
    if another checkpoint's query has the name.
    """
    last = read(connection, topic, leader)
    if last is None or (last.checkpoint == mine.checkpoint and last.batch_id < mine.batch_id):
        return False
    if last.checkpoint != mine.checkpoint:
        if mine.batch_id == 0 and not _of_checkpoint(connection, topic, leader, mine.checkpoint):
            return False  # a new checkpoint begins
        raise QueryFencedError(
            f"the name {query!r} is used by another query, with the checkpoint {last.checkpoint or '(none)'}, which "
            f"committed its batch {last.batch_id}, while this one, with the checkpoint {mine.checkpoint or '(none)'}, "
            f"is at its batch {mine.batch_id}: give each query a name of its own. If it is the same query, its "
            "checkpoint was deleted, and its first batches never reached the sink, give it a new name or delete the "
            f"topic {topic}; what it reads again is written again"
        )
    same: Marker | None = last
    if last.batch_id != mine.batch_id:
        same = _of_checkpoint(connection, topic, leader, mine.checkpoint).get(mine.batch_id)
    if mine.contents is not None and (same is None or same.contents not in (None, mine.contents)):
        raise MarkerError(
            f"batch {mine.batch_id} of the query {query!r} was committed with other source offsets than it "
            f"has now, and batch {last.batch_id} is its last: the checkpoint was put back to an earlier state. Restore "
            f"the later one. Or give the query a new name or delete the topic {topic}: then the batch is written, and "
            "records that later batches also hold are written again"
        )
    if last.batch_id > mine.batch_id:
        log.warning(
            "%s: batch %d comes again although batch %d is committed: the checkpoint went back",
            query, mine.batch_id, last.batch_id,
        )  # fmt: skip
    return True


def identities(connection: Wire, topic: str, leader: int) -> set[tuple[int, int]]:
    """Return producer id and epoch of each committed marker that compaction has left."""
    return {(record.producer_id, record.epoch) for record in _all(connection, topic, leader)}


def _of_checkpoint(connection: Wire, topic: str, leader: int, checkpoint: str) -> dict[int, Marker]:
    """Return the checkpoint's markers by batch. Compaction leaves the last one, and maybe others."""
    markers = (decode(record, topic) for record in _all(connection, topic, leader))
    return {one.batch_id: one for one in markers if one.checkpoint == checkpoint}


def _all(connection: Wire, topic: str, leader: int) -> Iterator[Record]:
    end = connection.offset(topic, PARTITION, leader, wire.LATEST, wire.READ_COMMITTED)
    start = connection.offset(topic, PARTITION, leader, wire.EARLIEST, wire.READ_COMMITTED)
    return _records(connection, topic, leader, start, end)


def encode(marker: Marker, query: str) -> arrow_batches.Batch:
    """Return a record batch that holds the marker and still has to be stamped. Compaction keeps each checkpoint's last
    one."""
    value = {"version": VERSION, "checkpoint": marker.checkpoint, "batch": marker.batch_id}
    if marker.contents is not None:
        value["contents"] = marker.contents
    columns = arrow_batches.Columns(
        pa.array([f"{query}/{marker.checkpoint}".encode()], pa.binary()),
        pa.array([json.dumps(value).encode()], pa.binary()),
        None,
    )
    (batch,) = arrow_batches.build(columns, int(time.time() * 1000), 1 << 20)
    return batch


def decode(record: Record, topic: str) -> Marker:
    """Return the marker in a record. Raises MarkerError if `encode` didn't write it."""
    try:
        fields = json.loads(record.value or b"")
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']}")
        return Marker(str(fields["checkpoint"]), int(fields["batch"]), fields.get("contents"))
    except (ValueError, TypeError, KeyError) as error:
        raise MarkerError(
            f"the record at offset {record.offset} of {topic} isn't a marker: {error}"
        ) from error
