"""Reasons why nothing can be counted: one line, dug out of Spark's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas.spark.wire_log import RawLog

TRACEBACK = "Traceback (most recent call last)"
CAUSE = "Caused by: "
JAVA_STACK = "JVM stacktrace:"


def check_topics(
    bootstrap: str, topics: Sequence[str], *, keyed: bool, client: Mapping[str, Any], timeout_ms: int
) -> None:
    """Raise ValueError for a topic that can't be counted. Raises ResponseError and NoAnswerError, too.

    keyed: True to count duplicates, for which Spark's own source reads the records.
    """
    log = RawLog(bootstrap, client, timeout_ms)
    try:
        internal = log.internal(topics)
    finally:
        log.close()
    if keyed and internal:
        # Spark's ConsumerStrategy leaves them out, and fails half a minute later because they are missing.
        raise ValueError(
            f"Spark's Kafka source reads no internal topics, and {', '.join(internal)} is one: count it without a key"
        )


def check_folder(folder: str) -> None:
    """Raise ValueError if a local folder or file exists already."""
    scheme, slashes, path = folder.rpartition("://")
    local = path if slashes else folder.removeprefix("file:")
    if scheme in ("", "file") and Path(local).exists():
        raise ValueError(f"{folder} exists already, and nothing is overwritten: name another folder")


def reason(error: BaseException) -> str:
    """Return the reason in one line."""
    text = str(error)
    # A task's own Python error comes before all that Spark says about it.
    if TRACEBACK in text:
        told = text.rpartition(TRACEBACK)[2].partition(JAVA_STACK)[0]
        lines = [line for line in told.splitlines()[1:] if line.strip() and not line.startswith((" ", "\t"))]
        if lines:
            return lines[0].strip()
    lines = [line.strip().removeprefix(": ") for line in text.splitlines() if line.strip()]
    causes = [line.removeprefix(CAUSE) for line in lines if line.startswith(CAUSE)]
    if text.startswith("An error occurred while calling"):
        lines = lines[1:]
    return next(iter(causes[-1:] or lines), type(error).__name__)
