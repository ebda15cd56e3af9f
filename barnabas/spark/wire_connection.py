"""Connections to a cluster by kafka-python, repeated requests, and questions about transactions. Part of the adapter
(see `wire`).

If a broker goes away, kafka-python logs three errors about one loss, each time that it tries to connect another one,
and all of them again in each task. The sink itself says what the loss means for the batch. So kafka-python's warnings
count as DEBUG while it works for the sink. Its messages for other users in the same process stay as they are.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import kafka.errors
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from barnabas.spark.errors import (
    COORDINATOR_MOVES,
    LEADER_MOVES,
    TLS_HANDSHAKE_FAILED,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNSUPPORTED_VERSION,
    NoAnswerError,
    ResponseError,
)
from barnabas.spark.settings import check_bootstrap

log = logging.getLogger(__name__)


LIBRARY = "kafka"


class _Work(threading.local):
    """depth: the number of nested calls that this thread makes for the sink. A connection only works in its callers'
    threads."""

    depth = 0


_work = _Work()


@contextmanager
def quiet() -> Iterator[None]:
    """Surround calls into kafka-python."""
    _work.depth += 1
    try:
        yield
    finally:
        _work.depth -= 1


class _AsDebug(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not _work.depth or record.levelno < logging.WARNING:
            return True
        return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


_filter = _AsDebug()


def demote() -> None:
    """Add the filter to all loggers that the library has so far: a logger's filters don't apply to its children."""
    for name in list(logging.root.manager.loggerDict):
        if name == LIBRARY or name.startswith(LIBRARY + "."):
            logging.getLogger(name).addFilter(_filter)  # it is added once, however often this is called


# --- Connections --------------------------------------------------------------------------------------------


RETRY_S = 0.02
LOOKED_FOR_MS = 1000
FIRST_CONTACT_MS = 10_000
"""How long to try a broker that was never reached. A restarting broker is back within this time."""
CLIENT_ID = "barnabas-spark"
GROUP, TRANSACTION = 0, 1  # types of coordinators
# Errors that another try with the same settings won't change. Other errors are lost or failed connections.
REFUSALS = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
    kafka.errors.IllegalSaslStateError,
    kafka.errors.AuthorizationError,
)

# The settings of `Connection`, and all that kafka-python knows: it ignores unknown ones.
OWN_SETTINGS = {
    "bootstrap_servers",
    "client_id",
    "request_timeout_ms",
    "reconnect_backoff_max_ms",
    "receive_message_max_bytes",
}
SETTINGS = {
    *KafkaConnectionManager.DEFAULT_CONFIG,
    *NetworkSelector.DEFAULT_CONFIG,
    "socks5_proxy",
} - OWN_SETTINGS
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

T = TypeVar("T")


def check_client(settings: Mapping[str, Any]) -> None:
    """Raise ValueError for settings that kafka-python doesn't know, or that this package sets itself."""
    if taken := sorted(settings.keys() & OWN_SETTINGS):
        raise ValueError(f"client sets {', '.join(taken)}, which barnabas.spark sets itself")
    if unknown := sorted(settings.keys() - SETTINGS):
        raise ValueError(
            f"client sets {', '.join(unknown)}, which kafka-python's client doesn't know; its security settings are "
            + ", ".join(sorted(name for name in SETTINGS if name.startswith(("security_", "ssl_", "sasl_"))))
        )
    # kafka-python talks plain text under any other name.
    if (protocol := settings.get("security_protocol", PROTOCOLS[0])) not in PROTOCOLS:
        raise ValueError(f"security_protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")


