"""Whatever was written, in whatever order it was cleaned: readers find of each key the latest, and nothing else."""

import random
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.compacted_history import CompactedHistory
from tests.support.examples import examples


@settings(max_examples=examples(10), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_cleaned_log_says_of_each_key_what_it_said_before(seed: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        history = CompactedHistory(Path(directory), random.Random(seed))
        for _step in range(120):
            history.step()
        history.clean()
        history.check()
        history.log.close(clean=False)
