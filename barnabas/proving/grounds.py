"""The ground on which a program is tried: one broker, or a cluster of several. Each run begins there with the same
state."""

from __future__ import annotations

import abc
import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.child import Asked, BrokerError, QuestionRefusedError
from barnabas.faults import Fault
from barnabas.journal import SIZE_SETTING, Request, requests_of
from barnabas.proving.hazards import OF_OFFSETS

if TYPE_CHECKING:
    from barnabas.broker import Broker, Snapshot
    from barnabas.cluster import Cluster
    from barnabas.cluster_node import ClusterNode

JOURNALED = 20_000
SETTLED_S = 60.0

SESSION_OVER_S = 50
"""After this time a killed member has left its group, by the clients' default session timeout."""
ALL_OVER_MINUTES = 6
_BEHIND_ALL_MINUTES = 16
"""After this time no transaction is open any more: `transaction.max.timeout.ms` ends it."""

GROUND_FAILURES = (BrokerError, QuestionRefusedError, LookupError, OSError)
"""What a ground raises if its brokers don't do what it asks of them, or not in time."""

OF_CLUSTERS = {
    SIZE_SETTING: JOURNALED,
    "broker.session.timeout.ms": 3_000,
    "request.timeout.ms": 5_000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}
"""The settings of a cluster's nodes. Others lead what a killed broker led once its session is over. A broker that waits
for another one's lost answer keeps clients waiting no longer than they wait for a lost answer of their own."""


class Ground(abc.ABC):
    """One broker or several, for a `with` block."""

    size: int
    """How many brokers."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        """The number of each broker's last request that was reported in this run."""
        self._before: list[Request] = []
        """This run's requests to processes of killed brokers."""
        self._is_sound = True

    @property
    @abc.abstractmethod
    def kafka(self) -> Broker | Cluster:
        """The broker or cluster for questions about records and requests, and for faults."""

    @abc.abstractmethod
    def keep(self) -> None:
        """Let all runs begin with its present state."""

    def begin(self) -> None:
        """Put it back to its state at `keep`. If that fails, or nobody trusts its brokers any more, new ones replace
        them."""
        self._seen.clear()
        self._before.clear()
        if self._is_sound:
            try:
                self._put_back()
            except GROUND_FAILURES:
                self._is_sound = False
        if not self._is_sound:
            self._replace()
            self._is_sound = True

    def distrust(self) -> None:
        """Let the next run begin with new brokers."""
        self._is_sound = False

    @abc.abstractmethod
    def _put_back(self) -> None:
        """Put it back, whatever state it is in."""

    @abc.abstractmethod
    def _replace(self) -> None:
        """End its brokers, and start new ones with the state at `keep`."""

    @abc.abstractmethod
    def end_sessions(self) -> None:
        """Time out the sessions of all group members."""

    @abc.abstractmethod
    def end_all(self) -> None:
        """Time out all sessions, and all open transactions."""

    @abc.abstractmethod
    def settle(self) -> None:
        """End all open transactions, whatever their timeout. Then everything committed can be read."""

    @abc.abstractmethod
    def struck(self, fault: Fault) -> Sequence[str]:
        """Note where the fault has happened, and keep it from happening at another broker. Return the names of those
        where it had happened too by then."""

    @abc.abstractmethod
    def kill_and_start(self) -> None:
        """Kill the broker where the fault has happened, and start it again."""

    @abc.abstractmethod
    def move(self, api: str) -> list[str]:
        """Let another broker lead or coordinate what the held request is about. Return in words what has moved."""

    @abc.abstractmethod
    def _nodes(self) -> Iterable[tuple[str, Asked]]:
        """The brokers that can be asked, with their names."""

    def news(self) -> list[Request]:
        """Return the requests since the last call."""
        news: list[Request] = []
        for name, node in self._nodes():
            found = requests_of(node, {}, self._seen.get(name, 0))
            if found:
                self._seen[name] = found[-1]["n"]
                news += found
        return news

    def requests(self) -> list[Request]:
        """Return all requests of this run, in the order of their time."""
        found = [*self._before, *(each for name, node in self._nodes() for each in _all_of(name, node))]
        return sorted(found, key=lambda each: (each["at_ms"], each["n"]))

    def _note_all_of(self, name: str, node: Asked) -> None:
        """Keep the journal of a process that is about to be killed."""
        self._before += _all_of(name, node)
        self._seen.pop(name, None)

    @abc.abstractmethod
    def close(self) -> None:
        """End its brokers, whatever state they are in, and remove what they held."""

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _all_of(name: str, node: Asked) -> Iterator[Request]:
    """Yield all that a broker's process has journaled, with the broker's name if it has one."""
    return ({"node": name, **each} if name else each for each in requests_of(node, {}))


# --- One broker ---------------------------------------------------------------------------------------------


