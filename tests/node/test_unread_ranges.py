"""The parts of an answer that lie in memory between ranges of files count among the unread answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.network import unsent
from broker.network.answers import Answer
from broker.network.connection import WRITE_HIGH_WATER_BYTES, Connection
from storage.files import FileRange
from tests.node.test_connection import frame
from tests.node.test_unsent_answers import CONTENT, RUNS, FromFile, blocked, connected, exactly

BETWEEN_BYTES = 300_000
RANGE_BYTES = 6_000_000  # more than sockets take
RANGES = 8


class Interleaved(FromFile):
    """Answers with ranges of the file and bytes in memory between them, like a Fetch of many partitions."""

    def serve(self, connection: Connection, asked: memoryview) -> Answer:
        self.served += 1
        return [b"<" * BETWEEN_BYTES, FileRange(self.files, self.file, 0, RANGE_BYTES)] * RANGES


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("per_turn", [unsent.PER_TURN_BYTES, 50_000])
def test_memory_between_ranges_counts_as_unread(
    run: Callable[..., Any], per_turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsent, "PER_TURN_BYTES", per_turn)

    async def told() -> None:
        async with connected(Interleaved(tmp_path / "file")) as (reader, writer, connection):
            memory = connection._memory.answers
            writer.write(frame(b"once"))
            await blocked(connection)
            assert memory.held_bytes > (RANGES - 1) * BETWEEN_BYTES
            whole = b"<" * BETWEEN_BYTES + CONTENT[:RANGE_BYTES]
            for left in reversed(range(RANGES)):
                assert await exactly(reader, len(whole)) == whole
                if left > 2:
                    assert (left - 2) * BETWEEN_BYTES < memory.held_bytes
                assert memory.held_bytes < (left + 1) * BETWEEN_BYTES + 2 * WRITE_HIGH_WATER_BYTES
            while connection._unsent is not None:
                await asyncio.sleep(0)
            assert memory.held_bytes == 0

    run(told())
