"""A whole broker in this process, with a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

from broker.config.broker_config import BrokerConfig
from broker.environment.environment import Environment
from broker.environment.threads import BackgroundThreads
from broker.network.dispatch import with_ports
from broker.process import command_line
from broker.server import Server
from protocol.waiting import Later
from protocol.wire.codec import encoder
from protocol.wire.schema import Message
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin, forget


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test that is a coroutine in a loop of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


# The parser is always the same, and takes longer to make than everything done with it here.
command_line._parser = cache(command_line._parser)


def configured(folder: Path, *settings: str, port: int = 0) -> BrokerConfig:
    """Return the config. `settings` are `name=value`. A group's first members don't wait for others: the clock stands
    still."""
    arguments = ["--data", str(folder), "--port", str(port), "-o", "group.initial.rebalance.delay.ms=0"]
    for setting in settings:
        arguments += ["-o", setting]
    return command_line.parse_command_line(arguments, {}).config


async def started(folder: Path, *settings: str, port: int = 0, now_ms: int | None = None) -> Server:
    """Start a node. Raises StartError as a start does."""
    clock = ManualClock() if now_ms is None else ManualClock(now_ms)
    return await begin(configured(folder, *settings, port=port), Environment.of_this_machine(clock, files))


def clock_of(node: Server) -> ManualClock:
    assert isinstance(node.clock, ManualClock)
    return node.clock


def take_turns(node: Server) -> None:
    """Let long requests do everything that they can do without waiting."""
    while node.turns._waiting:
        if node.turns._turn is not None:
            node.turns._turn.cancel()  # this is that turn
        node.turns._take_turn()


def handled(node: Server, handler: ModuleType, context: Any, request: Any) -> Any:
    """Return the handler's answer, called with the ports in its signature. An immediate answer must have a form in the
    request's version."""
    answer = with_ports(handler.handle, node)(context, request)
    if isinstance(answer, Later):
        take_turns(node)
        answer = answer.answer()
    version = getattr(context, "api_version", None)  # some tests' contexts don't have one
    if version is not None and isinstance(answer, Message):
        encoder(type(answer), version)(answer, [b""])
    return answer


def crash(node: Server) -> None:
    """Release everything as a killed process does, so that no thread works on the next node's files."""
    forget(node)
    node.fall_silent()
    if isinstance(node.background, BackgroundThreads):
        for lane in [*node.background._lanes]:
            done = Event()
            node.background(done.set, lambda _: None, lane=lane)  # after everything that it has to do
            done.wait()
    node.log_dirs.close(clean=False)
