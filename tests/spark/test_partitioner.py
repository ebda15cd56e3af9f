"""Java's default partitioner by columns."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra `spark`")

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.arrow_batches import LONGEST_TOGETHER, murmur2, murmur2_of, partitions_of, spans

# What org.apache.kafka.common.utils.Utils.murmur2 makes of them, signed.
JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def hashes(keys: list[bytes]) -> list[int]:
    offsets, data = spans(pa.array(keys, pa.binary()))
    return murmur2(data, offsets).tolist()


def test_hashes_are_javas() -> None:
    assert [np.uint32(one).astype(np.int32) for one in hashes(list(JAVA))] == list(JAVA.values())


@given(
    st.lists(st.binary(max_size=40) | st.binary(min_size=LONGEST_TOGETHER - 5, max_size=LONGEST_TOGETHER + 5))
)
def test_a_column_of_keys_is_hashed_as_each_of_them_is(keys: list[bytes]) -> None:
    assert hashes(keys) == [murmur2_of(key) for key in keys]


def test_the_sign_is_cut_off_before_the_remainder() -> None:
    assert partitions_of(np.array([0xFFFFFFFF, 7], np.uint32), 10).tolist() == [0x7FFFFFFF % 10, 7]
