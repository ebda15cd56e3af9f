"""The driver's part: one micro-batch is one transaction, retried as a whole until it succeeds.

A try goes

    InitProducerId, nothing hanging  →  marker: done already?  →  AddPartitionsToTxn  →  one Spark job
    →  each partition by one task?  →  marker, source's offsets  →  all there that was reported?  →  EndTxn

with an epoch of its own. So the broker fences whatever an earlier try left behind: a task that still writes, an
EndTxn that is still in flight. Only the driver adds partitions and ends transactions; executors only write. A commit
without an answer costs another try, which reads from the marker whether it succeeded.

A frame needs the same columns as for Spark's own sink (`KafkaWriter.validateQuery`, `KafkaRowWriter`).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark import arrow_batches, errors, hanging, job, marker, wire
from barnabas.spark.errors import (
    BatchFailedError,
    ColumnsError,
    ConnectError,
    HangingTransactionError,
    InvalidTimeoutError,
    NoAnswerError,
    NotAsReportedError,
    QueryFencedError,
    ResponseError,
    SinkError,
    SourceOffsetsError,
    SpeculationError,
    StreamingFrameError,
    TopicRefusedError,
    TransactionTimeoutError,
    TryFailedError,
    UnknownTopicError,
    UnreachableError,
    as_sink_error,
)
from barnabas.spark.marker import Marker
from barnabas.spark.plan import BatchReport, Plan, Target
from barnabas.spark.settings import Settings, is_of_marker, of_marker
from barnabas.spark.stream import Offsets, Stream, Written, refuse_second, run_of, stream_of
from barnabas.spark.wire import Identity, Wire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


HEADERS = "array<struct<key:string,value:binary>>"

TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS,),
    "partition": ("int",),
    "topic": ("string",),
}


@dataclass(frozen=True, slots=True)
class RecordForm:
    """The columns of a batch that the sink uses, in the DataFrame's spelling, in the order of `TYPES`."""

    names: dict[str, str]

    @property
    def is_placed(self) -> bool:
        """True if a row itself says which partition it belongs to."""
        return "key" in self.names or "partition" in self.names

    def select(self, batch: DataFrame) -> DataFrame:
        """Return the batch with only these columns, under their plain names."""
        return batch.select(*[batch[f"`{spelled}`"].alias(name) for name, spelled in self.names.items()])


def record_form(schema: StructType, topic: str | None) -> RecordForm:
    """Return the form of the batch's columns. Raises ColumnsError if one is missing, duplicate or of the wrong type."""
    found: dict[str, str] = {}
    for name, types in TYPES.items():
        # Spark's column names don't depend on case, unless it is configured.
        spelled = [field for field in schema.fields if field.name.lower() == name]
        if not spelled:
            continue
        if len(spelled) > 1:
            raise ColumnsError(f"there are {len(spelled)} columns named {name!r}")
        is_type = spelled[0].dataType.simpleString()
        if is_type not in types:
            raise ColumnsError(
                f"the column {name!r} has the type {is_type}, and must be {' or '.join(types)}: cast it, "
                f"or serialize it, for example with to_json"
            )
        if name != "topic" or topic is None:
            found[name] = spelled[0].name
    columns = ", ".join(field.name for field in schema.fields) or "none"
    if "value" not in found:
        raise ColumnsError(
            f"a Kafka sink needs a column 'value' of string or binary; the batch has: {columns}"
        )
    if topic is None and "topic" not in found:
        raise ColumnsError(
            f"where should the rows go? Give the sink a topic=..., or the batch a column 'topic'; it has: {columns}"
        )
    return RecordForm(found)


# --- What a broker's answer, or its absence, means for a try ------------------------------------------------


@contextlib.contextmanager
def broker_errors() -> Iterator[None]:
    """Raise what an answer means for the batch (`as_sink_error`), and TryFailedError if there is no answer."""
    try:
        yield
    except NoAnswerError as error:
        raise TryFailedError(f"no answer from the broker: {error}") from error
    except ResponseError as error:
        raise as_sink_error(error) from error


