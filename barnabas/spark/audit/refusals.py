"""What is said where there is nothing to count: one line, with the reason that is buried in Spark's text."""

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
    """Raises ValueError for a topic that can't be counted, ResponseError and NoAnswerError for the broker's part.

    keyed: whether duplicates are to be counted, for which Spark's own source reads the records.
    """
    log = RawLog(bootstrap, client, timeout_ms)
    try:
        internal = log.internal(topics)
    finally:
        log.close()
    if keyed and internal:
        # Spark's ConsumerStrategy leaves them out, and fails half a minute later over what is missing.
        raise ValueError(
            f"Spark's Kafka source reads no internal topics, and {', '.join(internal)} is one: count it without a key"
        )


def check_folder(folder: str) -> None:
    """Raises ValueError where a local folder or file is there already."""
    scheme, slashes, path = folder.rpartition("://")
    local = path if slashes else folder.removeprefix("file:")
    if scheme in ("", "file") and Path(local).exists():
        raise ValueError(f"{folder} is there already, and nothing is written over: name another folder")


def reason(error: BaseException) -> str:
    """One line for it."""
    text = str(error)
    # A task's own error, as Python has it, ahead of all that Spark says about it.
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