class Connection:
    """Connections to the brokers of one cluster, for the requests of `Wire`. Raises ResponseError, NoAnswerError, and
    ValueError for senseless settings.

    client_id: its name for a broker's quotas and request log.
    """

    def __init__(
        self, bootstrap: str, client: Mapping[str, Any], timeout_ms: int, client_id: str = CLIENT_ID
    ) -> None:
        check_client(client)
        check_bootstrap(bootstrap)
        demote()
        self.bootstrap = bootstrap
        self.timeout_ms = timeout_ms
        servers = [server.strip() for server in bootstrap.split(",")]
        # The longest wait between two connection attempts limits how late a broker's return is noticed.
        self._client = KafkaNetClient(
            bootstrap_servers=servers,
            client_id=client_id,
            request_timeout_ms=timeout_ms,
            reconnect_backoff_max_ms=500,
            receive_message_max_bytes=64 << 20,
            **client,
        )
        self._manager = self._client._manager
        self._end = weakref.finalize(self, _close, self._client)
        self._coordinators: dict[tuple[int, str], int] = {}
        self._failures = _watched(self._manager)
        self._is_lost = False
        self._has_met = False

    def close(self) -> None:
        self._end()

    def _repeat(self, attempt: Callable[[], T], codes: set[int], *, unanswered: bool = True) -> T:
        """Return what the attempt returns. Repeats it on these error codes, and by default if no answer came."""
        deadline_s = time.monotonic() + self.timeout_ms / 1000
        while True:
            try:
                self.connect(deadline_s)
                answer = attempt()
                self._is_lost = False
                return answer
            except ResponseError as error:
                if error.code not in codes or time.monotonic() > deadline_s:
                    raise
                if error.code in COORDINATOR_MOVES:
                    self._coordinators.clear()
            except NoAnswerError as error:
                self._coordinators.clear()
                if not unanswered or time.monotonic() > deadline_s:
                    raise
                self._say_lost(error, self.timeout_ms / 1000)
            time.sleep(RETRY_S)

    def _say_lost(self, why: Exception, patience_s: float) -> None:
        """Log the loss in one line, once until somebody answers again."""
        if not self._is_lost:
            log.warning(
                "a broker of %s doesn't answer; retrying for up to %g s: %s",
                self.bootstrap, patience_s, why,
            )  # fmt: skip
        self._is_lost = True

    def _poll(self, timeout_ms: float, future: Any = None) -> None:
        """Let kafka-python work until anything happens, or the future is done."""
        with quiet():
            self._client._net.poll(timeout_ms=timeout_ms, future=future)

    def meet(self) -> None:
        """Connect for the first time, within `FIRST_CONTACT_MS`."""
        if not self._has_met:
            self.connect(time.monotonic() + min(self.timeout_ms, FIRST_CONTACT_MS) / 1000)
        self._has_met = True

    def connect(self, deadline_s: float | None = None) -> None:
        """Find the cluster's brokers if they aren't known."""
        if deadline_s is None:
            deadline_s = time.monotonic() + self.timeout_ms / 1000
        if not self._manager.bootstrapped:
            self._bootstrap(deadline_s)
        # This notices a connection that ended while nobody looked, before the next request.
        self._poll(0)

    def _bootstrap(self, deadline_s: float) -> None:
        self._failures.clear()
        patience_s = round(_remaining_ms(deadline_s) / 1000, 1)
        future = self._manager.bootstrap_async(max(1.0, _remaining_ms(deadline_s)))
        while not future.is_done:
            self._poll(max(RETRY_S * 1000, _remaining_ms(deadline_s)))
            # kafka-python would go on trying until the time is up.
            if (refusal := _refusal(self._failures[0] if self._failures else None)) is not None:
                raise refusal from self._failures.pop()
            if self._failures:
                self._say_lost(self._failures[0], patience_s)
        if self._failures and isinstance(future.exception, kafka.errors.KafkaTimeoutError):
            raise NoAnswerError(f"{future.exception}: {self._failures.pop()}") from future.exception
        with _translated():
            if future.exception is not None:
                raise future.exception

    def _ask_coordinator(self, kind: int, key: str, request: Any) -> Any:
        node = self._coordinators.get((kind, key))
        if node is None:
            find = FindCoordinatorRequest(key=key, key_type=kind, max_version=3)
            answer = self._finish(self._begin(self.any_node(), find))
            check(answer.error_code, f"FindCoordinator of {key}")
            node = self._coordinators[kind, key] = answer.node_id
        return self._finish(self._begin(node, request))

    def any_node(self) -> int:
        """Return a broker that can be reached."""
        deadline_s = time.monotonic() + self.timeout_ms / 1000
        while (node := self._manager.least_loaded_node()) is None and any(
            map(self._is_paused, list(self._manager._conns))
        ):
            self._wait(deadline_s, "every broker")
        if node is None:
            raise NoAnswerError("no broker can be reached")
        return int(node)

    def _controller(self) -> int:
        controller = self._manager.cluster.controller
        return self.any_node() if controller is None else int(controller.node_id)

    def _begin(self, node: int, request: Any) -> Any:
        """Send the request, as soon as a throttling broker takes requests again."""
        deadline_s = time.monotonic() + self.timeout_ms / 1000
        while self._is_paused(node):
            self._wait(deadline_s, f"the broker {node}")
        self._look_for(node)
        with _translated(), quiet():
            return self._manager.send(request, node_id=node)

    def _look_for(self, node: int) -> None:
        """Make kafka-python look for a broker that was away when it last looked. By itself it looks every five
        minutes."""
        cluster = self._manager.cluster
        if cluster.broker_metadata(node) is None:
            self._poll(LOOKED_FOR_MS, cluster.request_update())

    def _is_paused(self, node: int) -> bool:
        """Return True if kafka-python would fail a request to it at once: after an answer with a throttle time,
        until that has passed, and while much is in flight.
        """
        connection = self._manager._conns.get(node)
        return connection is not None and connection.connected and bool(connection.paused)

    def _wait(self, deadline_s: float, whose: str) -> None:
        """Wait until anything happens: an answer, or one of kafka-python's timers."""
        if time.monotonic() > deadline_s:
            raise NoAnswerError(f"{whose} throttles this client for longer than {self.timeout_ms} ms")
        self._poll(max(0.0, _remaining_ms(deadline_s)))

    def _finish(self, future: Any) -> Any:
        # The connection has its own timer for each request, which fails the request's future.
        self._poll(self.timeout_ms + 1000, future)
        if not future.is_done:
            raise NoAnswerError(f"no answer within {self.timeout_ms} ms")
        with _translated():
            if future.exception is not None:
                raise future.exception
        return future.value


