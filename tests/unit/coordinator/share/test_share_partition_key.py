"""Keys of share partitions, as FindCoordinator requests have them."""

from __future__ import annotations

import pytest

from coordinator.share.share_partition_key import SharePartitionKey
from protocol.wire.primitives import uuid_to_text

TOPIC_ID = bytes(range(16))
ID = uuid_to_text(TOPIC_ID)


@pytest.mark.parametrize(
    ("text", "group_id", "partition"),
    [
        (f"g:{ID}:0", "g", 0),
        (f"a:b:{ID}:12", "a:b", 12),
        (f":{ID}:{ID}:1", f":{ID}", 1),
        (f"g:{ID}:-1", "g", -1),
        (f"g:{ID}:+1", "g", 1),
        (f"g:{ID}:1::", "g", 1),
        (f"g:{ID}:2147483647", "g", 2**31 - 1),
    ],
)
def test_a_key_is_read_from_its_end(text: str, group_id: str, partition: int) -> None:
    assert SharePartitionKey.from_text(text) == SharePartitionKey(group_id, TOPIC_ID, partition)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "g", f"g:{ID}", f"{ID}:0", f":{ID}:0", f" \t:{ID}:0", f"g:{ID}:", f"g:{ID}:x"),
        *(f"g:{ID}:2147483648", f"g:{ID}: 1", "g::0", "g:abc:0", f"g:{ID}:{'9' * 10_000}"),
    ],
)
def test_a_nonsense_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|is the index"):
        SharePartitionKey.from_text(text)


def test_the_text_of_a_key_reads_as_the_key() -> None:
    key = SharePartitionKey("g:x", TOPIC_ID, 3)
    assert key.text == f"g:x:{ID}:3"
    assert SharePartitionKey.from_text(key.text) == key
