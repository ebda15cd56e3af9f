"""Reading answers from a stream, in whatever pieces they come, and whatever size they claim."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from broker.peers import peer as answer_frames
from broker.peers.peer import INITIAL_BUFFER_BYTES, RETAINED_BUFFER_BYTES, AnswerFrames


def fed(frames: AnswerFrames, data: bytes, luck: random.Random) -> list[bytes]:
    found = []
    left = memoryview(data)
    while left:
        room = frames.room()
        count = min(len(room), len(left), luck.choice([1, 3, 1000, 10**9]))
        room[:count] = left[:count]
        left = left[count:]
        frame = frames.came(count)
        if frame is not None:
            found.append(bytes(frame))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_answers_come_out_as_they_were_sent(seed: int) -> None:
    luck = random.Random(seed)
    sizes = [4, 5, 100, INITIAL_BUFFER_BYTES - 4, INITIAL_BUFFER_BYTES, 100_000]
    sent = [luck.randbytes(luck.choice(sizes)) for _ in range(10)]
    stream = b"".join(len(each).to_bytes(4, "big") + each for each in sent)
    assert fed(AnswerFrames(), stream, luck) == sent


def test_an_answer_stays_as_it_is_while_the_next_one_comes() -> None:
    frames = AnswerFrames()
    found = []
    for content in (b"first", b"other"):
        data = len(content).to_bytes(4, "big") + content
        while data:
            room = frames.room()
            count = min(len(room), len(data))
            room[:count], data = data[:count], data[count:]
            frame = frames.came(count)
            if frame is not None:
                found.append(frame)
    assert [bytes(frame) for frame in found] == [b"first", b"other"]


def test_a_size_alone_takes_no_memory_and_a_large_buffer_is_let_go() -> None:
    frames = AnswerFrames()
    tracemalloc.start()
    frames.room()[:4] = (500 * 1024 * 1024).to_bytes(4, "big")
    assert frames.came(4) is None
    frames.room()
    assert tracemalloc.get_traced_memory()[0] < 100_000
    tracemalloc.stop()
    frames = AnswerFrames()
    large = bytes(RETAINED_BUFFER_BYTES + 1)
    assert fed(frames, len(large).to_bytes(4, "big") + large, random.Random(1)) == [large]
    assert len(frames._buffer) == INITIAL_BUFFER_BYTES


@pytest.mark.limit("broker.peers.peer.MOST_ANSWER_BYTES")
@pytest.mark.parametrize("size", [-1, 0, 3, 1001])
def test_a_nonsense_size_is_invalid(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_frames, "MOST_ANSWER_BYTES", 1000)
    frames = AnswerFrames()
    frames.room()[:4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(ValueError, match=f"an answer of {size} bytes"):
        frames.came(4)
