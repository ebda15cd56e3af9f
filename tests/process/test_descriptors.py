"""What the system keeps for a broker's descriptors."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import pytest

import barnabas
from broker.starting import MOST_OPEN_FILES


@pytest.mark.skipif(
    sys.platform != "linux", reason="Linux alone tells the size of the table, and waits as it grows"
)
def test_their_table_is_as_large_as_the_logs_will_need_it_once_the_broker_has_started(tmp_path: Path) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with barnabas.Broker(data=tmp_path / "data") as broker:
        status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"^FDSize:\s*(\d+)$", status, re.MULTILINE)
    assert found is not None
    assert int(found[1]) >= min(MOST_OPEN_FILES, soft // 2)
