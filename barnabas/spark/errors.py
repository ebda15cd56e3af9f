"""What the sink raises, which of Kafka's error codes it makes of, and why a Spark job failed.

Each error says what happened and what to do about it. `retried` errors cost one try of the batch, which then runs
again whole; the others fail the query at once, because another try would end as this one did, or would harm the query
that runs beside this one.
"""

from __future__ import annotations

import logging
import platform
import re
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


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


# --- Kafka's error codes that the sink knows, and what each means for a batch ---------------------------------

UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC_EXCEPTION = 17
RECORD_LIST_TOO_LARGE = 18
NOT_ENOUGH_REPLICAS = 19
UNKNOWN_MEMBER_ID = 25
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
NOT_CONTROLLER = 41
POLICY_VIOLATION = 44
INVALID_PRODUCER_EPOCH = 47
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
OPERATION_NOT_ATTEMPTED = 55
SASL_AUTHENTICATION_FAILED = 58
INVALID_RECORD = 87
PRODUCER_FENCED = 90
TRANSACTIONAL_ID_NOT_FOUND = 105
TLS_HANDSHAKE_FAILED = -2  # none of Kafka's: Java's clients have SslAuthenticationException for it

COORDINATOR_MOVES = {COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR}
LEADER_MOVES = {UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER}
FENCED = {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED}
TOO_LARGE = {MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE}
REFUSED = {
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    ILLEGAL_SASL_STATE,
    UNSUPPORTED_VERSION,
    POLICY_VIOLATION,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    SASL_AUTHENTICATION_FAILED,
    INVALID_RECORD,
    TLS_HANDSHAKE_FAILED,
}


class ResponseError(Exception):
    """A broker answered a request with an error code.

    name: the code's, as in Kafka's documents. what: the request, and what it was about.
    """

    def __init__(self, code: int, name: str, what: str) -> None:
        super().__init__(f"{what}: {name} ({code})")
        self.code = code
        self.name = name
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.name, self.what)


class NoAnswerError(Exception):
    """A request went unanswered: no connection, or it was lost, or time ran out. It may have been carried out."""


def as_sink_error(error: ResponseError) -> SinkError:
    """What a broker's error code means for the batch."""
    if error.code in FENCED:
        return QueryFencedError(str(error))
    if error.code in TOO_LARGE:
        return RecordTooLargeError(str(error))
    if error.code in REFUSED:
        return BrokerRefusedError(str(error))
    return TryFailedError(str(error))


# --- Why a Spark job failed, in one line, and whether another try may end otherwise ---------------------------
#
# Spark tells it in three ways: with Python's traceback, where a worker raised; with the line of the task that failed
# last, behind what py4j says of the call; or by a JVM that is gone.


# For what Spark's listeners haven't told yet.
PATIENCE_S = 1.0
PAUSE_S = 0.05
MOST_TASKS = 1000  # of a stage, that are looked through

TRACEBACK = "Traceback (most recent call last):"
MOST_TOLD = 1000  # characters: a message may have a row's contents in it

# What py4j puts ahead of Java's own message.
CALL = re.compile(r"\s*An error occurred while calling \S+\s*\n:\s*")
# DAGScheduler.abortStage, with what TaskSetManager says of the task.
TASK = re.compile(r"most recent failure: Lost task \S+ in stage \S+ \(TID \d+\) \(([^)]*)\): (.*)")
CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)
# PythonWorkerFactory, of a daemon that ended as it began: what it printed, indented.
BEGUN = re.compile(r"Error from python worker:\s*\n(.*?)\n\s*PYTHONPATH was:", re.DOTALL)
# A worker that is gone shows in Java as the end of a stream, which says nothing.
NO_CAUSE = "java.io.EOFException"
DRIVER_TRACE = "\nDriver stacktrace:"

# The Python of the workers: what it has not, that it is another version, that it isn't there, that it is none. Not that
# the machine had no process, memory or file left to start it with (EAGAIN, ENOMEM, ENFILE, EMFILE).
OF_PYTHON = re.compile(
    r"^(ModuleNotFoundError|ImportError): |\[PYTHON_VERSION_MISMATCH\]|No module named "
    r"|(?:Cannot run program|Error from python worker:) (?!.*(?:error[=:] ?|Errno )(?:11|12|23|24)\b|.*MemoryError)"
)


def job_failure(error: Exception, python: str | None) -> SinkError:
    """What the error of a job means for the batch. python: the program that Spark's workers run."""
    try:
        why = reason(error)
    except Exception as lost:  # py4j asks the JVM for the text of its errors
        error, why = lost, reason(lost)
    if _is_of_a_lost_jvm(error):
        return DriverGoneError(
            f"the driver's JVM doesn't answer any more ({type(error).__name__}: {why}). Where it ran out of memory, "
            "give it more (spark.driver.memory) or make batches smaller; its log tells"
        )
    if OF_PYTHON.search(why):
        return WorkerError(
            f"Spark's workers run the Python {python or '(unknown)'}, and there: {why}. It must be of the driver's "
            f"version, {platform.python_version()}, and have its packages (pip install 'barnabas[spark]'). Which one "
            f"it is, PYSPARK_PYTHON says, or spark.pyspark.python; the driver runs {sys.executable}"
        )
    return TryFailedError(f"the Spark job failed: {why}")


def reason(error: Exception) -> str:
    """What Spark's error says in one line: where it tells of Python's, that one with its own message; else that of the
    task that failed, with where it ran and what it was caused by.
    """
    return _line(str(error))[:MOST_TOLD] or type(error).__name__


def first_failure(spark: SparkSession, stage: int) -> str | None:
    """Why a task of a stage failed that Spark then tried again, in one line; None where Spark doesn't know it (yet).

    The job goes on behind such a failure, and no error has it; Spark's store of what its listeners heard does.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            tasks = spark.sparkContext._jsc.sc().statusStore().taskList(stage, 0, MOST_TASKS)
            for number in range(tasks.size()):
                told = tasks.apply(number).errorMessage()
                if told.isDefined():
                    return _line(str(told.get()))[:MOST_TOLD]
        except Exception as error:  # of py4j: a store of another release, or one that has forgotten the stage
            log.debug("why a task of stage %d failed can't be told: %s", stage, error)
        # Listeners hear of it late.
        if time.monotonic() > deadline_s:
            return None
        time.sleep(PAUSE_S)


def _line(text: str) -> str:
    if (begun := BEGUN.search(text)) is not None:
        *_, last = begun.group(1).strip().splitlines() or ["nothing was printed"]
        return f"Error from python worker: {last.strip()}"
    _, is_python, trace = text.rpartition(TRACEBACK)
    if is_python:
        # Of a trace, the frames are indented.
        return next((line.strip() for line in trace.splitlines() if re.match(r"\S", line)), "")
    task = TASK.search(text)
    if task is None:
        lines = [line.strip() for line in CALL.sub("", text, count=1).splitlines() if line.strip()]
        # Of a stage that failed again and again, the reason is in the next one.
        return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    where, why = task.groups()
    causes = CAUSE.findall(text[task.end() :].partition(DRIVER_TRACE)[0])
    cause = next((one for one in reversed(causes) if not one.startswith(NO_CAUSE)), None)
    return f"a task on {where}: {why}" + ("" if cause is None or cause in why else f" (caused by {cause})")


def _is_of_a_lost_jvm(error: Exception) -> bool:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return isinstance(error, Py4JNetworkError | ConnectionError)
