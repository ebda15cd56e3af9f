"""The nodes that a test has started: checked and ended after it.

`begin` starts a node and remembers it. After the test, `end_all` compares the logs of each running node with their
batches, stops it, and checks that nothing is left behind.
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
"""How often a test has opened a partition's log with batches in it, including one that was moving to another
directory."""


async def begin(config: BrokerConfig, environment: Environment) -> Server:
    """Start a node. Raises StartError as a start does. A test may stop the node itself; its logs are checked then,
    too."""
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
    """Forget what tests end themselves, as those of `tests/interop` and `tests/crash` do."""
    global _starts_failed
    _begun.clear()
    _stopped.clear()
    _crashed.clear()
    _starts_failed = 0
    _opened.clear()


def forget(node: Server) -> None:
    """Forget a crashed node: nobody has to end it any more."""
    if node in _begun:
        _begun.remove(node)
        _crashed.append(node)


async def end_all() -> None:
    """Check and end the nodes of a finished test. Raises AssertionError if something is wrong."""
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
    """Check the log of every partition that is online."""
    for partition in node.partitions.all():
        check_log(partition.log, node.clock.now_ms(), _opened[_name_of(partition.log)])


def check_nothing_waits(node: Server) -> None:
    """Check that no fetch, answer, connection, decision, marker or turn is waiting."""
    for partition in node.partitions.all():
        assert not partition.waiting, f"fetches still wait at {partition}"
    assert not node.groups.undecided, f"{[*node.groups.undecided]} are still being decided"
    assert not node.turns._waiting, "requests still wait for a turn"
    assert not node.markers._rows, "markers still wait to be written"
    for listener in node.listeners.values():
        assert not listener.connections, f"{listener.name} still has {listener.connections}"


async def check_nothing_is_left() -> None:
    """Check that no task, timer or socket of this loop is left, and no file."""
    for _ in range(3):  # a closed connection takes some turns of the loop
        await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not tasks, f"tasks still run: {tasks}"
    timers = [timer for timer in getattr(loop, "_scheduled", ()) if not timer.cancelled()]
    assert not timers, f"timers still run: {timers}"
    assert files.open_files_count() <= _open_before, "files are still open"
