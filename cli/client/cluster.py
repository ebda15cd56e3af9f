"""A Kafka for the commands: its brokers, leaders and coordinators, and questions to each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from cli.client.answers import check
from cli.client.connection import Connection
from cli.client.own_settings import check_names
from cli.errors import UNREACHABLE, CommandError, CommandUsageError
from cli.options import BOOTSTRAP
from protocol.errors import Error
from protocol.messages.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from protocol.wire.schema import Message

R = TypeVar("R", bound=Message)
R2 = TypeVar("R2")

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Types of coordinators, by FindCoordinator's key type."""
PASSING: Final = {
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.LEADER_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.FENCED_LEADER_EPOCH,
    Error.UNKNOWN_LEADER_EPOCH,
    Error.CONCURRENT_TRANSACTIONS,
    Error.REQUEST_TIMED_OUT,
    Error.NETWORK_EXCEPTION,
}
"""Errors that pass soon: asking again gets an answer."""
PATIENCE_S: Final = 30.0
PAUSE_S: Final = 0.1


class BrokerLostError(CommandError):
    """A broker that is still in the metadata doesn't answer, or doesn't answer any more. The cluster will find out, and
    other brokers take over what it led and coordinated."""

    def __init__(self, why: CommandError) -> None:
        super().__init__(str(why), UNREACHABLE)


class KafkaCluster:
    """Makes connections when they are needed, and keeps them. Every method raises CommandError."""

    def __init__(self, settings: Mapping[str, str], *, patience_s: float | None = None) -> None:
        check_names(settings)
        self._settings = settings
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._connections: dict[int, Connection] = {}
        self._any: Connection | None = None
        self.brokers: dict[int, MetadataResponseBroker] = {}

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in [*self._connections.values(), *([self._any] if self._any else [])]:
            connection.close()

    def ask(
        self, request: Message, response: type[R], node: int | None = None, *, at_most: int | None = None
    ) -> R:
        """Return the answer of the node, or of any broker. Errors in it are the caller's business. `at_most` is the
        last usable version, for example of an API whose next version names topics by id."""
        connection = self._connection(node)
        version = connection.version_of(type(request))
        try:
            return connection.ask(request, response, version if at_most is None else min(version, at_most))
        except CommandError as error:
            if error.status != UNREACHABLE:
                raise
            self._forget(connection)
            raise BrokerLostError(error) from None

    def ask_all(self, request: Message, response: type[R], error_of: Callable[[R], int]) -> dict[int, R]:
        """Return the answer of each broker in the metadata, by node id. None is left out, and none has an error."""

        def ask_each() -> tuple[dict[int, R], int, int]:
            """Ask all again if one fails: what it coordinated may have moved to one that was asked before."""
            self.metadata([])
            answers: dict[int, R] = {}
            for node in sorted(self.brokers):
                answers[node] = self.ask(request, response, node)
                if error_of(answers[node]):
                    return answers, node, error_of(answers[node])
            return answers, -1, Error.NONE

        answers, node, error_code = self.until_passed(ask_each, lambda found: found[2])
        check(error_code, None, f"broker {node}")
        return answers

    def version_of(self, request: type[Message], node: int | None = None) -> int:
        """Return the version in which this API is asked."""
        return self._connection(node).version_of(request)

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """Return the metadata of these topics, or of all. A missing topic has its error in the answer; nothing is
        created."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer = self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), MetadataResponse)
        check(answer.error_code, None, "the metadata")
        self.brokers = {broker.node_id: broker for broker in answer.brokers}
        return answer

    def topics(self, names: Sequence[str] = (), *, internal: bool = False) -> list[MetadataResponseTopic]:
        """Return these topics, each of which must exist. Without names, return all of them, internal ones only if asked
        for. Sorted by name."""
        answer = self.metadata(names or None)
        if not names:
            return [topic for topic in _there(answer) if internal or not topic.is_internal]
        for topic in answer.topics:
            check(topic.error_code, None, f"topic {topic.name}")
        return _there(answer)

    def topics_left(self, names: Sequence[str]) -> list[MetadataResponseTopic]:
        """Return those of these topics that still exist: one may be deleted at any time."""
        return _there(self.metadata(names)) if names else []

    def coordinator(self, kind: int, key: str) -> int:
        """Return the node that coordinates this group, transactional id or share group's partition (`group:topicId:n`).
        Waits while none is found."""

        def find() -> tuple[int, int, str | None]:
            request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
            if self.version_of(FindCoordinatorRequest) < 4:
                request.coordinator_keys = []
            else:
                request.key = ""
            answer = self.ask(request, FindCoordinatorResponse)
            for found in answer.coordinators:
                return found.node_id, found.error_code, found.error_message
            return answer.node_id, answer.error_code, answer.error_message

        node, error_code, message = self.until_passed(find, lambda found: found[1])
        check(error_code, message, f"the coordinator of {key}")
        return node

    def until_passed(self, ask: Callable[[], R2], error_of: Callable[[R2], int]) -> R2:
        """Return what `ask` returns. Asks again while its error is a passing one, or a broker is lost. Returns the last
        answer once patience has run out."""
        deadline_s = time.monotonic() + self._patience_s
        while True:
            try:
                answer = ask()
                if error_of(answer) not in PASSING or time.monotonic() > deadline_s:
                    return answer
            except BrokerLostError:
                if time.monotonic() > deadline_s:
                    raise
            time.sleep(PAUSE_S)

    def _connection(self, node: int | None) -> Connection:
        if node is None:
            if self._any is None:
                self._any = self._first()
            return self._any
        if node not in self._connections:
            if node not in self.brokers:
                self.metadata([])
            if node not in self.brokers:
                raise CommandError(f"there is no broker {node}", UNREACHABLE)
            broker = self.brokers[node]
            try:
                self._connections[node] = Connection(broker.host, broker.port, self._settings)
            except CommandError as error:
                raise (BrokerLostError(error) if error.status == UNREACHABLE else error) from None
        return self._connections[node]

    def _forget(self, connection: Connection) -> None:
        """Close it. The next question makes another one."""
        connection.close()
        self._any = None if self._any is connection else self._any
        self._connections = {node: each for node, each in self._connections.items() if each is not connection}

    def _first(self) -> Connection:
        """Return a connection to the first address that answers: of the bootstrap, or of a broker known from before."""
        failure: CommandError | None = None
        known = [f"[{each.host}]:{each.port}" for each in self.brokers.values()]
        for address in [*self._settings[BOOTSTRAP].split(","), *known]:
            host, colon, port = address.strip().rpartition(":")
            if not colon:
                host, port = address.strip(), "9092"
            if not port.isdigit() or int(port) > 65535:
                raise CommandUsageError(f"--bootstrap {address}: HOST:PORT is the form")
            try:
                return Connection(host.strip("[]"), int(port), self._settings)
            except CommandError as error:
                if error.status != UNREACHABLE:
                    raise
                failure = failure or error
        assert failure is not None
        raise CommandError(f"{failure} (is a broker running there? `barnabas` starts one)", UNREACHABLE)


def _there(answer: MetadataResponse) -> list[MetadataResponseTopic]:
    """Return the topics that the broker knows, sorted by name. Raises CommandError if it may not describe one."""
    kept = [topic for topic in answer.topics if topic.error_code != Error.UNKNOWN_TOPIC_OR_PARTITION]
    for topic in kept:
        check(topic.error_code, None, f"topic {topic.name}")
    return sorted(kept, key=lambda topic: topic.name or "")
