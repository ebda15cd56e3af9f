"""One broker in this process: from its options to its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

from broker.environment.environment import Environment
from broker.process.start_error import StartError
from broker.starting import start

if TYPE_CHECKING:
    from broker.process.command_line import Options
    from broker.process.parent import ParentTie
    from broker.server import Server

log = logging.getLogger("barnabas")


def run(options: Options) -> int:
    """Run until a signal, the parent's end or a failure; the exit status."""
    _hold_standard_descriptors()
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for warning in options.config.warnings:
        log.warning("%s", warning)
    parent = None
    if options.control_fd is not None:
        from broker.process.parent import ParentTie

        parent = ParentTie(options.control_fd)
    try:
        try:
            import uvloop
        except ImportError:
            return asyncio.run(_run(options, parent))
        return uvloop.run(_run(options, parent))
    finally:
        # A parent that lives may start a broker there again, and removes the folder when it does not.
        if options.temporary and (parent is None or parent.gone):
            import shutil  # with all its compressions: nothing else of a broker needs it

            for path in options.config.log_dirs:
                shutil.rmtree(path, ignore_errors=True)
        if parent is not None:
            parent.close()


async def _run(options: Options, parent: ParentTie | None) -> int:
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, asked_to_stop.set)
    if parent is not None:
        parent.watch(asked_to_stop.set)
    try:
        server = await start(options.config, Environment.of_this_machine())
    except StartError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return 1
    gc.freeze()  # what a start made is there to stay
    gc.enable()
    try:
        await _serve(server, options, parent, asked_to_stop)
    finally:
        await server.stop()
    return 1 if server.failure is not None else 0


async def _serve(
    server: Server, options: Options, parent: ParentTie | None, asked_to_stop: asyncio.Event
) -> None:
    """Say where the server is, and wait for the signal, the parent's end or a failure."""
    endpoints = {endpoint.name: endpoint.text for endpoint in server.endpoints}
    if parent is not None:
        parent.tell_ready(server.bootstrap, endpoints)
    # Testcontainers waits for "[KafkaServer id=N] started".
    where = ", ".join(endpoints.values())
    folder = ", ".join(options.config.log_dirs)
    _say(f"barnabas: [KafkaServer id={server.node_id}] started, connect to {where}; data in {folder}")
    failed = asyncio.ensure_future(server.stopped.wait())
    asked = asyncio.ensure_future(asked_to_stop.wait())
    await asyncio.wait([failed, asked], return_when=asyncio.FIRST_COMPLETED)
    for waiter in (failed, asked):
        waiter.cancel()


def _hold_standard_descriptors() -> None:
    """Where a standard stream was closed by who started us, nothing else may get its number: not a log's file, which
    would be written to by mistake, nor the loop's, at whose closing libuv ends the process."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _say(line: str) -> None:
    """To the standard output, which may be closed or full: that is no reason to end."""
    try:
        print(line, flush=True)
    except OSError as error:
        log.warning("the standard output can't be written: %s", error)
        # else the interpreter tries again at its end, and makes an exit status of 120 of it
        with contextlib.suppress(OSError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
