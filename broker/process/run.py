"""One broker in this process: from its options to its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.config.definitions import StartError
from broker.environment.environment import Environment
from broker.environment.threads import SWITCH_INTERVAL_S
from broker.fault_handler import either
from broker.process.log_stream import FORMATTERS, LogStream
from broker.process.printable import printable
from broker.server import Server
from broker.starting import raise_limit, start
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.config.given_settings import FirstTopic
    from broker.process.command_line import LogOptions, Options
    from broker.process.control import Control, ParentTie
    from broker.process.renewal import Renewal
    from broker.quorum.controller_server import ControllerNode


log = logging.getLogger("barnabas")

READY = "READY=1"
STOPPING = "STOPPING=1"


PATIENCE_S = 1.0
"""How long a message waits for a service manager that doesn't read it: the loop stands still meanwhile."""


def notify(environ: Mapping[str, str], *lines: str) -> None:
    """Notify the service manager that started this process, if one did. See sd_notify(3).

    A name that begins with @ is an abstract one."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
            manager.settimeout(PATIENCE_S)
            manager.connect(address)
            manager.sendall("\n".join(lines).encode())
    except OSError as error:
        log.warning("the service manager can't be told %s: %s", lines[0], error)


# --- A run --------------------------------------------------------------------------------------------------


_STANDARD_ERROR = 2

GARBAGE_THRESHOLDS = (10_000, 2, 4_000)
"""The thresholds of Python's cycle collector. It stops the world to go over all young objects, or, for the oldest
generation, over all objects. With Python's own thresholds that happens a few times while one large request is read, for
some tenths of a second each.

Objects that have outlived one collection are gone over every third time, when they are 30,000: with Python's threshold
there were 110,000, which took 20 ms and more. Old objects are hardly ever gone over. So nothing that comes and goes may
be in a cycle: neither connections nor requests nor topics."""

RENEWALS_PER_COLLECTION = 50
"""How often a test's node begins anew before the collector looks for what earlier nodes left, at some 20 ms each."""

STOPPING_SWITCH_INTERVAL_S = 0.1
"""At a stop no client is served any more, and the threads that sync release the interpreter at each call to the disk.
Asking them for it at shorter intervals takes a tenth of the stop."""


def run(options: Options) -> int:
    """Run until a signal, the parent's end or a failure. Returns the exit status."""
    _hold_standard_descriptors()
    _log_to_standard_error(options.log)
    for warning in options.config.warnings:
        log.warning("%s", warning)
    parent = None
    if options.control_fd is not None:
        from broker.process.control import ParentTie

        parent = ParentTie(options.control_fd)
    try:
        if options.only_checks:
            return 0
        raise_limit()
        try:
            import uvloop
        except ImportError:
            return asyncio.run(_run(options, parent))
        return uvloop.run(_run(options, parent))
    except StartError as error:
        print(f"barnabas: {printable(str(error))}", file=sys.stderr)
        return error.exit_status
    finally:
        # A parent that is alive may start a broker there again; else the parent removes the folder.
        if options.temporary and (parent is None or parent.gone):
            import shutil  # imported here: it loads compression modules, and nothing else in a broker needs it

            for path in [*options.config.log_dirs, *options.temporary_root]:
                shutil.rmtree(path, ignore_errors=True)
        if parent is not None:
            parent.close()


async def _run(options: Options, parent: ParentTie | None) -> int:
    """Run nodes until the end. Returns the exit status. Raises StartError."""
    asked_to_stop = _Asked(asyncio.get_running_loop())
    environment = Environment.of_this_machine()
    control = None
    if parent is not None or options.config.control_listener:
        environment, control = await _under_control(options, environment, parent, asked_to_stop)
    # With a parent, the service manager in the environment is the parent's, so the broker doesn't notify it.
    manager = os.environ if parent is None else {}
    ready = partial(_tell_ready, parent)
    renewals = 0
    while True:
        server = await _started(options, environment, asked_to_stop)
        if server is None:
            _say(options, f"stopped before it had started: {asked_to_stop.reason}")
            return 0
        if control is not None:
            control.began(server)
        gc.freeze()  # objects that a start makes live as long as the node
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        gc.enable()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        renewal = None
        try:
            async with _first_topics(server, options.topics, asked_to_stop):
                await _serve(server, options, ready, asked_to_stop, manager)
        finally:
            renewal = asked_to_stop.taken_renewal()
            why = "to begin anew" if renewal is not None else asked_to_stop.reason or "it failed"
            _say(options, f"stopping: {why}")
            notify(manager, STOPPING)
            sys.setswitchinterval(STOPPING_SWITCH_INTERVAL_S)
            if renewal is None:
                await server.stop(leave=asked_to_stop.leaves)
            else:
                assert isinstance(server, Server)
                await server.stop(leave=False, keeps=False)
        if renewal is None or server.failure is not None:
            break
        assert control is not None
        _clear(options, control, server.cluster_id, renewal)
        environment = environment.with_threads_of(control.time)
        ready = partial(_tell_renewed, renewal)
        del server
        gc.unfreeze()  # the ended node is garbage in cycles, some 60 KB
        renewals += 1
        if renewals % RENEWALS_PER_COLLECTION == 0:
            gc.collect()
    if server.failure is None:
        _say(options, "stopped")
        return 0
    _say(
        options,
        f"stopped, but not cleanly, so that the next start checks the data: {_text_of(server.failure)}",
    )
    return 1


