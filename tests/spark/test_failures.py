"""A job's failure is told by its true reason, and what no other try would mend is told apart. Texts are Spark 4.0's."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from py4j.protocol import Py4JNetworkError

from barnabas.spark import errors as failures
from barnabas.spark import plan as reports
from barnabas.spark.errors import DriverGoneError, TaskRepeatedError, TryFailedError, WorkerError

PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "a.py", line 1, in f
    return {}["x"]
           ~~^^^^^
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in f
    raise RuntimeError("the user's own mistake\\nat length")
RuntimeError: the user's own mistake
at length

"""

NO_NUMPY = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/lib/barnabas/spark/arrow_batches.py", line 14, in <module>
    import numpy as np
ModuleNotFoundError: No module named 'numpy'
"""


def of_a_task(why: str, causes: str = "") -> str:
    return (
        "An error occurred while calling o590.collectToPython.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times, most "
        f"recent failure: Lost task 0.0 in stage 7.0 (TID 8) (192.0.2.2 executor driver): {why}\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.run(PythonRunner.scala:621)\n"
        f"{causes}\n"
        "Driver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2)\n"
        "Caused by: org.apache.spark.SparkException: all of it again\n"
    )


def not_started(why: str) -> str:
    return of_a_task(f'java.io.IOException: Cannot run program "/a/python": {why}')


def of_a_daemon(printed: str) -> str:
    return of_a_task(
        f"org.apache.spark.SparkException: \nError from python worker:\n  {printed}\n"
        "PYTHONPATH was:\n  /spark/python/lib/pyspark.zip\njava.io.EOFException"
    )


OLD_PYTHON = of_a_daemon(
    'Traceback (most recent call last):\n    File "/lib/runpy.py", line 185, in _run_module_as_main\n'
    "      mod_name, mod_spec, code = _get_module_details(mod_name, _Error)\n"
    "  TypeError: unsupported operand type(s) for |: 'type' and 'type'"
)
NO_PYTHON = of_a_task(
    'java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory'
)
CRASHED = of_a_task(
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
    "Caused by: java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)",
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (PYTHON, "RuntimeError: the user's own mistake"),
        (f"Job aborted: {PYTHON}\n\tat org.apache.spark", "RuntimeError: the user's own mistake"),
        ("\n  [USER_RAISED_EXCEPTION] no such luck\nand more", "[USER_RAISED_EXCEPTION] no such luck"),
        ("", "ValueError"),
        ("Traceback (most recent call last):\n  File", "ValueError"),
        (
            CRASHED,
            "a task on 192.0.2.2 executor driver: org.apache.spark.SparkException: Python worker exited unexpectedly "
            "(crashed)",
        ),
        (
            of_a_task(
                "org.apache.spark.SparkException: [FAILED] no", "Caused by: a.B: c\n\tat d\nCaused by: e.F: g"
            ),
            "a task on 192.0.2.2 executor driver: org.apache.spark.SparkException: [FAILED] no (caused by e.F: g)",
        ),
        (
            "An error occurred while calling o62.collectToPython.\n: java.lang.OutOfMemoryError: Java heap space\n\tat",
            "java.lang.OutOfMemoryError: Java heap space",
        ),
        (
            OLD_PYTHON,
            "Error from python worker: TypeError: unsupported operand type(s) for |: 'type' and 'type'",
        ),
        (
            "An error occurred while calling o62.collectToPython.\n: org.apache.spark.SparkException: Job aborted due "
            "to stage failure: ResultStage 3 (collect at a.py:1) has failed the maximum allowable number of times: 4. "
            "Most recent failure reason:\norg.apache.spark.shuffle.FetchFailedException: no more room\n\tat a.B\n",
            "org.apache.spark.SparkException: Job aborted due to stage failure: ResultStage 3 (collect at a.py:1) has "
            "failed the maximum allowable number of times: 4. Most recent failure reason: "
            "org.apache.spark.shuffle.FetchFailedException: no more room",
        ),
    ],
)
def test_a_jobs_failure_shows_the_line_with_the_reason(text: str, told: str) -> None:
    assert failures.reason(ValueError(text)) == told


def test_a_rows_contents_are_shown_only_up_to_a_bound() -> None:
    assert len(failures.reason(ValueError("x" * 10_000_000))) == failures.MOST_TOLD


@pytest.mark.parametrize(
    "text",
    [
        NO_NUMPY,
        NO_NUMPY.replace("ModuleNotFoundError: No module named", "ImportError: cannot import name"),
        NO_PYTHON,
        not_started("Exec failed, error: 13 (Permission denied)"),
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.12",
        of_a_daemon("/a: No module named pyspark.daemon"),
        OLD_PYTHON,
    ],
)
def test_a_python_that_cannot_do_the_work_is_named_with_how_to_set_another(text: str) -> None:
    error = failures.job_failure(ValueError(text), "/opt/other/python")
    assert type(error) is WorkerError
    assert not error.retried
    for told in ("/opt/other/python", "PYSPARK_PYTHON", sys.executable, failures.reason(ValueError(text))):
        assert told in str(error)


@pytest.mark.parametrize(
    "text",
    [
        PYTHON,
        CRASHED,
        not_started("error=11, Resource temporarily unavailable"),
        not_started("error=12, Cannot allocate memory"),
        not_started("Exec failed, error: 24 (Too many open files)"),
        of_a_daemon("OSError: [Errno 12] Cannot allocate memory"),
    ],
)
def test_an_error_that_may_pass_is_tried_again(text: str) -> None:
    error = failures.job_failure(ValueError(text), "python3")
    assert type(error) is TryFailedError
    assert error.retried


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError()]
)
def test_a_driver_whose_jvm_is_gone_is_not_tried_again(error: Exception) -> None:
    told = failures.job_failure(error, "python3")
    assert type(told) is DriverGoneError
    assert not told.retried
    assert r"spark.driver.memory" in str(told)


class Unasked(Exception):
    """Of py4j, whose text the JVM has."""

    def __str__(self) -> str:
        raise Py4JNetworkError("Answer from Java side is empty")


def test_an_error_whose_text_went_with_the_jvm_means_a_gone_driver() -> None:
    told = failures.job_failure(Unasked(), "python3")
    assert type(told) is DriverGoneError
    assert "Answer from Java side is empty" in str(told)


class Option:
    """Scala's."""

    def __init__(self, value: str | None) -> None:
        self.value = value

    def isDefined(self) -> bool:
        return self.value is not None

    def get(self) -> str | None:
        return self.value