def _close(client: KafkaNetClient) -> None:
    with quiet():
        client.close()


class _translated:  # noqa: N801 - reads as a verb where it is used
    """Turns kafka-python's errors into NoAnswerError, or into ResponseError if the broker is too old or
    rejects this client.
    """

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, kafka.errors.UnsupportedVersionError):
            raise ResponseError(UNSUPPORTED_VERSION, "UnsupportedVersion", str(error)) from error
        refusal = _refusal(error)
        if refusal is not None:
            raise refusal from error
        if isinstance(error, kafka.errors.KafkaError):
            raise NoAnswerError(str(error) or type(error).__name__) from error


def _watched(manager: Any) -> deque[Exception]:
    """Return a deque that will hold why the last connection failed: kafka-python's bootstrap keeps that to itself."""
    failures: deque[Exception] = deque(maxlen=1)
    make = manager.get_connection

    def get_connection(*arguments: Any, **options: Any) -> Any:
        connection = make(*arguments, **options)
        connection.init_future.add_errback(failures.append)
        return connection

    manager.get_connection = get_connection
    return failures


def _refusal(error: BaseException | None) -> ResponseError | None:
    """Return the error if waiting won't help: wrong credentials of the client, or a wrong certificate on either
    side."""
    if isinstance(error, REFUSALS):
        return ResponseError(
            error.errno, type(error).__name__.removesuffix("Error"), f"authentication: {error}"
        )
    reason = None if error is None else error.__context__
    # The other side may have gone away during the handshake.
    if isinstance(reason, ssl.SSLError) and not isinstance(reason, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return ResponseError(TLS_HANDSHAKE_FAILED, "SslAuthentication", f"TLS: {error}")
    return None


def _remaining_ms(deadline_s: float) -> float:
    return (deadline_s - time.monotonic()) * 1000


def check(code: int, what: str) -> None:
    """Raise ResponseError for an error code."""
    if code:
        name = kafka.errors.for_code(code).__name__.removesuffix("Error")
        raise ResponseError(code, name, what)


# --- The cluster's knowledge of transactions, and markers from outside of the coordinator -------------------

Leaders = Mapping[str, Mapping[int, int]]
"""Topic → partition → node id of its leader."""


class DescribedTransaction(NamedTuple):
    """A transactional id according to its coordinator. `state` is Kafka's name ("Ongoing", "CompleteCommit", …)."""

    state: str
    producer_id: int
    epoch: int


class OpenTransaction(NamedTuple):
    """A transaction without a marker, according to the partition that holds it.

    coordinator_epoch: that of the producer's last marker there, -1 before the first.
    last_sequence: that of the producer's records there, from 0 on in each epoch.
    """

    topic: str
    partition: int
    leader: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start_offset: int
    last_sequence: int


class TransactionConnection(Connection):
    """Questions about transactions. Raises ResponseError and NoAnswerError."""

    def describe_transaction(self, transactional_id: str) -> DescribedTransaction | None:
        """Return None for an unknown id."""

        def attempt() -> DescribedTransaction | None:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id], max_version=0)
            (one,) = self._ask_coordinator(TRANSACTION, transactional_id, request).transaction_states
            if one.error_code == TRANSACTIONAL_ID_NOT_FOUND:
                return None
            check(one.error_code, f"DescribeTransactions of {transactional_id}")
            return DescribedTransaction(one.transaction_state, one.producer_id, one.producer_epoch)

        return self._repeat(attempt, COORDINATOR_MOVES)

    def open_transactions(self, leaders: Callable[[], Leaders]) -> list[OpenTransaction]:
        """Return the open transactions of all producers in these partitions (DescribeProducers), by one request per
        leader."""
        return self._repeat(lambda: self._open_transactions(leaders()), LEADER_MOVES)

    def _open_transactions(self, leaders: Leaders) -> list[OpenTransaction]:
        shape = DescribeProducersRequest.TopicRequest
        sent = []
        for leader, topics in _by_leader(leaders).items():
            asked = [shape(name=topic, partition_indexes=numbers) for topic, numbers in topics.items()]
            request = DescribeProducersRequest(topics=asked, max_version=0)
            sent.append((leader, self._begin(leader, request)))
        found = []
        for leader, future in sent:
            for topic in self._finish(future).topics:
                for partition in topic.partitions:
                    check(
                        partition.error_code, f"DescribeProducers of {topic.name}-{partition.partition_index}"
                    )
                    found += [
                        OpenTransaction(
                            topic.name,
                            partition.partition_index,
                            leader,
                            one.producer_id,
                            one.producer_epoch,
                            one.coordinator_epoch,
                            one.current_txn_start_offset,
                            one.last_sequence,
                        )
                        for one in partition.active_producers
                        if one.current_txn_start_offset >= 0
                    ]
        return found

    def write_markers(self, transactions: Iterable[OpenTransaction], *, commit: bool) -> None:
        """End the transactions directly in their partitions, as `kafka-transactions.sh abort` does."""
        shape = WriteTxnMarkersRequest.WritableTxnMarker
        for one in transactions:
            marker = shape(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                transaction_result=commit,
                topics=[shape.WritableTxnMarkerTopic(name=one.topic, partition_indexes=[one.partition])],
                coordinator_epoch=max(0, one.coordinator_epoch),
            )
            request = WriteTxnMarkersRequest(markers=[marker], max_version=1)
            (result,) = self._finish(self._begin(one.leader, request)).markers
            (topic,) = result.topics
            (partition,) = topic.partitions
            check(partition.error_code, f"WriteTxnMarkers of {one.topic}-{one.partition}")


def _by_leader(leaders: Leaders) -> dict[int, dict[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, partitions in leaders.items():
        for partition, leader in partitions.items():
            found[leader][topic].append(partition)
    return found
