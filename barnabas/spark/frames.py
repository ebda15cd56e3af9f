"""One frame a batch: what a sink keeps of the batch that it wrote last, to tell another frame from the same again.

The marker knows batches by number, and would have a second frame of the same batch skipped as done. That the same frame
comes again is no mistake: a function of `foreachBatch` may repeat what it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import SecondFrameError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from barnabas.spark.stream import Stream


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that is committed, and the frame that it was given as. run: of the query, anew at each start."""

    run: str
    batch_id: int
    frame: DataFrame


def run_of(stream: Stream | None) -> str:
    """ "" for a batch by hand."""
    return "" if stream is None else f"{stream.query_id}/{stream.run_id}"


def refuse_second(last: Written | None, run: str, batch_id: int, frame: DataFrame) -> None:
    """Raises SecondFrameError where the batch was written already, and from another frame."""
    if last is None or (last.run, last.batch_id) != (run, batch_id) or last.frame is frame:
        return
    if not last.frame.sameSemantics(frame):
        raise SecondFrameError(
            f"this sink wrote batch {batch_id} already, from another DataFrame, or from the same one made anew: call "
            "it once a batch, several frames as one by unionByName; or give each a sink of its own, with a query name "
            "of its own"
        )
