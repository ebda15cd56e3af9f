"""What a driver has started: its executors, and their Python workers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import psutil

DAEMONS = {"pyspark.daemon", "tests.support.spark_workers"}
EXECUTORS = {"org.apache.spark.executor.CoarseGrainedExecutorBackend"}


def workers(driver: int) -> list[int]:
    """Processes that a daemon of the driver's, or of one of its executors', forked, in order."""
    daemons = _below(driver, DAEMONS)
    return sorted(pid for pid in daemons if _parent_of(pid) in daemons)


def executors(driver: int) -> list[int]:
    """JVMs of their own, in order; none where the driver's runs the tasks (`local[2]`)."""
    return sorted(_below(driver, EXECUTORS))


def that_write(found: Sequence[int], driver: int, ports: Collection[int]) -> list[int]:
    """Of these workers or executors: those that write, or whose workers do.

    A worker has a connection to a broker for as long as its task writes, and no longer.
    """
    writers = {worker for worker in workers(driver) if _is_connected(worker, ports)}
    return [pid for pid in found if pid in writers or (writers and not writers.isdisjoint(workers(pid)))]


def ports(bootstrap: str) -> set[int]:
    return {int(address.rpartition(":")[2]) for address in bootstrap.split(",")}


def _is_connected(pid: int, ports: Collection[int]) -> bool:
    try:
        return any(
            one.raddr and one.raddr.port in ports for one in psutil.Process(pid).net_connections("tcp")
        )
    except psutil.Error:
        return False


def _below(driver: int, words: set[str]) -> set[int]:
    """Processes with one of these words on their command line, however far below the driver."""
    try:
        processes = psutil.Process(driver).children(recursive=True)
    except psutil.NoSuchProcess:
        return set()
    return {process.pid for process in processes if _has_one(process, words)}


def _has_one(process: psutil.Process, words: set[str]) -> bool:
    """A process that has just ended has none."""
    try:
        return not words.isdisjoint(process.cmdline())
    except psutil.Error:
        return False


def _parent_of(pid: int) -> int:
    """-1 where there is no such process any more."""
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return -1
