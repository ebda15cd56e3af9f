"""A log directory, and logs in it."""

from pathlib import Path

from storage.background import Background
from storage.directory.log_directory import LogDirectory
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.partition_logs import NOW_MS, TOPIC_ID

MARK = ".kafka_cleanshutdown"
UNIQUE = "0123456789abcdef" * 2


def opened(path: Path, background: Background = run_at_once) -> LogDirectory:
    return LogDirectory.open(str(path), files=files, background=background)


def log_of(
    directory: LogDirectory,
    topic: str = "orders",
    partition: int = 0,
    topic_id: str | None = TOPIC_ID,
    **config: int,
) -> PartitionLog:
    return directory.open_log(topic, partition, LogConfig(**config), now_ms=NOW_MS, topic_id=topic_id)
