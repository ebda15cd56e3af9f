"""`ExactlyOnceKafkaSink`: what `foreachBatch` is given."""

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

# What a topic's name may hold, since the query's marker has a topic of its own.
QUERY_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class ExactlyOnceKafkaSink:
    """Writes each micro-batch as one Kafka transaction over all its tasks.

        sink = ExactlyOnceKafkaSink("localhost:9092", query="orders-enriched", topic="out")
        query = df.writeStream.foreachBatch(sink).option("checkpointLocation", path).start()

    A reader under `read_committed` sees each batch whole and once, whatever failed on the way. The columns are those
    of Spark's own sink: `value` (string or binary; null is a tombstone), and if they are there `key` (string or
    binary), `headers` (array<struct<key: string, value: binary>>), `partition` (int), `topic` (string); others are
    left out. A record goes to its `partition`; else where Java's default partitioner sends its key; else to one that
    its task owns. Where the columns have neither key nor partition nothing is shuffled, and the batch is computed by at
    most as many tasks as the topic has partitions; otherwise Spark shuffles the rows to their partitions' tasks, which
    it does at less cost where Apache Kafka's client is on its class path (as with Spark's own connector).

    bootstrap: `host:port` of one or more brokers.
    query: the query's name, its own on the cluster and the same whenever it is started again; letters, digits, `.`,
        `_`, `-`. Its transactional id and the topic of its marker are made from it. A second query under the same name
        fences the first. Two names that differ in `.` and `_` alone, as `a.b` and `a_b`, don't go together: to Kafka
        the topics of their markers collide, and the second query fails with BrokerRefusedError.
    topic: where all rows go, whatever a `topic` column says.
    topics: with a `topic` column, every name that it may hold. Without it the batch is kept (`persist`) and passed
        over once more, ahead of the write, to find them.
    compression: "none", "gzip", "snappy", "lz4" or "zstd".
    group: a consumer group for which the Kafka source's offsets are committed in the same transaction, so that its
        lag shows in the usual tools. For a source on the same cluster, and a query with a checkpoint: the offsets are
        those that Spark logged there for the batch.
    transaction_timeout_ms: how long a batch may take, from its first write to its commit, before the broker aborts
        it; at most the broker's `transaction.max.timeout.ms` (15 minutes unless configured). It is also how long
        readers may wait behind the open transaction of a driver that died and is not started again.
    max_tries: how often a batch is tried before the query fails.
    max_batch_bytes: the largest record batch, before compression; the topic's `max.message.bytes` counts if smaller.
    request_timeout_ms: how long the sink waits for a broker, its restart included. For one that it hasn't met yet it
        waits 10 s at most: the address may be wrong.
    client: security settings by kafka-python's names, for driver and executors: `security_protocol`, `ssl_cafile`,
        `sasl_mechanism`, `sasl_plain_username`, and so on.
    on_report: is called with each batch's report once it is committed, or found to be, in the thread that wrote it.
        What it raises is logged, and changes nothing of the batch. Spark's own progress has no place for it, since a
        function of `foreachBatch` can tell it nothing; its `batchId` is the report's `batch_id`.

    Raises ValueError or TypeError for what is none of these, UnsupportedSparkError with a PySpark before 4.0.

    A batch's transaction has every partition of its topics, however few its rows are, and its end writes a marker to
    each: to a topic of 3,000 partitions a commit takes some hundred ms.

    May be pickled, as far as `on_report` may: connections stay behind. Not safe to share between threads, nor between
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
        """Write a micro-batch, as `foreachBatch` asks for. Raises what `write` raises, which fails the query."""
        self.write(batch, batch_id)

    def write(self, batch: DataFrame, batch_id: int, *, by_hand: bool = False) -> BatchReport:
        """Write a batch exactly once, or not at all if the query's marker says that it is done.

        Once per batch; several frames: unionByName. In `foreachBatch`, in the thread that the function is called in.

        batch_id: grows from batch to batch, and is the same when a batch comes again, as in a streaming query.
        by_hand: the batch is no streaming query's, though some run in this application. Such batches count for
            themselves, as those of one checkpoint.

        Raises ConnectError, StreamingFrameError, UnreachableError, ColumnsError, SpeculationError, OutsideQueryError,
        SecondFrameError, UnknownTopicError, TopicRefusedError, RowError, RecordTooLargeError, MarkerError,
        InvalidTimeoutError, SourceOffsetsError, HangingTransactionError, BrokerRefusedError, QueryFencedError,
        WorkerError or DriverGoneError, BatchFailedError where every try failed, and ValueError or TypeError for what
        is no batch_id. After any of them nothing of the batch is visible under `read_committed`; only where the last
        commit went unanswered is that for the next run to find out, from the marker.
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
        except Exception:  # the batch is committed, and no other try of it would tell anybody more
            log.exception(
                "%s: on_report failed for batch %d, which is committed", self.settings.query, report.batch_id
            )

    @property
    def last_report(self) -> BatchReport | None:
        """What the last batch came to; None before the first one."""
        return self._last_report

    @property
    def transactional_id(self) -> str:
        """The id that the query's transactions have, as `kafka-transactions.sh` shows it."""
        return self.settings.transactional_id

    @property
    def marker_topic(self) -> str:
        """The topic that holds which batch was committed last; made by the first batch, and the query's own."""
        return self.settings.marker_topic

    def close(self) -> None:
        """Let go of the driver's connections; a later batch makes them again."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._last = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_wire": None, "_last_report": None, "_last": None}

    def __repr__(self) -> str:
        target = self.settings.topic or "the topic column"
        return f"<ExactlyOnceKafkaSink {self.settings.query} to {target} at {self.settings.bootstrap}>"