def _clear(options: Options, control: Control, cluster_id: str, renewal: Renewal) -> None:
    """Prepare the folder, the settings and the time for the next node in this process."""
    from broker.process.renewal import begin_anew

    begin_anew(options.config, cluster_id, renewal.copy)
    control.time.reset()


async def _under_control(
    options: Options, environment: Environment, parent: ParentTie | None, asked_to_stop: _Asked
) -> tuple[Environment, Control]:
    """Answer questions of the parent, and of clients of the control listener, and stop when the parent ends.

    Raises StartError if the listener isn't possible."""
    from broker.environment.movable_time import MovableTime
    from broker.process.control import Control

    moved = MovableTime()
    environment = replace(environment, clock=moved, scheduler=moved).with_threads_of(moved)
    network = None
    if options.config.joins:
        # Imported here, so that no other start waits for it.
        from broker.environment.cut_network import CuttableNetwork

        network = CuttableNetwork(environment.network, environment.scheduler)
        environment = replace(environment, network=network)

    def gone() -> None:
        # The end of the parent ends a whole cluster: no node is left to take over, or to decide that.
        asked_to_stop.by("the program that started it has ended", leaves=False)

    def stop(leaves: bool) -> None:
        asked_to_stop.by("the program that started it asks for it", leaves=leaves)

    tell = (lambda line: None) if parent is None else parent.tell
    control = Control(tell, stop, asked_to_stop.begin_anew, moved, network)
    if parent is not None:
        control.serve = _own_listener(control, environment)
        parent.watch(gone, control.asked)
    if options.config.control_listener:
        from broker.process.control_listener import control_listener_of

        await control_listener_of(options.config, control, environment).listen()
    return environment, control


def _own_listener(control: Control, environment: Environment) -> Callable[[str], Later[Any]]:
    """A function that opens the parent's own listener at its first call, so that no start waits for it."""
    opened: dict[str, Any] = {}
    opening: list[asyncio.Future[None]] = []

    def serve(token: str) -> Later[int]:
        listening: Later[Any] = Later()
        if token in opened:
            listening.reply(opened[token])
            return listening
        from broker.process.control_listener import OWN_HOST, own_control_listener

        server = own_control_listener(token, control, environment)

        async def listen() -> None:
            await server.listen()
            opened[token] = {"host": OWN_HOST, "port": server.port}
            listening.reply(opened[token])

        opening.append(asyncio.ensure_future(listen()))
        return listening

    return serve


async def _start(options: Options, environment: Environment) -> Server | ControllerNode:
    if options.config.is_only_controller:
        # Imported here, so that no broker's start waits for it.
        from broker.starting import start_controller

        return await start_controller(options.config, environment)
    return await start(options.config, environment)


