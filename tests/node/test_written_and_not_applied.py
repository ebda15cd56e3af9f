"""Everything in a log is in force. If it can't be applied, the node stops, and the next start reads it from the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replicas.leader import Leader
from broker.replicas.partitions import Partitions
from broker.server import Server
from coordinator.group.store import GroupStore
from coordinator.transaction.state_manager import TransactionMetadata
from protocol.errors import BrokenInvariantError, Error
from protocol.messages.produce import InitProducerIdRequest
from storage.producer_state import ProducerStates
from tests.node.transactional import Producer, ask, coordinating, state
from tests.support.failing_calls import fail
from tests.support.partition_logs import append as append_to
from tests.support.partition_logs import batch, open_log, produced
from tests.support.whole_server import started, take_turns


async def test_an_offset_that_is_written_and_not_known_stops_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    fail(monkeypatch, GroupStore, "apply_offsets")
    with pytest.raises(BrokenInvariantError):
        producer.commit_offsets(5)


async def test_a_transaction_whose_record_is_written_but_not_applied_stops_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    with monkeypatch.context() as patch:
        fail(patch, TransactionMetadata, "apply")
        with pytest.raises(BrokenInvariantError):
            producer.end()
    await node.stop()
    again = await started(tmp_path)
    assert state(again) == "CompleteCommit"


def does_not_commit_alone(node: Server) -> None:
    """Have only `Leader.advance` commit what is appended, as if there were other replicas."""
    node.partitions.get("__transaction_state", 0).leader()._commits_alone = False


async def test_a_coordinators_record_is_reported_once_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    does_not_commit_alone(node)
    with monkeypatch.context() as patch:
        fail(patch, Leader, "advance", at=0)
        answer = ask(node, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1_000), 5)
        assert answer.answer() is answer
        node.housekeeping.make_up()
        assert answer.answer() is answer
    node.housekeeping.make_up()
    take_turns(node)
    assert answer.answer().error_code == Error.NONE
    assert state(node) == "Empty"


def test_a_batch_that_its_producer_state_lacks_breaks_an_invariant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a retry of the batch would be written a second time."""
    log = open_log(tmp_path)
    append_to(log, produced(0))
    fail(monkeypatch, ProducerStates, "apply_data")
    with pytest.raises(BrokenInvariantError):
        append_to(log, produced(1))
    assert log.log_end_offset == 2


async def test_a_repair_that_lacked_memory_too_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    with monkeypatch.context() as patch:
        fail(patch, Partitions, "all", at=2)
        with pytest.raises(MemoryError):
            node.housekeeping.make_up()
    does_not_commit_alone(node)
    with monkeypatch.context() as patch:
        fail(patch, Leader, "advance", at=0)
        answer = ask(node, InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1_000), 5)
    assert answer.answer() is answer
    node.housekeeping.make_up()
    take_turns(node)
    assert answer.answer() is not answer


def test_a_damaged_batch_before_the_log_start_keeps_no_transaction_from_being_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append_to(log, produced(0, transactional=True))
    damaged_at = log.segments.active.size
    for _ in range(2):
        append_to(log, batch())
    log.delete_records_before(2)
    with open(log.segments.active.log.path, "r+b") as file:
        file.seek(damaged_at + 16)
        file.write(b"\x07")
    append_to(log, produced(0, producer_id=8, transactional=True))
    assert log.log_end_offset == 4
