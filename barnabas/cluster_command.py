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
    """Somebody asked the command to stop. The text says who."""


class _UsageError(Exception):
    """Wrong use. The text is one line for the user."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{message} (--help lists what there is)")


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit status: 0 after a clean stop, 1 if a node couldn't start or failed, 2 for
    wrong use, such as a setting that no node accepts."""
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
    except OSError as error:  # about its folders; a node reports its own failures itself
        return _complain(f"the cluster can't be started: {error}", 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # one request to stop is enough
    _say(f"stopping: {reason}")
    try:
        cluster.close()
    except BrokerError as error:
        return _complain(_reason(error), 1)
    _say("stopped")
    return 0


def _cluster(arguments: Sequence[str]) -> Cluster:
    """Make the cluster that the arguments describe. Raises _UsageError, and ValueError as `Cluster` does."""
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
        help="folder for the folders of all nodes; it is kept (default: a temporary one)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help=f"port of broker 1; the other brokers get the next ones (default: {DEFAULT_PORT}), 0 for free ones",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--racks", metavar="A,B", default="", help="racks of the brokers (broker.rack), in turn"
    )
    parser.add_argument(
        "-o",
        dest="override",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting for all nodes, such as num.partitions=3; may be repeated",
    )
    parser.add_argument(
        "--release-version",
        metavar="RELEASE",
        help="metadata.version of a new cluster, or a Kafka version, such as 4.3-IV0 or 4.3 (default: 4.4-IV2)",
    )
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    options = parser.parse_args(arguments)
    if not 0 <= options.port <= 65_535 - max(options.brokers - 1, 0):
        raise _UsageError(f"argument --port: {options.port} and the next ones aren't all ports (0 to 65535)")
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
    """Return the signals that raise _Asked from now on. Ignored signals stay ignored, except SIGTERM."""

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
    """Wait until somebody asks for a stop or a node has ended by itself, and return the reason. Raises _Asked, too."""
    waited_for = {*signals, signal.SIGCHLD}
    # Block the signals, so that none is missed between the look at the nodes and the waiting.
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    while True:
        ended = [node for node in cluster.nodes if not node.running]
        if ended:
            return f"{ended[0]} has ended"
        number = signal.sigwait(waited_for)
        if number in signals:
            return STOPPED_BY[signal.Signals(number)]


def _reason(error: BrokerError) -> str:
    """Return the reason in one line if the node printed it in one."""
    said = [
        line.removeprefix("barnabas: ") for line in error.log.splitlines() if line.startswith("barnabas: ")
    ]
    return said[-1] if said else str(error)


def _complain(message: str, status: int) -> int:
    print(f"barnabas: {message}", file=sys.stderr)
    return status


def _say(event: str) -> None:
    """Print a line in the format of a broker's log."""
    now_s = time.time()
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now_s))
    print(f"{when},{int(now_s * 1000) % 1000:03} INFO barnabas: {event}", flush=True)
