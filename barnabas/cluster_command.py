"""`barnabas cluster`: several brokers and a controller from one terminal, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from barnabas.child import BrokerError
from barnabas.cluster import Cluster

DEFAULT_PORT = 9092
STOPPED_BY = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C (SIGINT)", signal.SIGHUP: "SIGHUP"}


class _Asked(BaseException):
    """Somebody asked it to stop; the text says who."""


class _UsageError(Exception):
    """One line for the user."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message} (--help lists what there is)")


def main(arguments: Sequence[str]) -> int:
    """The exit status: 0 after a clean stop, 1 where a node couldn't start or failed, 2 for wrong use, of which a
    setting that no node takes is one."""
    try:
        cluster = _cluster(arguments)
    except (_UsageError, ValueError) as error:
        return _complain(str(error), 2)
    signals = _listen_to_signals()
    try:
        cluster.start()
        kept = "" if cluster.keeps_data else ", which goes at the end"
        _say(
            f"cluster of {len(cluster)} brokers started, connect to {cluster.bootstrap}; "
            f"data and logs in {cluster.data}{kept}"
        )
        reason = _wait(cluster, signals)
    except _Asked as asked:
        reason = str(asked)
        if not cluster.running:
            _say(f"stopped before it had started: {reason}")
            return 0
    except BrokerError as error:
        return _complain(_reason(error), 2 if error.exit_status == 2 else 1)
    except OSError as error:  # of its folders; what a node can't do, it says itself
        return _complain(f"the cluster can't be started: {error}", 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # who has asked once needs not ask again
    _say(f"stopping: {reason}")
    try:
        cluster.close()
    except BrokerError as error:
        return _complain(_reason(error), 1)
    _say("stopped")
    return 0


def _cluster(arguments: Sequence[str]) -> Cluster:
    """Raises _UsageError, and ValueError as `Cluster`."""
    parser = _Parser(
        prog="barnabas cluster",
        description="Several Kafka brokers and their controller, each a process, with ports one after the other.",
        epilog="Settings are Kafka's; internal topics have as many replicas as there are brokers, three at most.",
        allow_abbrev=False,
    )
    parser.add_argument("--brokers", type=int, default=3, metavar="N", help="how many (default: 3)")
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="folder for those of all nodes, which is kept (default: a temporary one)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help=f"of broker 1; the others have those that follow (default: {DEFAULT_PORT}), 0 for any that are free",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--racks", metavar="A,B", default="", help="broker.rack of the brokers, in turn")
    parser.add_argument(
        "-o",
        dest="override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one setting of all nodes, such as num.partitions=3; may be given several times",
    )
    parser.add_argument(
        "--release-version",
        metavar="RELEASE",
        help="the Kafka whose level a new cluster begins with, such as 4.3 or 4.3-IV0 (default: 4.4-IV2)",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    options = parser.parse_args(arguments)
    if not 0 <= options.port <= 65_535 - max(options.brokers - 1, 0):
        raise _UsageError(f"argument --port: {options.port} and those that follow are no ports (0 to 65535)")
    settings = {}
    for override in options.override:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise _UsageError(f"-o {override}: KEY=VALUE is the form")
        settings[name.strip()] = value
    return Cluster(
        options.brokers,
        racks=[rack for rack in options.racks.split(",") if rack],
        config=settings,
        data=options.data,
        host=options.host,
        port=options.port or None,
        kafka_version=options.release_version,
        log_level=options.log_level,
    )


def _listen_to_signals() -> set[signal.Signals]:
    """From now on each that is returned raises _Asked. What was ignored stays so, but for SIGTERM."""

    def ask(number: int, _: object) -> None:
        raise _Asked(STOPPED_BY[signal.Signals(number)])

    heard = {
        number
        for number in STOPPED_BY
        if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in heard:
        signal.signal(number, ask)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it can be waited for
    return heard


def _wait(cluster: Cluster, signals: set[signal.Signals]) -> str:
    """Returns, with the reason, once somebody asks for a stop, or a node has ended by itself. Raises _Asked, too."""
    waited_for = {*signals, signal.SIGCHLD}
    # Blocked, so that nothing is missed between a look at the nodes and the waiting.
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    while True:
        ended = [node for node in cluster.nodes if not node.running]
        if ended:
            return f"{ended[0]} has ended"
        number = signal.sigwait(waited_for)
        if number in signals:
            return STOPPED_BY[signal.Signals(number)]


def _reason(error: BrokerError) -> str:
    """In one line, where the node has said it in one."""
    said = [
        line.removeprefix("barnabas: ") for line in error.log.splitlines() if line.startswith("barnabas: ")
    ]
    return said[-1] if said else str(error)


def _complain(message: str, status: int) -> int:
    print(f"barnabas: {message}", file=sys.stderr)
    return status


def _say(event: str) -> None:
    """A line such as a broker's."""
    now_s = time.time()
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s))
    print(f"{when},{int(now_s * 1000) % 1000:03} INFO barnabas: {event}", flush=True)
