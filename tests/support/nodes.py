"""The nodes that a test has started: ended for it, and looked over.

`begin` starts one and keeps it in mind. When the test is over, `end_all` holds the logs of each node that still runs
against their batches, stops it, and sees that nothing is left behind.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from broker.starting import start
from tests.support.disk import files
from tests.support.replay import check_log

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.environment.environment import Environment
    from broker.server import Server
    from storage.log.partition_log import PartitionLog

_begun: list[Server] = []
_stopped: list[Server] = []
_crashed: list[Server] = []
_starts_failed = 0
_open_before = 0
_opened: Counter[str] = Counter()
"""How often a test has opened a partition's log with batches in it, and with it one that was on its way elsewhere."""


async def begin(config: BrokerConfig, environment: Environment) -> Server:
    """Raises StartError as a start does. A test may stop the node itself: its logs are looked over then, too."""
    global _open_before, _starts_failed
    if not (_begun or _stopped or _crashed or _starts_failed):
        _open_before = files.open_files_count()
    try:
        node = await start(config, environment)
    except BaseException:
        _starts_failed += 1
        raise
    node.metadata.replicate = node.metadata.commit  # tests ask the controller, and go on with its answer
    _opened.update(_name_of(partition.log) for partition in node.partitions.all() if partition.log.size)
    stop = node.stop

    async def stop_checked() -> None:
        if node in _begun:
            _begun.remove(node)
            _stopped.append(node)
            if node.faults.failure is None:
                check_logs(node)
        await stop()

    node.stop = stop_checked  # type: ignore[method-assign]
    _begun.append(node)
    return node


def forget_all() -> None:
    """What tests began that end it by themselves, as those of `tests/interop` and `tests/crash` do."""
    global _starts_failed
    _begun.clear()
    _stopped.clear()
    _crashed.clear()
    _starts_failed = 0
    _opened.clear()


def forget(node: Server) -> None:
    """It has crashed: nobody ends it any more."""
    if node in _begun:
        _begun.remove(node)
        _crashed.append(node)


async def end_all() -> None:
    """Of the test that is over. Raises AssertionError where one of them isn't as it should be."""
    files.set_fault_hook(None)
    try:
        for node in _begun[::-1]:
            await node.stop()
        for node in _crashed:
            await node.background.finish()
        if _stopped or _starts_failed:
            await check_nothing_is_left()
            for node in _stopped:
                check_nothing_waits(node)
    finally:
        forget_all()


def _name_of(log: PartitionLog) -> str:
    return f"{log.topic}-{log.partition}"


def check_logs(node: Server) -> None:
    """Of every partition that is online."""
    for partition in node.partitions.all():
        check_log(partition.log, node.clock.now_ms(), _opened[_name_of(partition.log)])


def check_nothing_waits(node: Server) -> None:
    """No fetch, no answer, no connection, no decision, no marker, and no request for its turn."""
    for partition in node.partitions.all():
        assert not partition.waiting, f"fetches still wait at {partition}"
    assert not node.groups.undecided, f"{[*node.groups.undecided]} are still decided of"
    assert not node.turns._waiting, "requests still wait for a turn"
    assert not node.markers._rows, "markers still wait to be written"
    for listener in node.listeners.values():
        assert not listener.connections, f"{listener.name} still has {listener.connections}"


async def check_nothing_is_left() -> None:
    """No task, no timer, no socket of this loop, and no file."""
    for _ in range(3):  # what a closed connection does in turns of the loop
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not tasks, f"tasks still run: {tasks}"
    timers = [timer for timer in getattr(loop, "_scheduled", ()) if not timer.cancelled()]
    assert not timers, f"timers still run: {timers}"
    assert files.open_files_count() <= _open_before, "files are still open"
