"""One broker in this process: from its options to its end."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
from typing import TYPE_CHECKING

from broker.server import Server
from broker.start_error import StartError

if TYPE_CHECKING:
    from broker.command_line import Options
    from broker.parent import ParentTie

log = logging.getLogger("barnabas")


def run(options: Options) -> int:
    """Run until a signal, the parent's end or a failure; the exit status."""
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for warning in options.config.warnings:
        log.warning("%s", warning)
    parent = None
    if options.control_fd is not None:
        from broker.parent import ParentTie

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
            for path in options.config.log_dirs:
                shutil.rmtree(path, ignore_errors=True)
        if parent is not None:
            parent.close()


async def _run(options: Options, parent: ParentTie | None) -> int:
    loop = asyncio.get_running_loop()
    server = Server(options.config)
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    if parent is not None:
        parent.watch(asked_to_stop.set)
    try:
        await server.start()
    except StartError as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return 1
    endpoints = {name: listener.address for name, listener in server.listeners.items()}
    if parent is not None:
        parent.tell_ready(server.bootstrap, endpoints)
    # Testcontainers waits for "[KafkaServer id=N] started".
    where = ", ".join(endpoints.values())
    folder = ", ".join(options.config.log_dirs)
    print(
        f"barnabas: [KafkaServer id={server.node_id}] started, connect to {where}; data in {folder}",
        flush=True,
    )
    failed = asyncio.ensure_future(server.stopped.wait())
    asked = asyncio.ensure_future(asked_to_stop.wait())
    await asyncio.wait([failed, asked], return_when=asyncio.FIRST_COMPLETED)
    for waiter in (failed, asked):
        waiter.cancel()
    await server.stop()
    return 1 if server.failure is not None else 0