@contextlib.contextmanager
def fencing_explained(settings: Settings, identity: Identity, began_s: float) -> Iterator[None]:
    """Explain why a try was fenced: by the broker's timeout, by a late request of its own, or by another query.

    If the broker aborted a transaction during the write, its partitions no longer hold the reported records.
    """
    try:
        yield
    except (QueryFencedError, NotAsReportedError) as error:
        took_ms = ms_since(began_s)
        if took_ms >= settings.transaction_timeout_ms:
            raise TransactionTimeoutError(
                f"the broker aborted the batch: it wasn't done after {took_ms:.0f} ms, with "
                f"transaction_timeout_ms={settings.transaction_timeout_ms}. Allow more, or make batches smaller "
                "(maxOffsetsPerTrigger)"
            ) from error
        if isinstance(error, NotAsReportedError):
            raise
        if identity.contested:
            raise TryFailedError(f"an unanswered request of this try fenced it: {error}") from error
        raise QueryFencedError(
            f"another query runs under the name {settings.query!r} and took its transactional id "
            f"{settings.transactional_id}: give each query a name of its own ({error})"
        ) from error


def ms_since(start_s: float) -> float:
    """Return the milliseconds since then, by the monotonic clock."""
    return (time.monotonic() - start_s) * 1000


# --- Tries --------------------------------------------------------------------------------------------------


FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0


@dataclass(slots=True)
class Work:
    """A batch to write, and the state that its tries share.

    rows: with only the columns of `form`.
    topics, offsets, contents: the first try finds them, unless they are known before (for the last see `Marker`).
    ran: True once the rows were computed.
    """

    settings: Settings
    connection: Wire
    rows: DataFrame
    form: RecordForm
    batch_id: int
    stream: Stream | None
    topics: Sequence[str]
    offsets: Offsets | None = None
    contents: str | None = None
    ran: bool = False

    @property
    def marker(self) -> Marker:
        checkpoint = "" if self.stream is None else self.stream.query_id
        return Marker(checkpoint, self.batch_id, self.contents)


def write_batch(
    settings: Settings,
    connection: Wire,
    batch: DataFrame,
    batch_id: int,
    *,
    by_hand: bool = False,
    last: Written | None = None,
) -> tuple[BatchReport, Written]:
    """See `ExactlyOnceKafkaSink.write`. `last` is the result of the sink's last call."""
    if type(batch).__module__.startswith("pyspark.sql.connect."):
        raise ConnectError(
            "the sink doesn't work with Spark Connect, which hides the query and its tasks from it: "
            "run the query in a classic session, with the driver in the same process (spark.api.mode=classic)"
        )
    if batch.isStreaming:
        raise StreamingFrameError(
            "a streaming DataFrame reaches the sink batch by batch, through its query: "
            "rows.writeStream.foreachBatch(sink).option('checkpointLocation', path).start()"
        )
    form = record_form(batch.schema, settings.topic)
    if str(batch.sparkSession.conf.get("spark.speculation", "false")).strip().lower() == "true":
        raise SpeculationError(
            "with spark.speculation=true two attempts at a time write a slow task's rows, which would fail every try: "
            "turn it off for the query"
        )
    stream = stream_of(batch, by_hand=by_hand)
    if settings.group is not None and stream is None:
        raise SourceOffsetsError(
            "a group's offsets come from a streaming query's source, but this is a batch by hand"
        )
    refuse_second(last, run_of(stream), batch_id, batch)
    _meet(connection)
    with contextlib.ExitStack() as stack:
        rows = form.select(batch)
        topics: Sequence[str] = (settings.topic,) if settings.topic else settings.topics or ()
        if not topics:
            rows = rows.persist()
            stack.callback(rows.unpersist)
        report = _until_it_holds(Work(settings, connection, rows, form, batch_id, stream, topics))
    return report, Written(run_of(stream), batch_id, batch)


def _meet(connection: Wire) -> None:
    """Connect before anything is tried, so that a wrong address fails at once. Raises UnreachableError."""
    with broker_errors():
        try:
            connection.meet()
        except NoAnswerError as error:
            raise UnreachableError(
                f"no broker can be reached at {connection.bootstrap}: is that where one listens? ({error})"
            ) from error


def _until_it_holds(work: Work) -> BatchReport:
    pause_s = FIRST_PAUSE_S
    for number in range(1, work.settings.max_tries + 1):
        try:
            return _try(work, number)
        except SinkError as error:
            if not error.retried:
                _give_up(work, error)
                raise
            last = error
        except BaseException as error:
            _give_up(work, error)
            raise
        log.warning(
            "%s: try %d of %d of batch %d failed: %s",
            work.settings.query, number, work.settings.max_tries, work.batch_id, last,
        )  # fmt: skip
        if work.stream is not None and not work.stream.is_active:
            break  # the query was stopped, and its cancelled job failed
        if number < work.settings.max_tries:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    _give_up(work, last)
    raise BatchFailedError(
        f"batch {work.batch_id} of the query {work.settings.query} failed {number} time(s); the last time: {last}"
    ) from last


