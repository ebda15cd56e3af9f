"""Whatever was written, in whatever order it was cleaned: readers find of each key the latest, and nothing else."""

import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.cleaning.offset_map import OffsetMap
from tests.support.compacted_history import CompactedHistory
from tests.support.examples import examples
from tests.unit.storage.cleaning.compacted_logs import stored


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_cleaned_log_keeps_each_keys_latest_value(seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        history = CompactedHistory(Path(directory), random.Random(seed))
        for _step in range(120):
            history.step()
        history.clean()
        history.check()
        history.log.close(clean=False)


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_batch_that_goes_unread_would_have_gone_record_by_record(seed: int) -> None:
    left = []
    for unread in (True, False):
        with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
            if not unread:
                patch.setattr(OffsetMap, "has_latest_within", lambda *_offsets: True)
            history = CompactedHistory(Path(directory), random.Random(seed))
            for _step in range(120):
                history.step()
            history.clean()
            left.append(stored(history.log))
            history.log.close(clean=False)
    assert left[0] == left[1]