async def _started(
    options: Options, environment: Environment, asked_to_stop: _Asked
) -> Server | ControllerNode | None:
    """Start the node. Returns None if it is asked to stop meanwhile: a broker that joins a cluster may wait long for
    its controller. Raises StartError."""
    starting = asyncio.ensure_future(_start(options, environment))
    asked = asyncio.ensure_future(asked_to_stop.event.wait())
    await asyncio.wait([starting, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await starting
    return None


class _Asked:
    """Whether and why the broker is asked to stop: by a signal, or by the parent.

    A signal that was ignored when the process started stays ignored, as in the JVM: `nohup` ignores SIGHUP, and a shell
    ignores SIGINT for background jobs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reason = ""
        self.leaves = True
        """True if other nodes are to take over its partitions before it stops."""
        self.event = asyncio.Event()
        self.renewal: Renewal | None = None
        for number, name in (
            (signal.SIGTERM, "SIGTERM"),
            (signal.SIGINT, "Ctrl-C (SIGINT)"),
            (signal.SIGHUP, "SIGHUP"),
        ):
            if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self.by, name)

    def by(self, reason: str, *, leaves: bool = True) -> None:
        if not self.reason:
            self.reason, self.leaves = reason, leaves
        self.event.set()

    def begin_anew(self, renewal: Renewal) -> None:
        """Stop the node, and have another one take its place in this process."""
        self.renewal = renewal
        self.event.set()

    def taken_renewal(self) -> Renewal | None:
        """The renewal, if that is why the node stops. A request to stop for good takes precedence."""
        renewal, self.renewal = self.renewal, None
        if renewal is None or self.reason:
            return None
        self.event.clear()
        return renewal


@contextlib.asynccontextmanager
async def _first_topics(
    server: Server | ControllerNode, topics: Sequence[FirstTopic], asked_to_stop: _Asked
) -> AsyncIterator[None]:
    """Try to create the topics before the node reports that it has started."""
    if not topics:
        yield
        return
    from broker.process.first_topics import create_first_topics

    assert isinstance(server, Server)
    tried = asyncio.Event()
    creating = asyncio.ensure_future(create_first_topics(server, topics, tried))
    try:
        await either(tried, server.stopped, asked_to_stop.event)
        yield
    finally:
        creating.cancel()


async def _serve(
    server: Server | ControllerNode,
    options: Options,
    ready: Callable[[str, Mapping[str, str]], None],
    asked_to_stop: _Asked,
    manager: Mapping[str, str],
) -> None:
    """Report the server's addresses, and wait for a signal, the parent's end or a failure."""
    endpoints = {endpoint.name: endpoint.text for endpoint in server.endpoints}
    ready(server.bootstrap, endpoints)
    # Testcontainers waits for "[KafkaServer id=N] started".
    whose = "brokers connect to" if options.config.is_only_controller else "connect to"
    where = f"{whose} {', '.join(endpoints.values())}"
    watched = "" if server.metrics is None else f"; metrics at http://{server.metrics.address}/metrics"
    folder = ", ".join(options.config.log_dirs)
    _say(options, f"[KafkaServer id={server.node_id}] started, {where}{watched}; data in {folder}")
    notify(manager, READY, printable(f"STATUS={where}"))
    console = None
    if options.console is not None:
        # Imported here, so that it costs nothing if it isn't wanted.
        from broker.process.console_process import start_console

        console = start_console(server, options.console)
    try:
        await either(server.stopped, asked_to_stop.event)
    finally:
        if console is not None:
            console.end()


def _tell_ready(parent: ParentTie | None, bootstrap: str, listeners: Mapping[str, str]) -> None:
    if parent is not None:
        parent.tell_ready(bootstrap, listeners)


def _tell_renewed(renewal: Renewal, bootstrap: str, listeners: Mapping[str, str]) -> None:
    renewal.told({"bootstrap": bootstrap, "listeners": dict(listeners)})


def _hold_standard_descriptors() -> None:
    """If the starting program has closed a standard stream, nothing else may get its descriptor: not a log's file,
    which would be written to by mistake, nor the loop's, since libuv ends the process when that is closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _log_to_standard_error(options: LogOptions) -> None:
    stream = LogStream(_STANDARD_ERROR, getattr(sys.stderr, "encoding", None) or "utf-8")
    handler = _LogHandler(stream)
    handler.setFormatter(FORMATTERS[options.format]())
    logging.basicConfig(level=options.level.upper(), handlers=[handler])


class _LogHandler(logging.StreamHandler[LogStream]):
    def close(self) -> None:
        """Called by `logging.shutdown`, however the process ends."""
        self.stream.end()
        super().close()


def _text_of(failure: BaseException) -> str:
    return str(failure) or type(failure).__name__


def _say(options: Options, event: str) -> None:
    """Write a line in the log's format to the standard output, whatever the log's level.

    The output may be closed or full, or unable to encode a folder's name. That is no reason to end."""
    record = logging.LogRecord("barnabas", logging.INFO, "", 0, event, None, None)
    line = FORMATTERS[options.log.format]().format(record)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except OSError as error:
        log.warning("the standard output can't be written: %s", error)
        # Else the interpreter tries again at its end, fails, and exits with status 120.
        with contextlib.suppress(OSError, AttributeError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
