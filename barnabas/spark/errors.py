"""The errors that the sink raises, how Kafka's error codes map to them, and why a Spark job failed.

Each error says what happened and what to do about it. A `retried` error costs one try of the batch, and the whole batch
runs again. The others fail the query at once, because another try would end the same way, or would harm a query that
runs beside this one.
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
    """The base class of all errors of the sink."""

    retried = False


class ColumnsError(SinkError, ValueError):
    """The DataFrame's columns don't fit a Kafka sink: one is missing, or has the wrong type."""


class RowError(SinkError, ValueError):
    """A row can't become a record: its topic is null, its partition doesn't exist, or a header has no key."""


class UnsupportedSparkError(SinkError):
    """The installed PySpark is older than the sink can run on."""


class ConnectError(SinkError):
    """The session is a Spark Connect session, which hides the query and the JVM from the sink."""


class StreamingFrameError(SinkError, ValueError):
    """The DataFrame is a stream's and has no end. The stream's query must give it to the sink batch by batch."""


class UnreachableError(SinkError):
    """The sink never reached a broker at the given addresses. They may be wrong, or nothing runs there."""


class OutsideQueryError(SinkError):
    """A streaming query runs, and the sink was called in another thread than the query's, without `by_hand`."""


class SecondFrameError(SinkError):
    """The sink was called twice in one batch, with different DataFrames. It would skip the second one."""


class SpeculationError(SinkError):
    """Spark is set to start slow tasks a second time while the first attempt goes on writing."""


class UnknownTopicError(SinkError):
    """A topic to write to doesn't exist. The sink creates none, because it can't know the right number of
    partitions."""


class TopicRefusedError(SinkError):
    """A topic can't be written exactly once. With `message.timestamp.type=LogAppendTime`, a broker answers a dropped
    duplicate like an append."""


class RecordTooLargeError(SinkError):
    """A single record is larger than the topic's `max.message.bytes`."""


class QueryFencedError(SinkError):
    """Another query took this query's transactional id: it runs under the same name."""


class TransactionTimeoutError(SinkError):
    """The batch took longer than the transaction's timeout, and the broker aborted it."""

    retried = True


class InvalidTimeoutError(SinkError, ValueError):
    """The transaction's timeout is above the broker's `transaction.max.timeout.ms`."""


class MarkerError(SinkError):
    """The query's marker can't be trusted: its topic may forget it, or holds records that the sink didn't write."""


class HangingTransactionError(SinkError):
    """The cluster lost the markers of an earlier transaction, and doesn't let the sink write them."""


class SourceOffsetsError(SinkError):
    """The source's offsets can't be committed for a group: they are unknown, or don't fit this cluster."""


class WorkerError(SinkError):
    """The Python of Spark's workers can't do the sink's work: it lacks a package, isn't the driver's version, or isn't
    there."""


class DriverGoneError(SinkError):
    """The driver's JVM has ended, and Spark with it."""


class BrokerRefusedError(SinkError):
    """The broker answered with an error that another try wouldn't change, such as a missing permission."""


class TryFailedError(SinkError):
    """A try of the batch failed: a task, an executor, a connection or a broker. The whole batch runs again."""

    retried = True


class DuplicateWriteError(TryFailedError):
    """The broker already has a batch with the same sequences: two attempts wrote to one partition."""


class TaskRepeatedError(DuplicateWriteError):
    """Spark tried a task again whose first attempt may have written already. `stage` is the id of its stage."""

    stage = -1


class WrittenTwiceError(TryFailedError):
    """Two tasks, or two attempts of one task, reported the same partition."""


class NotAsReportedError(TryFailedError):
    """A partition doesn't hold what this try's tasks reported: another attempt wrote there, or it was aborted."""


class StageRepeatedError(TryFailedError):
    """Spark repeated a stage of the job after it had lost the stage's input."""


class BatchFailedError(SinkError):
    """Every try of the batch failed. `__cause__` is the reason of the last one."""


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
"""The errors that a task may meet. The task reports them by name, and the driver raises them."""


# --- Kafka's error codes that the sink knows, and what each one means for a batch ---------------------------

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
TLS_HANDSHAKE_FAILED = -2  # not a code of Kafka's: Java's clients raise SslAuthenticationException instead

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

    name: the code's name in Kafka's documentation. what: the request and its subject.
    """

    def __init__(self, code: int, name: str, what: str) -> None:
        super().__init__(f"{what}: {name} ({code})")
        self.code = code
        self.name = name
        self.what = what

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.code, self.name, self.what)


class NoAnswerError(Exception):
    """A request got no answer: no connection, a lost connection, or a timeout. The broker may have carried it out."""


def as_sink_error(error: ResponseError) -> SinkError:
    """Return the error that a broker's error code means for the batch."""
    if error.code in FENCED:
        return QueryFencedError(str(error))
    if error.code in TOO_LARGE:
        return RecordTooLargeError(str(error))
    if error.code in REFUSED:
        return BrokerRefusedError(str(error))
    return TryFailedError(str(error))


