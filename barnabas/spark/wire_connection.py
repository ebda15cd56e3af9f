"""Connections to a cluster by kafka-python, and requests that are repeated. Part of the adapter (see `wire`)."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import kafka.errors
from kafka.net.compat import KafkaNetClient
from kafka.protocol.metadata import FindCoordinatorRequest

from barnabas.spark.codes import COORDINATOR_MOVES, UNSUPPORTED_VERSION, NoAnswerError, ResponseError

RETRY_S = 0.02
CLIENT_ID = "barnabas-spark"
GROUP, TRANSACTION = 0, 1  # kinds of coordinator

T = TypeVar("T")


class Connection:
    """To the brokers of one cluster: what `Wire` makes its requests with. Raises ResponseError and NoAnswerError."""

    def __init__(self, bootstrap: str, client: Mapping[str, Any], timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        servers = [server.strip() for server in bootstrap.split(",")]
        # The longest wait between two tries to connect bounds how late a broker's return is noticed.
        self._client = KafkaNetClient(
            bootstrap_servers=servers,
            client_id=CLIENT_ID,
            request_timeout_ms=timeout_ms,
            reconnect_backoff_max_ms=500,
            receive_message_max_bytes=64 << 20,
            **client,
        )
        self._manager = self._client._manager
        self._end = weakref.finalize(self, self._client.close)
        self._coordinators: dict[tuple[int, str], int] = {}

    def close(self) -> None:
        self._end()

    def _repeat(self, attempt: Callable[[], T], codes: set[int], *, unanswered: bool = True) -> T:
        """What the attempt gives, repeated on these error codes, and where no answer came unless told."""
        deadline_s = time.monotonic() + self.timeout_ms / 1000
        while True:
            try:
                self.connect(deadline_s)
                return attempt()
            except ResponseError as error:
                if error.code not in codes or time.monotonic() > deadline_s:
                    raise
                if error.code in COORDINATOR_MOVES:
                    self._coordinators.clear()
            except NoAnswerError:
                self._coordinators.clear()
                if not unanswered or time.monotonic() > deadline_s:
                    raise
            time.sleep(RETRY_S)

    def connect(self, deadline_s: float | None = None) -> None:
        """Find the cluster's brokers, if they aren't known."""
        if deadline_s is None:
            deadline_s = time.monotonic() + self.timeout_ms / 1000
        if not self._manager.bootstrapped:
            remaining_ms = max(1.0, (deadline_s - time.monotonic()) * 1000)
            with _translated():
                self._manager.bootstrap(remaining_ms)
        # A connection that ended while nobody looked is noticed here, ahead of the next request.
        self._client._net.poll(timeout_ms=0)

    def _ask_coordinator(self, kind: int, key: str, request: Any) -> Any:
        node = self._coordinators.get((kind, key))
        if node is None:
            find = FindCoordinatorRequest(key=key, key_type=kind, max_version=3)
            answer = self._finish(self._begin(self.any_node(), find))
            check(answer.error_code, f"FindCoordinator of {key}")
            node = self._coordinators[kind, key] = answer.node_id
        return self._finish(self._begin(node, request))

    def any_node(self) -> int:
        """A broker that can be reached."""
        node = self._manager.least_loaded_node()
        if node is None:
            raise NoAnswerError("no broker can be reached")
        return int(node)

    def _controller(self) -> int:
        controller = self._manager.cluster.controller
        return self.any_node() if controller is None else int(controller.node_id)

    def _begin(self, node: int, request: Any) -> Any:
        with _translated():
            return self._manager.send(request, node_id=node)

    def _finish(self, future: Any) -> Any:
        # The connection has a timer of its own for each request, and fails its future.
        self._client._net.poll(timeout_ms=self.timeout_ms + 1000, future=future)
        if not future.is_done:
            raise NoAnswerError(f"no answer in {self.timeout_ms} ms")
        with _translated():
            if future.exception is not None:
                raise future.exception
        return future.value


class _translated:  # noqa: N801 - reads as a verb where it is used
    """Turns kafka-python's errors into NoAnswerError: no answer came. ResponseError where the broker is too old."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, kafka.errors.UnsupportedVersionError):
            raise ResponseError(UNSUPPORTED_VERSION, "UnsupportedVersion", str(error)) from error
        if isinstance(error, kafka.errors.KafkaError):
            raise NoAnswerError(str(error) or type(error).__name__) from error


def check(code: int, what: str) -> None:
    """Raises ResponseError for an error code."""
    if code:
        name = kafka.errors.for_code(code).__name__.removesuffix("Error")
        raise ResponseError(code, name, what)
