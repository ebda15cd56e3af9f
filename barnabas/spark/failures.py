"""Why a Spark job failed, in one line, and whether another try may end otherwise.

Spark tells it in three ways: with Python's traceback, where a worker raised; with the line of the task that failed
last, behind what py4j says of the call; or by a JVM that is gone.
"""

from __future__ import annotations

import logging
import platform
import re
import sys
import time
from typing import TYPE_CHECKING

from barnabas.spark.errors import DriverGoneError, SinkError, TryFailedError, WorkerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

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


def as_sink_error(error: Exception, python: str | None) -> SinkError:
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
