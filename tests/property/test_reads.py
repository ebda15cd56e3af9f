"""However little of a read is taken at once: what is taken and what is left are what was asked for, no byte more."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.reads import ALL, FIRST_READ_BYTES
from tests.support.examples import examples
from tests.support.partition_logs import append, batch_of_bytes, open_log

AT_ONCE = [-5, 0, 1, 11, 12, 78, 79, 511, 512, 513, FIRST_READ_BYTES, FIRST_READ_BYTES + 1]
BATCHES = {size: batch_of_bytes(size) for size in [79, 100, 300, 511, 512, 513, 700, FIRST_READ_BYTES]}


@settings(max_examples=examples(50), deadline=None)
@given(
    sizes=st.lists(st.sampled_from([*BATCHES]), min_size=1, max_size=6),
    at_once=st.sampled_from(AT_ONCE),
    max_bytes=st.one_of(st.integers(0, 1_500), st.just(100_000)),
    min_one_batch=st.booleans(),
    data=st.data(),
)
def test_a_read_gives_the_same_bytes_however_little_is_taken_at_once(
    sizes: list[int], at_once: int, max_bytes: int, min_one_batch: bool, data: st.DataObject
) -> None:
    bound = data.draw(st.integers(1, len(sizes)), label="bound")
    offset = data.draw(st.integers(0, bound - 1), label="offset")
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder))
        for size in sizes:
            append(log, bytearray(BATCHES[size]))
        whole = log.read(offset, max_bytes, bound, min_one_batch, ALL)
        parted = log.read(offset, max_bytes, bound, min_one_batch, at_once)
        rest = b"" if parted.rest is None else parted.rest.read(0, len(parted.rest))
        assert parted.records + rest == whole.records
        assert parted.size_bytes == len(whole.records) <= sum(sizes[offset:bound])
        log.close()