def _give_up(work: Work, error: BaseException) -> None:
    """Abort the open transaction and fence tasks that still write, unless another query fenced this one.

    If a transaction hangs, none is open, and a new epoch would hide from the next run whether it was committed.
    """
    if isinstance(error, QueryFencedError | HangingTransactionError):
        return
    with contextlib.suppress(Exception):  # the batch fails with its own error
        _identity(work)


def _try(work: Work, number: int) -> BatchReport:
    settings = work.settings
    began_s = time.monotonic()
    _find_out(work)
    with broker_errors():
        leader = marker.ensure_topic(work.connection, settings.marker_topic)
        identity = _identity(work)
        if marker.is_done(work.connection, settings.marker_topic, leader, work.marker, settings.query):
            log.warning("%s: batch %d is already committed; skipping it", settings.query, work.batch_id)
            return _skipped(work, number, began_s)
        plan = _plan(work, identity)
        transaction_s = time.monotonic()
        partitions: dict[str, list[int]] = {settings.marker_topic: [marker.PARTITION]}
        for topic, partition in plan.targets:
            partitions.setdefault(topic, []).append(partition)
    with fencing_explained(settings, identity, transaction_s):
        with broker_errors():
            work.connection.add_partitions(settings.transactional_id, identity, partitions)
        job_s = time.monotonic()
        written = job.write(work.rows, plan, is_placed=work.form.is_placed)
        work.ran = True
        check_s = time.monotonic()
        with broker_errors():
            work.connection.connect()
            _write_marker(work, identity, leader)
            _commit_source_offsets(work, identity)
            if plan.targets:
                hanging.check(
                    work.connection, identity, lambda: work.connection.leaders(work.topics), written
                )
            end_s = time.monotonic()
            work.connection.end_transaction(settings.transactional_id, identity, commit=True)
    return BatchReport(
        batch_id=work.batch_id,
        skipped=False,
        tries=number,
        records=sum(one.records for one in written),
        bytes=sum(one.bytes for one in written),
        prepare_ms=(job_s - began_s) * 1000,
        write_ms=(check_s - job_s) * 1000,
        check_ms=(end_s - check_s) * 1000,
        commit_ms=ms_since(end_s),
        partitions=written,
    )


def _skipped(work: Work, number: int, began_s: float) -> BatchReport:
    """Return the report of a batch that is already committed: computed if it wasn't yet, and not written."""
    prepare_ms = ms_since(began_s)
    job_s = time.monotonic()
    _run_through(work)
    return BatchReport(
        batch_id=work.batch_id,
        skipped=True,
        tries=number,
        records=0,
        bytes=0,
        prepare_ms=prepare_ms,
        write_ms=ms_since(job_s),
        check_ms=0.0,
        commit_ms=0.0,
        partitions=(),
    )


def _identity(work: Work) -> Identity:
    """Take a new epoch, under which the query's earlier transactions are over in all partitions to write to."""

    def leaders() -> dict[str, dict[int, int]]:
        targets = {topic: _leaders(work.connection, topic) for topic in work.topics}
        return targets | work.connection.leaders([work.settings.marker_topic])

    def committed() -> set[tuple[int, int]]:
        topic = work.settings.marker_topic
        return marker.identities(
            work.connection, topic, work.connection.leaders([topic])[topic][marker.PARTITION]
        )

    transactional_id = work.settings.transactional_id
    return hanging.next_identity(
        work.connection, transactional_id, leaders, committed, lambda: _new_epoch(work)
    )


def _new_epoch(work: Work) -> Identity:
    settings = work.settings
    try:
        return work.connection.init_producer_id(settings.transactional_id, settings.transaction_timeout_ms)
    except ResponseError as error:
        if error.code != errors.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise InvalidTimeoutError(
            f"transaction_timeout_ms={settings.transaction_timeout_ms} is more than the broker's "
            f"transaction.max.timeout.ms{_broker_limit(work.connection)}: lower it, or raise the broker's limit"
        ) from error


def _broker_limit(connection: Wire) -> str:
    name = "transaction.max.timeout.ms"
    try:
        return f"={connection.configs(wire.BROKER, str(connection.any_node()), [name])[name]}"
    except (ResponseError, NoAnswerError, KeyError):
        return ""