# --- Why a Spark job failed, in one line, and whether another try may end differently -----------------------
#
# Spark reports it in three ways: by Python's traceback, if a worker raised; by the line about the task that failed
# last, after py4j's words about the call; or by a JVM that is gone.


# for what Spark's listeners haven't reported yet
PATIENCE_S = 1.0
PAUSE_S = 0.05
MOST_TASKS = 1000  # the most tasks of a stage to look through

TRACEBACK = "Traceback (most recent call last):"
MOST_TOLD = 1000  # characters; a message may contain a row

# py4j's words before Java's own message
CALL = re.compile(r"\s*An error occurred while calling \S+\s*\n:\s*")
# DAGScheduler.abortStage, with TaskSetManager's words about the task
TASK = re.compile(r"most recent failure: Lost task \S+ in stage \S+ \(TID \d+\) \(([^)]*)\): (.*)")
CAUSE = re.compile(r"^Caused by: (.*)", re.MULTILINE)
# PythonWorkerFactory, about a daemon that ended at its start: its output, indented
BEGUN = re.compile(r"Error from python worker:\s*\n(.*?)\n\s*PYTHONPATH was:", re.DOTALL)
# If a worker is gone, Java only sees the end of a stream, which explains nothing.
NO_CAUSE = "java.io.EOFException"
DRIVER_TRACE = "\nDriver stacktrace:"

# Errors of the workers' Python: a missing module, another version, a missing program, or a program that isn't Python.
# Errors of a machine without processes, memory or files (EAGAIN, ENOMEM, ENFILE, EMFILE) don't belong here.
OF_PYTHON = re.compile(
    r"^(ModuleNotFoundError|ImportError): |\[PYTHON_VERSION_MISMATCH\]|No module named "
    r"|(?:Cannot run program|Error from python worker:) (?!.*(?:error[=:] ?|Errno )(?:11|12|23|24)\b|.*MemoryError)"
)


def job_failure(error: Exception, python: str | None) -> SinkError:
    """Return what a job's error means for the batch. `python` is the program that Spark's workers run."""
    try:
        why = reason(error)
    except Exception as lost:  # py4j asks the JVM for the text of its errors
        error, why = lost, reason(lost)
    if _is_of_a_lost_jvm(error):
        return DriverGoneError(
            f"the driver's JVM no longer answers ({type(error).__name__}: {why}). If it ran out of memory, "
            "give it more (spark.driver.memory) or make batches smaller; see its log"
        )
    if OF_PYTHON.search(why):
        return WorkerError(
            f"Spark's workers run the Python {python or '(unknown)'}, and there: {why}. It must have the driver's "
            f"version, {platform.python_version()}, and have its packages (pip install 'barnabas[spark]'). "
            f"PYSPARK_PYTHON or spark.pyspark.python chooses it; the driver runs {sys.executable}"
        )
    return TryFailedError(f"the Spark job failed: {why}")


def reason(error: Exception) -> str:
    """Return Spark's error in one line: Python's own message if there is one. Otherwise it is the message of the
    failed task, with its host and its cause.
    """
    return _line(str(error))[:MOST_TOLD] or type(error).__name__


def first_failure(spark: SparkSession, stage: int) -> str | None:
    """Return in one line why a task failed that Spark then tried again; None if Spark doesn't know (yet).

    The job goes on after such a failure, and no error contains it. Spark's store for its listeners does.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            tasks = spark.sparkContext._jsc.sc().statusStore().taskList(stage, 0, MOST_TASKS)
            for number in range(tasks.size()):
                told = tasks.apply(number).errorMessage()
                if told.isDefined():
                    return _line(str(told.get()))[:MOST_TOLD]
        except (
            Exception
        ) as error:  # from py4j: the store of another release, or one that has forgotten the stage
            log.debug("the reason why a task of stage %d failed is unknown: %s", stage, error)
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
        # A traceback's frames are indented.
        return next((line.strip() for line in trace.splitlines() if re.match(r"\S", line)), "")
    task = TASK.search(text)
    if task is None:
        lines = [line.strip() for line in CALL.sub("", text, count=1).splitlines() if line.strip()]
        # If a stage failed again and again, the next line has the reason.
        return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    where, why = task.groups()
    causes = CAUSE.findall(text[task.end() :].partition(DRIVER_TRACE)[0])
    cause = next((one for one in reversed(causes) if not one.startswith(NO_CAUSE)), None)
    return f"a task on {where}: {why}" + ("" if cause is None or cause in why else f" (caused by {cause})")


def _is_of_a_lost_jvm(error: Exception) -> bool:
    from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

    return isinstance(error, Py4JNetworkError | ConnectionError)
