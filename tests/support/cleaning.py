"""Cleaning a log in a test: the pass and the swap, in one go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from protocol.waiting import at_once
from storage.cleaning.cleaner import clean
from storage.cleaning.plan import CleanedSegment, CleaningPlan, CleaningResult, CleaningStep
from storage.files import Files
from storage.log.partition_log import PartitionLog
from storage.log.replaced_segments import producers_in_steps
from tests.simulation.virtual_files import MachineDied
from tests.support.disk import files
from tests.support.killing import Killed
from tests.support.partition_logs import NOW_MS

MANY_KEYS = 1 << 20


def plan_of(
    log: PartitionLog,
    *,
    first_dirty: int | None = None,
    first_uncleanable: int | None = None,
    now_ms: int = NOW_MS,
    max_keys: int = MANY_KEYS,
    **changes: Any,
) -> CleaningPlan:
    """Return the plan of a pass over all closed segments. Further arguments replace the plan's fields."""
    plan = log.cleaning_plan(
        first_dirty_offset=log.log_start_offset if first_dirty is None else first_dirty,
        first_uncleanable_offset=(
            log.segments.active.base_offset if first_uncleanable is None else first_uncleanable
        ),
        now_ms=now_ms,
        max_keys=max_keys,
    )
    return plan._replace(producers=at_once(producers_in_steps(log)))._replace(**changes)


def clean_log(log: PartitionLog, plan: CleaningPlan | None = None, **options: Any) -> CleaningResult:
    """Run a pass and swap its segments in. `options` are those of `plan_of`."""
    result = None
    for step in steps(log, plan or plan_of(log, **options), disk=log.files):
        if isinstance(step, CleaningResult):
            result = step
    assert result is not None
    return result


def steps(
    log: PartitionLog,
    plan: CleaningPlan,
    *,
    disk: Files = files,
    told: Callable[[CleanedSegment], object] = lambda cleaned: None,
) -> Iterator[CleaningStep]:
    """Yield the steps of the pass. Each segment is swapped in before the next step. Raises what the swap raises."""
    running = clean(disk, plan)
    try:
        for step in running:
            if isinstance(step, CleanedSegment):
                told(step)
                answers: list[Exception | None] = []
                log.replace_segments(step, answers.append)
                [failure] = answers
                if failure is not None:
                    raise failure
            yield step
    finally:
        # a killed process removes nothing
        with contextlib.suppress(Killed, MachineDied):
            running.close()


def active_producers(plan: CleaningPlan) -> Iterator[tuple[int, int, int]]:
    """Yield id, epoch, and offset of the last data batch of each producer."""
    count = len(plan.producers) // 3
    return zip(
        plan.producers[:count],
        plan.producers[count : 2 * count],
        plan.producers[2 * count :],
        strict=True,
    )
