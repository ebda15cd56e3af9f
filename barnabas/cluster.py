"""`Cluster`: several brokers and their controller, each in a process of its own, for a test or a terminal.

Each node is a `Broker` that can be cut off from others. `Layout` plans the nodes' ids, ports, folders and settings
before any of them starts.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from barnabas.assertions import WithAssertions
from barnabas.broker import HeldPorts, cluster_id_in, made_security
from barnabas.child import Asked, BrokerError, Child, InBlocks, QuestionRefusedError
from barnabas.cluster_node import BETWEEN_NODES, ClusterNode, Network
from barnabas.faults import WithFaults
from barnabas.journal import WithJournal
from barnabas.now import WithNowVerbs
from barnabas.secured import Secured

if TYPE_CHECKING:
    from barnabas.looking import Topics
    from barnabas.security import Security


# --- The nodes ----------------------------------------------------------------------------------------------

CONTROLLER_ID = 100

SET_BY_THE_CLUSTER = {
    "advertised.listeners",
    "broker.id",
    "broker.rack",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
    "security.inter.broker.protocol",
}


def defaults(brokers: int) -> dict[str, object]:
    """Return the settings that differ from Kafka's defaults unless `config` sets them. Topics have as many replicas as
    Kafka's defaults ask for, or one for each broker if there are fewer. They accept records while one of three brokers
    is away. An internal topic has a few partitions for each broker instead of 50, because a test waits for all of them.
    Heartbeats come four times as often, because a stopping broker asks the controller for permission in them."""
    replicas = min(3, brokers)
    least_in_sync = 2 if replicas > 2 else 1
    return {
        "broker.heartbeat.interval.ms": 500,
        "default.replication.factor": replicas,
        "min.insync.replicas": least_in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 6,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": least_in_sync,
        "transaction.state.log.num.partitions": 6,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": least_in_sync,
    }


class Layout:
    """The plan of one cluster: ids, ports, folders and settings of its nodes."""

    def __init__(
        self,
        brokers: int,
        racks: Sequence[str],
        config: Mapping[str, object],
        *,
        host: str,
        port: int | None,
        kafka_version: str | None,
        log_level: str | None,
        startup_timeout_s: float,
        security: Security | None = None,
    ) -> None:
        """Raises ValueError if no cluster can be made of the arguments."""
        if brokers < 1:
            raise ValueError(f"a cluster has one broker or more, and not {brokers}")
        taken = SET_BY_THE_CLUSTER.intersection(config)
        if taken:
            raise ValueError(f"{', '.join(sorted(taken))}: a cluster sets that itself")
        self.brokers = brokers
        self.startup_timeout_s = startup_timeout_s
        self._racks = racks
        self._config = {**defaults(brokers), **config}
        self._host = host
        self._port = port
        self._kafka_version = kafka_version
        self._log_level = log_level
        self._security = security
        self._ports: HeldPorts | None = None

    def nodes(self, root: Path, temporary_root: Path | None) -> list[ClusterNode]:
        """Return the controller and the brokers; none of them runs yet. If the folders exist already, they determine
        the cluster's id. Takes free ports and holds them until `let_go_of_ports`."""
        network = Network()
        cluster_id = _found_cluster_id(root) or _new_cluster_id()
        return [
            ClusterNode(
                node_id,
                address,
                network,
                folder=root / name,
                temporary_root=temporary_root,
                cluster_id=cluster_id,
                config=config,
                kafka_version=self._kafka_version,
                log_level=self._log_level,
                startup_timeout_s=self.startup_timeout_s,
                security=self._security,
            )
            for node_id, name, address, config in self._planned()
        ]

    def let_go_of_ports(self) -> None:
        """Release the ports."""
        if self._ports is not None:
            self._ports.let_go()

    def _planned(self) -> Iterator[tuple[int, str, tuple[str, int], dict[str, object]]]:
        """Yield each node's id, folder, address for other nodes, and settings."""
        self._ports = HeldPorts([self._host] * (2 * self.brokers + 1))
        controller_port, *ports = self._ports.numbers
        if self._port is not None:
            ports[: self.brokers] = range(self._port, self._port + self.brokers)
        controller_id = max(CONTROLLER_ID, self.brokers + 1)
        client, between = (
            ("PLAINTEXT", "PLAINTEXT")
            if self._security is None
            else (self._security.protocol, "SASL_PLAINTEXT")
        )
        protocols = {client: client, **dict.fromkeys(BETWEEN_NODES, between)}
        of_all = {
            **self._config,
            "listener.security.protocol.map": ",".join(f"{name}:{protocols[name]}" for name in protocols),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{controller_id}@{self._at(controller_port)}",
        }
        of_controller = {
            **of_all,
            "process.roles": "controller",
            "node.id": controller_id,
            "listeners": f"CONTROLLER://{self._at(controller_port)}",
        }
        yield controller_id, "controller", (self._host, controller_port), of_controller
        for node_id in range(1, self.brokers + 1):
            client_port, port = ports[node_id - 1], ports[self.brokers + node_id - 1]
            of_broker: dict[str, object] = {
                **of_all,
                "process.roles": "broker",
                "node.id": node_id,
                "listeners": f"{client}://{self._at(client_port)},BROKERS://{self._at(port)}",
                "inter.broker.listener.name": "BROKERS",
            }
            if self._racks:
                of_broker["broker.rack"] = self._racks[(node_id - 1) % len(self._racks)]
            yield node_id, str(node_id), (self._host, port), of_broker

    def _at(self, port: int) -> str:
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"


