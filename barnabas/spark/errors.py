"""What the sink raises: each says what happened and what to do about it.

`retried` errors cost one try of the batch, which then runs again whole; the others fail the query at once,
because another try would end as this one did, or would harm the query that runs beside this one.
"""

from __future__ import annotations


class SinkError(RuntimeError):
    """The root of what the sink raises."""

    retried = False


class ColumnsError(SinkError, ValueError):
    """The DataFrame's columns are not those of a Kafka sink: one is missing, or of another type."""


class RowError(SinkError, ValueError):
    """A row can't be a record: its topic is null, its partition doesn't exist, a header has no key."""


class UnsupportedSparkError(SinkError):
    """The PySpark that is installed is older than the sink can run on."""


class ConnectError(SinkError):
    """The session is one of Spark Connect, which tells the sink neither the query nor the JVM."""


class StreamingFrameError(SinkError, ValueError):
    """The DataFrame is a stream's, which has no end: its query gives the sink one batch of it after the other."""


class UnreachableError(SinkError):
    """No broker was ever reached at the addresses that were given: they may be wrong, or nothing runs there."""


class OutsideQueryError(SinkError):
    """A streaming query runs, and the sink was called in a thread that isn't its own, not said to be by hand."""


class SecondFrameError(SinkError):
    """The sink was called for the second time in one batch, with another DataFrame, which would be skipped."""


class SpeculationError(SinkError):
    """Spark is told to start slow tasks a second time, while the first attempt goes on writing."""


class UnknownTopicError(SinkError):
    """A topic to write to doesn't exist. The sink makes none, since it can't know how many partitions to give it."""


class TopicRefusedError(SinkError):
    """A topic that can't be written exactly once: with `message.timestamp.type=LogAppendTime` a broker's answer
    does not tell an append from a duplicate that it dropped.
    """


class RecordTooLargeError(SinkError):
    """One record alone is larger than the topic's `max.message.bytes`."""


class QueryFencedError(SinkError):
    """Another query took this one's transactional id: it runs under the same name."""


class TransactionTimeoutError(SinkError):
    """The batch took longer than the transaction's timeout, and the broker aborted it."""

    retried = True


class InvalidTimeoutError(SinkError, ValueError):
    """The transaction's timeout is above the broker's `transaction.max.timeout.ms`."""


class MarkerError(SinkError):
    """The query's marker can't be trusted: its topic would forget it, or holds what the sink did not write."""


class HangingTransactionError(SinkError):
    """The cluster lost the markers of an earlier transaction, and doesn't allow the sink to write them."""


class SourceOffsetsError(SinkError):
    """The source's offsets were to be committed for a group, and can't be told or don't fit this cluster."""


class WorkerError(SinkError):
    """The Python that Spark's workers run can't do the sink's work: it lacks a package, is of another version than the
    driver's, or isn't there.
    """


class DriverGoneError(SinkError):
    """The driver's JVM has ended, and with it all that Spark could do."""


class BrokerRefusedError(SinkError):
    """The broker answered with an error that no other try would change, such as a missing permission."""


class TryFailedError(SinkError):
    """A try of the batch failed: a task, an executor, a connection, a broker. The batch runs again whole."""

    retried = True


class DuplicateWriteError(TryFailedError):
    """The broker had a batch already under the same sequences: two attempts wrote to one partition."""


class TaskRepeatedError(DuplicateWriteError):
    """Spark tried a task again, whose first attempt may have written already. stage: its stage's id."""

    stage = -1


class WrittenTwiceError(TryFailedError):
    """Two tasks, or two attempts of one, reported the same partition."""


class NotAsReportedError(TryFailedError):
    """A partition doesn't hold what this try's tasks reported: another attempt wrote there, or it was aborted."""


class StageRepeatedError(TryFailedError):
    """Spark repeated a stage of the job, after it had lost what the stage was made of."""


class BatchFailedError(SinkError):
    """Every try of the batch failed. `__cause__` is the last one's reason."""


BY_NAME: dict[str, type[SinkError]] = {
    error.__name__: error
    for error in (
        RowError,
        RecordTooLargeError,
        QueryFencedError,
        BrokerRefusedError,
        TryFailedError,
        DuplicateWriteError,
        TaskRepeatedError,
        UnknownTopicError,
        WorkerError,
    )
}
"""Those that a task may meet: it reports them by name, and the driver raises them."""