def session(*answers: list[str | None]) -> Any:
    """A Spark whose store has tasks with these error messages, at the first look, at the second, …"""
    looks = list(answers)

    def task_list(stage: int, attempt: int, most: int) -> Any:
        assert (stage, attempt) == (9, 0)
        found = looks.pop(0) if len(looks) > 1 else looks[0]
        tasks = [SimpleNamespace(errorMessage=lambda one=one: Option(one)) for one in found]
        return SimpleNamespace(size=lambda: len(tasks), apply=lambda number: tasks[number])

    store = SimpleNamespace(taskList=task_list)
    context = SimpleNamespace(statusStore=lambda: store)
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


def test_the_reason_of_a_retried_task_is_read_from_sparks_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "PAUSE_S", 0)
    late = session([None, None], [None, "java.lang.OutOfMemoryError: Java heap space\n\tat a.B"])
    assert failures.first_failure(late, 9) == "java.lang.OutOfMemoryError: Java heap space"
    monkeypatch.setattr(failures, "PATIENCE_S", 0)
    assert failures.first_failure(session([None]), 9) is None
    other: Any = SimpleNamespace()  # a Spark that has no such store
    assert failures.first_failure(other, 9) is None


def test_the_stage_of_a_retried_task_is_shown() -> None:
    row = [None, None, 1, 0, 0, 0, -1, -1, "TaskRepeatedError", "again", 9, 0]
    with pytest.raises(TaskRepeatedError) as caught:
        reports.check([row])
    assert caught.value.stage == 9
    assert caught.value.retried
