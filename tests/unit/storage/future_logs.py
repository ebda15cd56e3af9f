"""A log, and the future log that copies it into another directory."""

from __future__ import annotations

from pathlib import Path

from storage.background import Background
from storage.directory import future_log_copying
from storage.log.partition_log import PartitionLog
from tests.support.immediate_background import run_at_once
from tests.support.partition_logs import NOW_MS, append, batch, open_log

PLENTY = 1 << 20


def filled(directory: Path, *written: bytes, background: Background = run_at_once) -> PartitionLog:
    log = open_log(directory, background=background)
    for value in written:
        append(log, batch(values=[value]))
    return log


def begun(directory: Path, present: PartitionLog) -> PartitionLog:
    future = open_log(directory, background=present.background)
    future_log_copying.begin(future, present, NOW_MS)
    return future


def copied(future: PartitionLog, present: PartitionLog) -> None:
    while not future_log_copying.is_caught_up(future, present):
        future_log_copying.copy(future, present, max_bytes=PLENTY, max_batches=PLENTY, now_ms=NOW_MS)


def take_over(future: PartitionLog, present: PartitionLog) -> None:
    future_log_copying.take_over(future, present, f"{future.directory}-new", f"{present.directory}-delete")
