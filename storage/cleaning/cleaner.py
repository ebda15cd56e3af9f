"""One pass over a partition: what nobody needs any more goes from its closed segments.

First the dirty part is read, for the latest offset of each key; then every segment below the end of that is copied
without the records that have a later one. Source: org.apache.kafka.storage.internals.log Cleaner.
"""

from collections.abc import Generator, Sequence

from storage.cleaning.cleaned_files import CleanedFiles, remove_cleaned
from storage.cleaning.cleaned_transactions import AbortedTransactions, CleanedTransactions
from storage.cleaning.copying import Copying
from storage.cleaning.grouping import group_segments
from storage.cleaning.map_building import MapBuilding
from storage.cleaning.offset_map import OffsetMap
from storage.cleaning.plan import CleaningPlan, CleaningResult, CleaningStep, SegmentSizes
from storage.cleaning.segment_batches import SegmentBatches
from storage.cleaning.tally import Tally
from storage.files import Files


def clean(files: Files, plan: CleaningPlan) -> Generator[CleaningStep, None, None]:
    """Cleans the partition; `storage.cleaning.plan` says what the steps mean, and who does the rest.

    A step takes some milliseconds; longer alone where a large batch has to be decompressed or compressed, or a file
    synced. Raises `UncleanableError`, `OSError`.
    """
    tally = Tally()
    dirty_offsets = plan.first_uncleanable_offset - plan.first_dirty_offset
    offset_map = OffsetMap(plan.max_keys, plan.first_dirty_offset, dirty_offsets)
    try:
        yield from MapBuilding(files, plan, offset_map, tally).run()
        end = max(offset_map.latest + 1, plan.first_dirty_offset)
        if end > plan.first_dirty_offset:
            yield from _clean_segments(files, plan, end, offset_map, tally)
    finally:
        offset_map.close()
    yield CleaningResult(end, tally.stats(offset_map.count))


def _clean_segments(
    files: Files, plan: CleaningPlan, end: int, offset_map: OffsetMap, tally: Tally
) -> Generator[CleaningStep, None, None]:
    """All that begin below `end`, the already clean ones too: what is superseded by now may lie anywhere."""
    transactions = CleanedTransactions()
    index = AbortedTransactions(files, plan.directory, plan.log_start_offset)
    copying = Copying(plan, offset_map, transactions, tally)
    ends = dict(zip(plan.segments, plan.segment_ends(), strict=True))
    below = [segment for segment in plan.segments if segment.base_offset < end]
    reported: list[int] = []
    try:
        for group in group_segments(below, plan.settings, plan.first_uncleanable_offset):
            target = CleanedFiles(files, plan.directory, group[0].base_offset, plan.settings)
            try:
                for segment in group:
                    transactions.add(index.collect(segment.base_offset, ends[segment]))
                    reading = SegmentBatches(files, plan.directory, segment)
                    try:
                        yield from copying.copy(reading, target)
                    finally:
                        reading.close()
                for finished in target.finish(_base_offsets(group), keep_txn_index=plan.keep_txn_index):
                    yield finished or tally.step()
                    if finished:
                        reported.append(group[0].base_offset)
            except BaseException:
                target.discard()
                raise
    except GeneratorExit:
        # nobody takes them any more
        for base_offset in reported:
            remove_cleaned(files, plan.directory, base_offset)
        raise


def _base_offsets(group: Sequence[SegmentSizes]) -> tuple[int, ...]:
    return tuple(segment.base_offset for segment in group)
