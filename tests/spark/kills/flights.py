"""The flights pipeline as a job to be killed: its two queries run one after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.spark.kills.supervisor import Killed, Supervisor


def supervisor(
    server: Killed,
    folder: Path,
    arguments: Sequence[str] = (),
    first: int = 0,
    say: Callable[[str], None] = lambda what: None,
) -> Supervisor:
    """arguments: of `examples.flights_pipeline.job`, behind the bootstrap address and the folder.

    first: how many batches the first query has, for kills count on over both.
    """
    command = [sys.executable, "-m", "examples.flights_pipeline.job", server.bootstrap, str(folder)]

    def number(query: str, batch_id: int) -> int:
        return batch_id if query == "enriched" else first + batch_id

    return Supervisor(server, [*command, *arguments], folder / "job.log", number=number, say=say)
