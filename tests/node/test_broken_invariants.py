"""What stops the broker, and what doesn't."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from broker.controller.image import ClusterImage, MetadataContradictionError
from broker.server import Server
from protocol.errors import BrokenInvariantError, Error, KafkaError
from protocol.messages.topics import CreatableTopic
from storage.background import Lane
from tests.support.topics import topics_of
from tests.support.whole_server import started


def mark(folder: Path) -> bool:
    return (folder / ".kafka_cleanshutdown").exists()


def create(node: Server, name: str) -> None:
    topics_of(node).create([CreatableTopic(name=name, num_partitions=1, replication_factor=1)])


def connection() -> Any:
    return "a client"


@pytest.mark.parametrize(
    ("error", "stops"),
    [
        (AssertionError("x"), True),
        (BrokenInvariantError("x"), True),
        (MetadataContradictionError("x"), True),
        (IndexError("x"), False),
        (KafkaError(Error.KAFKA_STORAGE_ERROR), False),
        (OSError("x"), False),
        (MemoryError(), False),
    ],
)
async def test_only_a_broken_invariant_lets_a_request_stop_the_broker(
    tmp_path: Path, error: Exception, stops: bool
) -> None:
    node = await started(tmp_path)
    node.dispatcher.failed(connection(), error)
    assert node.stopped.is_set() is stops
    await node.stop()
    assert mark(tmp_path) is not stops


async def test_an_error_of_the_disk_has_no_stack_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(tmp_path)
    caplog.clear()
    node.dispatcher.failed(connection(), KafkaError(Error.KAFKA_STORAGE_ERROR, "full"))
    [line] = caplog.records
    assert line.exc_info is None
    assert "full" in line.getMessage()


async def test_an_assertion_after_background_work_stops_the_broker(tmp_path: Path) -> None:
    node = await started(tmp_path)

    def then(_: Exception | None) -> None:
        raise AssertionError("impossible")

    node.background(lambda: None, then, lane=Lane.FLUSHING)
    await asyncio.wait_for(node.stopped.wait(), 5)
    await node.stop()
    assert not mark(tmp_path)


async def test_an_assertion_in_background_work_stops_the_broker(node: Server) -> None:
    def work() -> None:
        raise AssertionError("impossible")

    node.background(work, lambda _: None, lane=Lane.FLUSHING)
    await asyncio.wait_for(node.stopped.wait(), 5)


async def test_an_assertion_in_a_periodic_task_stops_the_broker(node: Server) -> None:
    def task() -> None:
        raise AssertionError("impossible")

    node.housekeeping._every("task", 1, task)
    await asyncio.wait_for(node.stopped.wait(), 5)


async def test_a_broken_connection_on_the_loop_is_no_failure(node: Server) -> None:
    loop = asyncio.get_running_loop()
    loop.call_exception_handler({"message": "reset", "exception": ConnectionResetError(), "handle": None})
    loop.call_exception_handler({"message": "of a request", "exception": IndexError(), "future": None})
    assert not node.stopped.is_set()
    loop.call_exception_handler({"message": "of ours", "exception": IndexError(), "handle": None})
    assert node.stopped.is_set()


async def test_a_failure_while_stopping_keeps_the_mark_away(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.background(lambda: None, lambda _: node.stop_on_failure(AssertionError("late")), lane=Lane.FLUSHING)
    await node.stop()
    assert not mark(tmp_path)


async def test_a_written_record_that_cannot_be_applied_breaks_an_invariant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)

    def contradicts(*_: object) -> None:
        raise MetadataContradictionError("x")

    with monkeypatch.context() as patched:
        patched.setattr(ClusterImage, "apply", contradicts)
        with pytest.raises(BrokenInvariantError):
            create(node, "a")


async def test_the_loop_has_its_own_exception_handler_back_after_the_stop(node: Server) -> None:
    assert asyncio.get_running_loop().get_exception_handler() is not None
    await node.stop()
    assert asyncio.get_running_loop().get_exception_handler() is None


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
