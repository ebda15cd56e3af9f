"""InitProducerId while the controller is away: only a client that needs a fresh producer id waits, and not for long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.environment.environment import Environment
from broker.handlers import init_producer_id
from broker.network.dispatch import with_ports
from broker.server import Server
from protocol.errors import Error
from protocol.messages.produce import InitProducerIdRequest
from protocol.waiting import Later
from tests.node.transactional import coordinating
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.whole_server import configured, in_loop, take_turns

CONTEXT: Any = SimpleNamespace(listener_name="PLAINTEXT", api_version=4)


class Timers:
    """A scheduler whose timers run out when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Any:
        timer = (delay_s, callback)
        self.waiting.append(timer)
        return SimpleNamespace(cancel=lambda: self.waiting.remove(timer))

    def run_out(self) -> None:
        while self.waiting:
            self.waiting.pop()[1]()


async def without_controller(folder: Path) -> tuple[Server, HeldSyncs, Timers]:
    """Start a node that knows the transactional id `tx`, at epoch 0, and has no block of producer ids. The controller
    gives none until its disk syncs."""
    node = await coordinating(folder)
    first = init(node, "tx")
    take_turns(node)
    assert first.result().producer_epoch == 0
    await node.stop()
    syncs = HeldSyncs()
    here = replace(Environment.of_this_machine(ManualClock(), files), background=syncs)
    settings = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
    node = await begin(configured(folder, *settings), here)
    node.metadata.commit_when_synced()
    syncs.is_held = True
    timers = Timers()
    node.scheduler = timers  # type: ignore[assignment]
    return node, syncs, timers


def init(node: Server, transactional_id: str | None) -> Any:
    """Return the answer, or a `Later` if it has to wait."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000)
    return with_ports(init_producer_id.handle, node)(CONTEXT, request)


def epoch_of(node: Server, transactional_id: str) -> int:
    return node.transactions.shard_of(transactional_id).transactions[transactional_id].producer_epoch


@in_loop
async def test_a_client_with_a_producer_id_does_not_wait_for_the_controller(tmp_path: Path) -> None:
    node, syncs, timers = await without_controller(tmp_path)
    answer = init(node, "tx")
    assert (answer.error_code, answer.producer_epoch) == (Error.NONE, 1)
    assert syncs.waiting == timers.waiting == [], "nor is a block asked for"
    await node.stop()


@in_loop
@pytest.mark.parametrize("transactional_id", ["new", None])
async def test_a_client_without_one_is_answered_once_there_is_an_id(
    tmp_path: Path, transactional_id: str | None
) -> None:
    node, syncs, timers = await without_controller(tmp_path)
    asked = init(node, transactional_id)
    assert isinstance(asked, Later)
    await syncs.finish()
    take_turns(node)
    assert asked.result().error_code == Error.NONE
    assert timers.waiting == []
    await node.stop()


@pytest.mark.limit("broker.handlers.init_producer_id.LONGEST_WAIT_S")
@in_loop
@pytest.mark.parametrize("transactional_id", ["new", None])
async def test_a_long_waiter_has_to_ask_again_and_nothing_is_carried_out_later(
    tmp_path: Path, transactional_id: str | None
) -> None:
    node, syncs, timers = await without_controller(tmp_path)
    asked = init(node, transactional_id)
    assert [delay_s for delay_s, _ in timers.waiting] == [init_producer_id.LONGEST_WAIT_S]
    timers.run_out()
    take_turns(node)
    assert asked.result().error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    take_turns(node)
    await syncs.finish()
    take_turns(node)
    assert "new" not in node.transactions.shard_of("new").transactions
    assert init(node, transactional_id).producer_id == 1000, "the first of the block, which nobody took"
    await node.stop()


@in_loop
async def test_nothing_is_carried_out_for_a_client_that_has_hung_up(tmp_path: Path) -> None:
    node, syncs, timers = await without_controller(tmp_path)
    for _ in range(2):
        init(node, "new").abandon()
    assert timers.waiting == []
    take_turns(node)
    await syncs.finish()
    take_turns(node)
    assert "new" not in node.transactions.shard_of("new").transactions
    assert init(node, "new").producer_epoch == 0
    assert epoch_of(node, "new") == 0
    await node.stop()


@in_loop
async def test_waiters_are_answered_if_no_block_can_be_recorded(tmp_path: Path) -> None:
    node, syncs, timers = await without_controller(tmp_path)
    asked = init(node, "new")
    take_turns(node)
    syncs.fail_one()
    take_turns(node)
    assert asked.result().error_code == Error.COORDINATOR_LOAD_IN_PROGRESS
    assert timers.waiting == []
    await node.stop()