class OneBroker(Ground):
    """One broker. A snapshot puts it back, and its clock is moved."""

    size = 1

    def __init__(self) -> None:
        from barnabas.broker import Broker

        super().__init__()
        self._broker = Broker(config={SIZE_SETTING: JOURNALED}).start()
        self._snapshot: Snapshot | None = None

    @property
    def kafka(self) -> Broker:
        return self._broker

    def keep(self) -> None:
        self._snapshot = self._broker.snapshot()

    def _put_back(self) -> None:
        assert self._snapshot is not None
        if not self._broker.running:
            self._broker.restart()
        self._broker.restore(self._snapshot)

    def _replace(self) -> None:
        distrusted = self._broker
        distrusted.kill()
        self._broker = distrusted.fork(self._snapshot)
        distrusted.close()

    def end_sessions(self) -> None:
        self._broker.clock.advance(seconds=SESSION_OVER_S)

    def end_all(self) -> None:
        self._broker.clock.advance(minutes=ALL_OVER_MINUTES)

    def settle(self) -> None:
        self._broker.clock.advance(minutes=_BEHIND_ALL_MINUTES)

    def struck(self, fault: Fault) -> Sequence[str]:
        return ()

    def kill_and_start(self) -> None:
        [(name, node)] = self._nodes()
        self._note_all_of(name, node)
        self._broker.kill()
        self._broker.start()

    def move(self, api: str) -> list[str]:
        raise AssertionError("there is no other broker")

    def _nodes(self) -> Iterable[tuple[str, Asked]]:
        return self._broker._named_nodes() if self._broker.running else ()

    def close(self) -> None:
        self._broker.kill()
        self._broker.close()


# --- Several ------------------------------------------------------------------------------------------------


class SeveralBrokers(Ground):
    """A cluster. It is put back by a new start on a copy of its folders. Its nodes watch each other by the clock, so
    the clock stays as it is. Sessions and transactions are timed out one by one."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self._root = Path(tempfile.mkdtemp(prefix="barnabas-prove-"))
        self._struck: ClusterNode | None = None
        try:
            self._cluster = self._new_cluster().start()
        except BaseException:
            shutil.rmtree(self._root, ignore_errors=True)
            raise

    def _new_cluster(self) -> Cluster:
        from barnabas.cluster import Cluster

        return Cluster(self.size, data=self._root / "data", config=OF_CLUSTERS)

    @property
    def kafka(self) -> Cluster:
        return self._cluster

    def keep(self) -> None:
        self._cluster.wait_until_in_sync()
        self._cluster.stop()
        shutil.copytree(self._root / "data", self._root / "kept")

    def _put_back(self) -> None:
        self._end()
        shutil.rmtree(self._root / "data", ignore_errors=True)
        shutil.copytree(self._root / "kept", self._root / "data")
        self._cluster.start()
        self._struck = None

    def _replace(self) -> None:
        self._end()
        self._cluster.close()
        self._cluster = self._new_cluster()
        self._put_back()

    def _end(self) -> None:
        for node in self._cluster.nodes:
            node.kill()
        self._cluster.stop()

    def end_sessions(self) -> None:
        for group in self._cluster.groups():
            for member in group.members:
                _if_there(self._cluster.expire_member, group.group_id, member.member_id)

    def end_all(self) -> None:
        self.end_sessions()
        for each in self._cluster.transactions():
            if each.state == "Ongoing":
                _if_there(self._cluster.expire_transaction, each.transactional_id)

    def settle(self) -> None:
        self._cluster.wait_until_in_sync(SETTLED_S)
        self.end_all()
        self._cluster.wait_until(
            lambda: not any(each.is_open for each in self._cluster.transactions()),
            timeout=SETTLED_S,
            what="all transactions have ended",
        )
        self._cluster.wait_until_in_sync(SETTLED_S)

    def struck(self, fault: Fault) -> Sequence[str]:
        [first, *others] = fault.narrowed()
        self._struck = next(node for node in self._cluster if node is first)
        return [str(each) for each in others]

    def kill_and_start(self) -> None:
        assert self._struck is not None
        self._note_all_of(str(self._struck), self._struck)
        self._struck.kill()
        self._struck.start()

    def move(self, api: str) -> list[str]:
        assert self._struck is not None
        moved = []
        for topic, partition in self._subjects(self._struck, api):
            others = [
                each
                for each in self._cluster.in_sync_replicas_of(topic, partition)
                if each is not self._struck
            ]
            if others:
                self._cluster.move_leader(topic, partition, others[0], timeout_s=SETTLED_S)
                moved.append(f"{topic}-{partition} moved to {others[0]}")
        return moved

    def _subjects(self, broker: ClusterNode, api: str) -> list[tuple[str, int]]:
        """Return the partitions that the requests in progress are about: those of coordinators, or of records."""
        found: dict[tuple[str, int], None] = {}
        for each in requests_of(broker, {"api": api}):
            if each["took_ms"] is not None:
                continue
            if api == "Produce":
                found |= {
                    (topic, index): None
                    for topic, indexes in each.get("topics", {}).items()
                    for index in indexes
                }
            elif api in OF_OFFSETS:
                found |= {self._coordinator({"group": group}): None for group in each.get("groups", ())}
            else:
                found |= {
                    self._coordinator({"transactional_id": name}): None
                    for name in each.get("transactional_ids", ())
                }
        return [*found]

    def _coordinator(self, who: dict[str, str]) -> tuple[str, int]:
        found = self._cluster.controller.ask({"ask": "coordinator", **who})
        return found["topic"], found["partition"]

    def _nodes(self) -> Iterable[tuple[str, Asked]]:
        return [(str(node), node) for node in self._cluster if node.answers] if self._cluster.running else ()

    def close(self) -> None:
        try:
            self._end()
            self._cluster.close()
        finally:
            shutil.rmtree(self._root, ignore_errors=True)


def _if_there(expire: Callable[..., object], *about: str) -> None:
    """Call it. What has gone or ended meanwhile needs no end."""
    with contextlib.suppress(LookupError):
        expire(*about)
