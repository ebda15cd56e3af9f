"""Spark's standalone master and workers on this machine, started by the distribution's own script."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import until

PATIENCE_S = 240.0
CORES, MEMORY = 1, "1g"


@contextlib.contextmanager
def running(folder: Path, workers: int = 2) -> Iterator[str]:
    """The master's address, once all workers are registered there."""
    with contextlib.ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(
            _daemon(log, folder, "master.Master", "--host", "127.0.0.1", "--port", "0", *_ui())
        )
        until(lambda: _address(log), "the master listens", PATIENCE_S)
        address = _address(log)
        for number in range(workers):
            arguments = ["--host", "127.0.0.1", "--cores", str(CORES), "--memory", MEMORY, *_ui()]
            arguments += ["--work-dir", str(folder / f"work-{number}"), address]
            worker_log = folder / f"worker-{number}.log"
            stack.enter_context(_daemon(worker_log, folder, "worker.Worker", *arguments))
        until(lambda: log.read_text().count("Registering worker") == workers, "workers", PATIENCE_S)
        yield address


def _ui() -> list[str]:
    return ["--webui-port", "0"]


def _address(log: Path) -> str:
    found = re.search(r"Starting Spark master at (spark://[\d.]+:\d+)", log.read_text())
    return found.group(1) if found else ""


@contextlib.contextmanager
def _daemon(log: Path, folder: Path, name: str, *arguments: str) -> Iterator[None]:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOG_LEVEL": "INFO",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={_log4j(folder)}",
        "PYSPARK_PYTHON": sys.executable,
    }
    # Its executors find neither this checkout nor what else this process was told of.
    environment.pop("PYTHONPATH", None)
    with log.open("w") as file:
        daemon = subprocess.Popen(
            [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def _log4j(folder: Path) -> Path:
    """What a daemon logs tells where it listens; by default that isn't shown."""
    path = folder / "log4j2.properties"
    path.write_text(
        "rootLogger.level = info\n"
        "rootLogger.appenderRef.out.ref = out\n"
        "appender.out.type = Console\n"
        "appender.out.name = out\n"
        "appender.out.target = SYSTEM_ERR\n"
        "appender.out.layout.type = PatternLayout\n"
        "appender.out.layout.pattern = %p %c{1}: %m%n\n"
    )
    return path