def _new_cluster_id() -> str:
    """Draw an id as Kafka does: it never looks like an option."""
    while (drawn := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return drawn


def _found_cluster_id(root: Path) -> str | None:
    """Return the cluster id of folders that exist already, or None."""
    for file in sorted(root.glob("*/meta.properties")):
        cluster_id = cluster_id_in(file.parent)
        if cluster_id is not None:
            return cluster_id
    return None


# --- The cluster --------------------------------------------------------------------------------------------

POLL_S = 0.01


class Cluster(InBlocks, Secured, WithFaults, WithJournal, WithNowVerbs, WithAssertions):
    """Brokers 1 to `brokers` and a controller on loopback; use it in `with` or `async with`, or call `start()` and
    `close()`.

        with barnabas.Cluster(brokers=3) as cluster:
            produce(cluster.bootstrap)
            cluster.leader_of("orders", 0).kill()

    racks: given to the brokers in turn. Of two racks, the first is for brokers 1, 3, 5…, the second for 2, 4, 6…
    config: settings of all nodes by Kafka's names, such as {"broker.session.timeout.ms": 2000}: the time until a
        killed or isolated broker is fenced. Settings that the cluster makes itself, such as `listeners`, are refused.
    data: a folder that is kept, with a folder and a log for each node (`controller`, `1`, `2`…). None makes a
        temporary one, which is removed with the cluster, whatever ends that.
    port: of broker 1; the other brokers have the next ones. Without one, free ports are taken.
    kafka_version, log_level, startup_timeout_s: as for a `Broker`, for each node.
    security, users, tokens: as for a `Broker`, for all brokers. The nodes sign in to each other, too.
    topics: topics that are there from the start on, as `create_topics` takes them.

    Folders and ports stay over stops and kills, of single nodes and of all, until `close()` or the end of the block.
    Each broker has one listener for clients and another one for brokers. Not safe to share between threads.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        racks: Sequence[str] | None = None,
        config: Mapping[str, object] | None = None,
        data: str | os.PathLike[str] | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        kafka_version: str | None = None,
        log_level: str | None = None,
        startup_timeout_s: float = 60.0,
        security: str | None = None,
        users: Mapping[str, str] | Iterable[str] | None = None,
        tokens: bool = False,
        topics: Topics | None = None,
    ) -> None:
        self._topics: Topics = topics or {}
        self._security = made_security(security, users, tokens, (host,), config or {})
        self._layout = Layout(
            brokers,
            racks or (),
            config or {},
            host=host,
            port=port,
            kafka_version=kafka_version,
            log_level=log_level,
            startup_timeout_s=startup_timeout_s,
            security=self._security,
        )
        self._data = None if data is None else Path(data).absolute()
        self._nodes: list[ClusterNode] = []  # the controller first; empty before a start and after close
        self._running = False
        self._end: Callable[[], object] = lambda: None

    # --- start and stop -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all nodes that don't run, and wait until each broker knows that all are registered and unfenced.

        Raises BrokerError, with the reason, if one does not start; then none runs.
        """
        if self._running:
            raise RuntimeError("this cluster was started already")
        is_first_start = not self._nodes
        try:
            if is_first_start:
                self._make_nodes()
            starting = [node for node in self._nodes if not node.running]
            for node in starting:
                node.begin_to_start()
            for node in starting:
                node.wait_until_started()
            self._wait_until_all_see_all()
            if is_first_start:
                self._add_users()
                self._make_topics(self._topics, if_missing=True)
        except BaseException:
            for node in self._nodes:
                node.kill()
            if is_first_start:
                self._forget()
            raise
        self._running = True
        return self

    def stop(self) -> None:
        """Stop all nodes cleanly; then `start()` or `close()`. Does nothing if none runs.

        Raises BrokerError if one had ended by itself, or fails to end well.
        """
        self._stop(leave=True)

    def close(self) -> None:
        """Stop all nodes cleanly, and remove their folders if those are temporary. `start()` then starts a new cluster.

        Raises BrokerError, as `stop()` does.
        """
        try:
            # Temporary data needs no new leaders, so end the nodes at once.
            self._stop(leave=self._data is not None)
        finally:
            self._forget()

    def _stop(self, *, leave: bool) -> None:
        failures: list[BrokerError] = []

        def stop(*nodes: ClusterNode, leave: bool) -> None:
            for step in (lambda node: node.begin_to_stop(leave=leave), ClusterNode.wait_until_stopped):
                for node in nodes:
                    try:
                        step(node)
                    except BrokerError as failure:
                        failure.add_note(f"that was {node}")
                        failures.append(failure)

        self._running = False
        if self._nodes:
            controller, *others = self._nodes
            for node in self._nodes:
                node.resume()
            for node in others:
                node.heal()
            stop(*others, leave=leave and controller.running)
            stop(controller, leave=False)
        if failures:
            raise failures[0]

    @property
    def running(self) -> bool:
        """True if it was started and not stopped yet, whatever happened to single nodes."""
        return self._running

    # --- its nodes ------------------------------------------------------------------------------------------

    def __getitem__(self, node_id: int) -> ClusterNode:
        """The broker with this id, from 1 on. Raises KeyError if there is none."""
        for node in self.brokers:
            if node.node_id == node_id:
                return node
        raise KeyError(
            f"there is no broker {node_id}: a cluster that was started has 1 to {self._layout.brokers}"
        )

    def __iter__(self) -> Iterator[ClusterNode]:
        return iter(self.brokers)

    def __len__(self) -> int:
        return self._layout.brokers

    @property
    def brokers(self) -> Sequence[ClusterNode]:
        """All brokers, in the order of their ids."""
        return self._started()[1:]

    @property
    def nodes(self) -> Sequence[ClusterNode]:
        """The controller and the brokers. There are none before a start and after `close()`."""
        return tuple(self._nodes)

    @property
    def controller(self) -> ClusterNode:
        """The controller, a node that is no broker."""
        return self._started()[0]

    @property
    def bootstrap(self) -> str:
        """`host:port` of all brokers, separated by commas."""
        return ",".join(node.bootstrap for node in self.brokers)

    @property
    def keeps_data(self) -> bool:
        """True if its folder stays after `close()`."""
        return self._data is not None

    @property
    def data(self) -> Path:
        """The folder with the folders of all nodes."""
        return self._started()[0].data.parent

    @property
    def log(self) -> str:
        """All that the nodes have printed, one node after the other."""
        return "".join(f"{node!r}:\n{node.log}" for node in self._started())

    # --- what its metadata says -----------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int = 0) -> ClusterNode:
        """The broker that leads the partition, as the controller knows it. Raises LookupError if there is no such
        partition, or it has no leader."""
        leader = self._partition(topic, partition)["leader"]
        if leader < 0:
            raise LookupError(f"{topic}-{partition} has no leader")
        return self[leader]

    def replicas_of(self, topic: str, partition: int = 0) -> list[ClusterNode]:
        """The brokers that have a replica, the preferred leader first. Raises LookupError."""
        return [self[each] for each in self._partition(topic, partition)["replicas"]]

    def in_sync_replicas_of(self, topic: str, partition: int = 0) -> list[ClusterNode]:
        """The brokers whose replica is in sync. Raises LookupError."""
        return [self[each] for each in self._partition(topic, partition)["isr"]]

    def coordinator_of(self, *, group: str | None = None, transactional_id: str | None = None) -> ClusterNode:
        """The broker that coordinates a consumer group or a transactional producer. Raises LookupError if there is
        none: nobody has asked for a coordinator yet, or its partition has no leader."""
        if (group is None) == (transactional_id is None):
            raise TypeError("coordinator_of takes a group or a transactional_id")
        who = {"transactional_id": transactional_id} if group is None else {"group": group}
        found = self._ask({"ask": "coordinator", **who})
        return self.leader_of(found["topic"], found["partition"])

    def move_leader(
        self, topic: str, partition: int, broker: int | ClusterNode, *, timeout_s: float = 30.0
    ) -> None:
        """Make a broker the leader of a partition. When this returns, all brokers that can be asked know it.

        If the broker has no replica it gets one, in place of the last in the list. Raises LookupError if there is no
        such partition, and TimeoutError, with the reason, if the broker can't lead it in time.
        """
        wanted = self[broker] if isinstance(broker, int) else broker
        replicas = list(self._partition(topic, partition)["replicas"])
        others = [each for each in replicas if each != wanted.node_id][: len(replicas) - 1]
        where = {"topic": topic, "partition": partition}
        why = ""
        is_asked_for = False

        def moved() -> bool:
            nonlocal is_asked_for, why
            absent = [node for node in (wanted, self.controller) if not node.answers]
            if absent:
                why = f": {absent[0]} {absent[0].absence}"
                return False
            if not is_asked_for:
                self._told(
                    self.controller, {"ask": "reassign", **where, "replicas": [wanted.node_id, *others]}
                )
                is_asked_for = True
            found = self._partition(topic, partition)
            if found["leader"] == wanted.node_id and not found["is_moving"]:
                return all(
                    node.ask({"ask": "partition", **where})["leader"] == wanted.node_id
                    for node in self._informed()
                )
            if wanted.node_id in found["isr"]:
                try:
                    self.controller.ask({"ask": "elect", **where})
                except QuestionRefusedError as refusal:
                    why = f": {refusal}"
            else:
                why = f": it is not in sync, {found['isr']} are"
            return False

        _until(moved, timeout_s, lambda: f"{wanted} doesn't lead {topic}-{partition}{why}")

    def wait_until_in_sync(self, timeout_s: float = 30.0) -> None:
        """Wait until no node is paused, all running brokers are unfenced, and each partition of each topic has a leader
        and all its replicas in sync. The controller and all brokers that it reaches have to know that. A replica on a
        broker that doesn't run counts as missing, even if they don't know yet. Raises TimeoutError, which says what is
        missing."""
        missing = ""

        def in_sync() -> bool:
            nonlocal missing
            silent = [node for node in self.nodes if node.paused]
            if silent or not self.controller.answers:
                who = silent[0] if silent else self.controller
                missing = f"{who} {who.absence}"
                return False
            running = {node.node_id for node in self.brokers if node.running}
            absent = [node.node_id for node in self.brokers if not node.running]
            for node in [self.controller, *self._informed()]:
                fenced = running - {*node.ask({"ask": "brokers"})}
                if fenced:
                    missing = f"brokers {sorted(fenced)} are fenced"
                    return False
                lagging = node.ask({"ask": "out_of_sync", "absent": absent})
                if lagging["count"]:
                    missing = f"partitions out of sync: {lagging['count']}, {', '.join(lagging['some'])}"
                    return False
            return True

        _until(in_sync, timeout_s, lambda: missing)

    # --- security -------------------------------------------------------------------------------------------

    def rotate_certificates(self, *, expired: bool = False) -> None:
        """Give all brokers other keys and certificates, as `Broker.rotate_certificates` does."""
        for node in self.brokers:
            node.rotate_certificates(expired=expired)

    def _decider(self) -> Asked:
        return self.controller

    def _followers(self) -> Sequence[Asked]:
        return self._informed()

    def _named_nodes(self) -> Iterable[tuple[str, Asked]]:
        return [(str(node), node) for node in self.nodes if node.answers]

    def _asked_brokers(self) -> Sequence[Asked]:
        """Raises BrokerError if no broker can be asked."""
        found = [node for node in self.brokers if node.answers]
        if not found:
            raise BrokerError("no broker of the cluster can be asked: none runs, or those that do are paused")
        return found

    # --- making the nodes -----------------------------------------------------------------------------------

    def _make_nodes(self) -> None:
        root = self._data or Path(tempfile.mkdtemp(prefix="barnabas-"))
        root.mkdir(parents=True, exist_ok=True)
        temporary_root = root if self._data is None else None
        children: list[Child] = []
        self._end = weakref.finalize(self, _end_all, children, temporary_root, os.getpid())
        self._nodes = self._layout.nodes(root, temporary_root)
        children += [node.child for node in self._nodes]

    def _forget(self) -> None:
        self._let_go_of_tokens()
        self._end()
        self._end = lambda: None
        self._nodes = []
        self._layout.let_go_of_ports()

    def _started(self) -> list[ClusterNode]:
        if not self._nodes:
            raise RuntimeError("this cluster was not started, or is closed")
        return self._nodes

    def _wait_until_all_see_all(self) -> None:
        wanted = [node.node_id for node in self.brokers]

        def seen() -> bool:
            return all(node.ask({"ask": "brokers"}) == wanted for node in self.brokers)

        try:
            _until(seen, self._layout.startup_timeout_s, lambda: "a broker doesn't know all the others")
        except TimeoutError as late:
            raise BrokerError(str(late), self.log) from None

    # --- asking ---------------------------------------------------------------------------------------------

    def _partition(self, topic: str, partition: int) -> dict[str, Any]:
        found: dict[str, Any] = self._ask({"ask": "partition", "topic": topic, "partition": partition})
        return found

    def _ask(self, question: Mapping[str, object]) -> Any:
        """Ask the controller, or else a broker that heard from it last, as far as that can be known."""
        for node in [self.controller, *self._informed(), *self.brokers]:
            if node.answers:
                return self._told(node, question)
        raise BrokerError("no node of the cluster can be asked: none runs, or those that do are paused")

    @staticmethod
    def _told(node: ClusterNode, question: Mapping[str, object]) -> Any:
        try:
            return node.ask(question)
        except QuestionRefusedError as refusal:
            raise LookupError(str(refusal)) from None

    def _informed(self) -> list[ClusterNode]:
        """Return the brokers that can be asked and that the controller reaches."""
        return [node for node in self.brokers if node.answers and node.reaches_controller()]


def _until(condition: Callable[[], bool], timeout_s: float, missing: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"after {timeout_s:g} s still {missing()}")
        time.sleep(POLL_S)


def _end_all(children: Sequence[Child], temporary_root: Path | None, maker_pid: int) -> None:
    """End all nodes and remove the temporary folders, whatever became of the cluster. Brokers end before the
    controller, which comes first in the list. A process forked from the one that made the cluster does nothing."""
    if os.getpid() != maker_pid:
        return
    for child in reversed(children):
        child.end()
    if temporary_root is not None:
        shutil.rmtree(temporary_root, ignore_errors=True)
