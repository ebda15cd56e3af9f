"""A small run of the long measurement of the internal topics (`make day`)."""

from __future__ import annotations

from pathlib import Path

import barnabas
from tests.bench.coordinator_records import OFFSETS, TRANSACTIONS
from tests.bench.day import KEYS, SETTINGS, day
from tests.support.log_sizes import log_bytes


def test_a_day_of_transactions_is_written_and_known_after_a_restart(tmp_path: Path) -> None:
    found = day(barnabas.Broker(data=tmp_path, config=SETTINGS), transactions=2 * KEYS)

    sizes = {topic: sum(map(log_bytes, tmp_path.glob(f"{topic}-*"))) for topic in (TRANSACTIONS, OFFSETS)}
    assert sum(sizes.values()) == found.settled
    assert 0 < sizes[OFFSETS] < sizes[TRANSACTIONS] < found.written
    assert len(found.pings.took_ms) > 100
    assert found.ready_s <= found.known_s
