"""Each waiter for the metadata log is told once, in order."""

from __future__ import annotations

from pathlib import Path

from protocol.errors import Error, KafkaError
from tests.node.metadata_logs import begin, topic


def test_every_waiter_learns_that_the_controller_is_elsewhere(tmp_path: Path) -> None:
    metadata = begin(tmp_path)
    metadata.replicate = lambda end_offset: None
    waiting = [metadata.committed(metadata.append(topic(name))) for name in "ab"]
    assert all(later.answer() is later for later in waiting)
    metadata.resign()
    told = [later.result() for later in waiting]
    assert [isinstance(each, KafkaError) and each.error for each in told] == [Error.NOT_CONTROLLER] * 2
    metadata.become_leader(1)
    later = metadata.committed(metadata.next_offset)  # in a later epoch of this leader
    metadata.commit(metadata.next_offset)
    assert later.result() is None


def test_waiters_for_later_offsets_are_called_later(tmp_path: Path) -> None:
    metadata = begin(tmp_path)
    metadata.replicate = lambda end_offset: None
    told: list[str] = []
    ends = {name: metadata.append(topic(name)) for name in "ab"}
    for name, end_offset in ends.items():
        metadata.committed(end_offset).when_answered(lambda name=name: told.append(name))
    metadata.commit(ends["a"])
    assert told == ["a"]
    metadata.commit(ends["b"])
    assert told == ["a", "b"]


def test_waiters_for_committed_offsets_are_called_at_once(tmp_path: Path) -> None:
    metadata = begin(tmp_path)
    assert metadata.committed(metadata.next_offset).result() is None
