"""The fixtures that most tests of cleaning use."""

from pathlib import Path

import pytest

from storage.log.partition_log import PartitionLog
from tests.unit.storage.cleaning.compacted_logs import compacted_log


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    return compacted_log(tmp_path)
