"""`ExactlyOnceKafkaSink`: the function for `foreachBatch`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.spark import settings as arguments
from barnabas.spark import transaction
from barnabas.spark.connector import check_spark
from barnabas.spark.plan import BatchReport, PartitionReport
from barnabas.spark.settings import CODECS, Settings
from barnabas.spark.stream import Written
from barnabas.spark.wire import Wire
from barnabas.spark.wire_connection import check_client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchReport", "ExactlyOnceKafkaSink", "PartitionReport"]

log = logging.getLogger(__name__)

# The characters of a topic's name, because the query's marker has a topic of its own.
QUERY_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class ExactlyOnceKafkaSink:
    """Writes each micro-batch as one Kafka transaction over all its tasks.

        sink = ExactlyOnceKafkaSink("localhost:9092", query="orders-enriched", topic="out")
        query = df.writeStream.foreachBatch(sink).option("checkpointLocation", path).start()

    A `read_committed` reader sees each batch as a whole and once, whatever failed on the way. The columns are those of
    Spark's own sink: `value` (string or binary; null is a tombstone), and optionally `key` (string or binary),
    `headers` (array<struct<key: string, value: binary>>), `partition` (int), `topic` (string). It ignores others. A
    record goes to its `partition`. Without one, it goes where Java's default partitioner sends its key. Without a key,
    it goes to one of its task's partitions. If there is neither a key nor a partition column, Spark shuffles nothing,
    and at most as many tasks compute the batch as the topic has partitions. Otherwise Spark shuffles the rows to the
    tasks of their partitions. That costs less if Apache Kafka's client is on its class path (as with Spark's own
    connector).

    bootstrap: `host:port` of one or more brokers.
    query: the query's name: unique on the cluster, and the same at each start; letters, digits, `.`, `_`, `-`. The
        transactional id and the topic of the marker are made from it. A second query with the same name fences the
        first. Two names that differ only in `.` and `_`, such as `a.b` and `a_b`, don't go together: for Kafka the
        topics of their markers collide, and the second query fails with BrokerRefusedError.
    topic: the topic for all rows, whatever a `topic` column says.
    topics: with a `topic` column, every name that it may hold. Without it the sink caches the batch (`persist`) and
        reads it once more before the write, to find them.
    compression: "none", "gzip", "snappy", "lz4" or "zstd".
    group: a consumer group. The same transaction commits the Kafka source's offsets for it, so the usual tools show its
        lag. The source must be on the same cluster, and the query must have a checkpoint: the offsets are those that
        Spark logged there for the batch.
    transaction_timeout_ms: how long a batch may take, from its first write to its commit, before the broker aborts it;
        at most the broker's `transaction.max.timeout.ms` (15 minutes by default). If a driver dies and isn't restarted,
        readers may wait as long for its open transaction.
    max_tries: how often a batch is tried before the query fails.
    max_batch_bytes: the largest record batch, before compression; the topic's `max.message.bytes` counts if smaller.
    request_timeout_ms: how long the sink waits for a broker, including its restart. It waits at most 10 s for a broker
        that it has never reached: the address may be wrong.
    client: security settings by kafka-python's names, for driver and executors: `security_protocol`, `ssl_cafile`,
        `sasl_mechanism`, `sasl_plain_username`, and so on.
    on_report: called with each batch's report once the batch is committed, or found to be, in the thread that wrote it.
        The sink logs an exception from it; the batch stays committed. Spark's own progress can't show the report,
        because a `foreachBatch` function can't add to it; its `batchId` is the report's `batch_id`.

    Raises ValueError or TypeError for wrong arguments, UnsupportedSparkError with a PySpark before 4.0.

    A batch's transaction includes every partition of its topics, however few its rows are. Its end writes a marker to
    each: with a topic of 3,000 partitions a commit takes some hundred ms.

    It can be pickled if `on_report` can; connections stay behind. Not safe to share between threads, nor between
    queries.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        query: str,
        topic: str | None = None,
        topics: Sequence[str] | None = None,
        compression: str = "none",
        group: str | None = None,
        transaction_timeout_ms: int = 300_000,
        max_tries: int = 3,
        max_batch_bytes: int = 1_000_000,
        request_timeout_ms: int = 30_000,
        client: Mapping[str, Any] | None = None,
        on_report: Callable[[BatchReport], object] | None = None,
    ) -> None:
        check_spark()
        if not QUERY_NAME.fullmatch(query):
            raise ValueError(
                f"a query's name is up to 200 letters, digits, '.', '_' and '-', and {query!r} is not"
            )
        if compression not in CODECS:
            raise ValueError(f"compression is one of {', '.join(CODECS)}, not {compression!r}")
        if topic is not None and topics is not None:
            raise ValueError("either topic, for all rows, or topics, for what the topic column may hold")
        if topic is not None:
            arguments.check_topic(topic)
        arguments.check_positive("transaction_timeout_ms", transaction_timeout_ms)
        arguments.check_positive("max_tries", max_tries)
        arguments.check_positive("max_batch_bytes", max_batch_bytes)
        arguments.check_positive("request_timeout_ms", request_timeout_ms)
        check_client(client or {})
        bootstrap = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        arguments.check_bootstrap(bootstrap)
        self.settings = Settings(
            bootstrap=bootstrap,
            query=query,
            topic=topic,
            topics=None if topics is None else arguments.topic_names(topics),
            compression=compression,
            group=group,
            transaction_timeout_ms=transaction_timeout_ms,
            max_tries=max_tries,
            max_batch_bytes=max_batch_bytes,
            request_timeout_ms=request_timeout_ms,
            client=dict(client or {}),
        )
        self.on_report = on_report
        self._wire: Wire | None = None
        self._last_report: BatchReport | None = None
        self._last: Written | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a micro-batch for `foreachBatch`. Raises what `write` raises, which fails the query."""
        self.write(batch, batch_id)

    def write(self, batch: DataFrame, batch_id: int, *, by_hand: bool = False) -> BatchReport:
        """Write a batch exactly once, or not at all if the query's marker says that it is done.

        Call it once per batch, in `foreachBatch` in the thread that calls the function. Join several frames by
        unionByName.

        batch_id: grows from batch to batch, and is the same when a batch is repeated, as in a streaming query.
        by_hand: the batch belongs to no streaming query, although some run in this application. Such batches count
            separately, like those of one checkpoint.

        Raises ConnectError, StreamingFrameError, UnreachableError, ColumnsError, SpeculationError, OutsideQueryError,
        SecondFrameError, UnknownTopicError, TopicRefusedError, RowError, RecordTooLargeError, MarkerError,
        InvalidTimeoutError, SourceOffsetsError, HangingTransactionError, BrokerRefusedError, QueryFencedError,
        WorkerError or DriverGoneError, BatchFailedError if every try failed, and ValueError or TypeError for a wrong
        batch_id. After any of them, `read_committed` readers see nothing of the batch. There is one exception: if the
        last commit got no answer, the next run finds out from the marker whether it succeeded.
        """
        arguments.check_batch_id(batch_id)
        if self._wire is None:
            self._wire = Wire(self.settings.bootstrap, self.settings.client, self.settings.request_timeout_ms)
        self._last_report, self._last = transaction.write_batch(
            self.settings, self._wire, batch, batch_id, by_hand=by_hand, last=self._last
        )
        self._tell(self._last_report)
        return self._last_report

    def _tell(self, report: BatchReport) -> None:
        if self.on_report is None:
            return
        try:
            self.on_report(report)
        except Exception:  # the batch is committed, so another try would be no use
            log.exception(
                "%s: on_report failed for batch %d, which is committed", self.settings.query, report.batch_id
            )

    @property
    def last_report(self) -> BatchReport | None:
        """The last batch's report; None before the first one."""
        return self._last_report

    @property
    def transactional_id(self) -> str:
        """The id of the query's transactions, as `kafka-transactions.sh` shows it."""
        return self.settings.transactional_id

    @property
    def marker_topic(self) -> str:
        """The query's own topic that records which batch was committed last. The first batch creates it."""
        return self.settings.marker_topic

    def close(self) -> None:
        """Close the driver's connections. A later batch opens them again."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._last = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_wire": None, "_last_report": None, "_last": None}

    def __repr__(self) -> str:
        target = self.settings.topic or "the topic column"
        return f"<ExactlyOnceKafkaSink {self.settings.query} to {target} at {self.settings.bootstrap}>"