def _plan(work: Work, identity: Identity) -> Plan:
    settings = work.settings
    targets: list[Target] = []
    leaders: list[int] = []
    limits: dict[str, int] = {}
    for topic in work.topics:
        found = _leaders(work.connection, topic)
        targets += [Target(topic, partition) for partition in found]
        leaders += found.values()
        limits[topic] = _checked_limit(work.connection, topic)
    slots = work.rows.sparkSession.sparkContext.defaultParallelism
    counts = Counter(target.topic for target in targets)
    # Each task needs some partitions of every topic for rows without one. Other rows are sent to their partition's
    # owner.
    owners = max(1, min(slots, (max if work.form.is_placed else min)(counts.values(), default=1)))
    return Plan(
        bootstrap=settings.bootstrap,
        client=settings.client,
        request_timeout_ms=settings.request_timeout_ms,
        transactional_id=settings.transactional_id,
        producer_id=identity.producer_id,
        epoch=identity.epoch,
        batch_id=work.batch_id,
        topic=settings.topic,
        compression=settings.compression,
        max_batch_bytes=settings.max_batch_bytes,
        targets=tuple(targets),
        leaders=tuple(leaders),
        max_message_bytes=limits,
        owners=owners,
    )


def _leaders(connection: Wire, topic: str) -> dict[int, int]:
    try:
        return connection.leaders([topic])[topic]
    except ResponseError as error:
        if error.code != errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise UnknownTopicError(
            f"the topic {topic} doesn't exist: create it with as many partitions as it needs"
        ) from error


def _checked_limit(connection: Wire, topic: str) -> int:
    """Return the topic's `max.message.bytes`. Raises TopicRefusedError."""
    kind, limit = "message.timestamp.type", "max.message.bytes"
    configs = connection.configs(wire.TOPIC, topic, [kind, limit])
    if configs[kind] != "CreateTime":
        raise TopicRefusedError(
            f"the topic {topic} has {kind}={configs[kind]}: a broker then answers a dropped "
            f"duplicate like an append. Set {kind}=CreateTime"
        )
    return int(configs[limit])


def _run_through(work: Work) -> None:
    """Compute a batch that is already committed, without writing it.

    The computation yields Spark's watermark and the state of stateful operators. Without it, the query would go on
    differently than if it had never been disturbed.
    """
    if work.stream is not None and not work.ran:
        job.compute(work.rows)


def _write_marker(work: Work, identity: Identity, leader: int) -> None:
    settings = work.settings
    batch = marker.encode(work.marker, settings.query)
    arrow_batches.stamp(batch, identity.producer_id, identity.epoch, 0)
    topic, transactional_id = settings.marker_topic, settings.transactional_id
    work.connection.append(leader, transactional_id, topic, marker.PARTITION, *batch.pieces)


def _find_out(work: Work) -> None:
    """Find out what only the rows and the checkpoint know. This is part of a try, because Spark may fail in it."""
    if not work.topics:
        topics = job.topics_of(work.rows)
        if of_markers := [*filter(is_of_marker, topics)]:
            raise TopicRefusedError(of_marker(of_markers[0]))
        work.topics = topics
    if work.stream is None or work.contents is not None:
        return
    try:
        logged = work.stream.logged_offsets(work.batch_id)
        if work.settings.group is not None:
            work.offsets = logged.of_topics()
        work.contents = logged.digest
    except Exception as error:
        if work.settings.group is not None:
            if isinstance(error, SinkError):
                raise
            raise TryFailedError(f"the checkpoint can't be read: {errors.reason(error)}") from error
        log.warning(
            "%s: the checkpoint can't be read, so nobody would notice if it went back to an earlier state: %s",
            work.settings.query, errors.reason(error),
        )  # fmt: skip


def _commit_source_offsets(work: Work, identity: Identity) -> None:
    settings = work.settings
    if settings.group is None or work.offsets is None:
        return
    try:
        work.connection.commit_offsets(settings.transactional_id, identity, settings.group, work.offsets)
    except ResponseError as error:
        if error.code == errors.UNKNOWN_MEMBER_ID:
            raise SourceOffsetsError(
                f"the group {settings.group} has members, and this broker takes its offsets only from them: give "
                f"the query a group without consumers ({error})"
            ) from error
        if error.code != errors.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise SourceOffsetsError(
            f"offsets of {', '.join(work.offsets)} can't be committed for the group {settings.group} on the sink's "
            f"cluster, which has no such topic; is the source on another one? ({error})"
        ) from error
