"""The query's marker: which batch was committed last, written in the same transaction as the batch itself.

Each query has a topic of its own for it, `__barnabas-spark-<query>`, of one partition and compacted. The other places
that were considered, and why not:

- One topic for all queries: readers under `read_committed` see nothing behind the first open transaction of the
  partition, so that another query's batch hides this one's committed marker, and the batch would be written twice. To
  wait until the other one's transaction ends ties each query's pace to all others'.
- One partition a query of a common topic: who is given which, and what when there are more queries than partitions?
- An offset of a group (TxnOffsetCommit, read with require_stable): as safe between queries. But a group without
  members forgets its offsets after `offsets.retention.minutes`, a week, and whoever tidies up groups deletes it: a
  query that was down for longer than that would write its last batch again.

Only this query's transactional id writes here, and InitProducerId has ended its last transaction before the marker is
read, so the last stable offset stands at the end. Where it does not, a stranger writes here, and the sink waits for it.

A marker names the checkpoint (the streaming query's id) beside the batch, because batches are numbered from 0 again
in a new checkpoint: a marker of another checkpoint is not a reason to skip.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

import pyarrow as pa

from barnabas.spark import arrow_batches, codes, wire, wire_connection
from barnabas.spark.codes import ResponseError
from barnabas.spark.errors import MarkerError, QueryFencedError
from barnabas.spark.wire import Wire
from barnabas.spark.wire_records import Record

VERSION = 1
PARTITION = 0
CONFIGS = {"cleanup.policy": "compact"}
# A committed batch takes two offsets, its marker and the transaction's; tries that failed take some more.
STEPS_BACK = (4, 256)
WAIT_S = 0.05


@dataclass(frozen=True, slots=True)
class Marker:
    """checkpoint: the streaming query's id, "" for batches that are given by hand."""

    checkpoint: str
    batch_id: int

    def covers(self, batch_id: int) -> bool:
        return self.batch_id >= batch_id


def ensure_topic(connection: Wire, topic: str) -> int:
    """The leader of the marker's partition; the topic is made if it isn't there.

    Raises MarkerError where somebody made it such that it forgets.
    """
    try:
        leaders = connection.leaders([topic])
    except ResponseError as error:
        if error.code != codes.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        connection.create_topic(topic, 1, CONFIGS)
        leaders = _leaders_of_new(connection, topic)
    policy = connection.configs(wire.TOPIC, topic, ["cleanup.policy"])["cleanup.policy"]
    if policy != CONFIGS["cleanup.policy"] or len(leaders[topic]) != 1:
        raise MarkerError(
            f"the query's marker is kept in the topic {topic}, which has cleanup.policy={policy} and "
            f"{len(leaders[topic])} partitions, and must have cleanup.policy=compact and 1: otherwise it may be "
            "forgotten, and a batch be written twice"
        )
    return leaders[topic][PARTITION]


def _leaders_of_new(connection: Wire, topic: str) -> dict[str, dict[int, int]]:
    deadline_s = time.monotonic() + connection.timeout_ms / 1000
    while True:
        try:
            return connection.leaders([topic])
        except ResponseError as error:
            if error.code != codes.UNKNOWN_TOPIC_OR_PARTITION or time.monotonic() > deadline_s:
                raise
            time.sleep(wire_connection.RETRY_S)


def read(connection: Wire, topic: str, leader: int) -> Marker | None:
    """The last committed marker, None before the first. To be called after InitProducerId and before any write.

    Raises MarkerError where a stranger's transaction stays open in the topic, or its records aren't markers.
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
                f"in the topic {topic} a transaction is open that is not this query's, for "
                f"{connection.timeout_ms} ms: nothing else may write there"
            )
        time.sleep(WAIT_S)
        stable = connection.offset(topic, PARTITION, leader, *last_stable)
    for steps in (*STEPS_BACK, high_watermark - start):
        offset = max(start, high_watermark - steps)
        last: Record | None = None
        while offset < high_watermark:
            records, following = connection.read_committed(topic, PARTITION, leader, offset)
            if records:
                last = records[-1]
            if following == offset:
                break
            offset = following
        if last is not None:
            return decode(last, topic)
        if high_watermark - steps <= start:
            break
    return None


def judge(marker: Marker | None, checkpoint: str, batch_id: int, query: str) -> bool:
    """Whether the batch is done. Raises QueryFencedError where another checkpoint's query has the name."""
    if marker is None:
        return False
    if marker.checkpoint == checkpoint:
        return marker.covers(batch_id)
    if batch_id == 0:
        return False  # a new checkpoint begins
    raise QueryFencedError(
        f"the name {query!r} is used by another query, of the checkpoint {marker.checkpoint or '(none)'}, which "
        f"committed its batch {marker.batch_id}, while this one, of the checkpoint {checkpoint or '(none)'}, is at its "
        f"batch {batch_id}: give each query a name of its own"
    )


def encode(marker: Marker, query: str) -> bytearray:
    """A record batch that holds the marker, still to be stamped."""
    value = {"version": VERSION, "checkpoint": marker.checkpoint, "batch": marker.batch_id}
    columns = arrow_batches.Columns(
        pa.array([query.encode()], pa.binary()),
        pa.array([json.dumps(value).encode()], pa.binary()),
        None,
    )
    (batch,) = arrow_batches.build(columns, int(time.time() * 1000), 1 << 20)
    return batch.data


def decode(record: Record, topic: str) -> Marker:
    """Raises MarkerError for what `encode` did not write."""
    try:
        fields = json.loads(record.value or b"")
        if fields["version"] != VERSION:
            raise ValueError(f"version {fields['version']}")
        return Marker(str(fields["checkpoint"]), int(fields["batch"]))
    except (ValueError, TypeError, KeyError) as error:
        raise MarkerError(f"the record at offset {record.offset} of {topic} is no marker: {error}") from error
