"""One node of a `barnabas.Cluster`, and the network between all nodes, which tests can cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.broker import Broker
from barnabas.child import Asked, BrokerError, Child

if TYPE_CHECKING:
    from barnabas.security import Security

BETWEEN_NODES = ("BROKERS", "CONTROLLER")
"""The listeners that nodes use among themselves: the brokers' and the controller's."""


class Network:
    """The cuts and delays between the nodes of a cluster, as pairs of node ids: from which one to which."""

    def __init__(self) -> None:
        self.nodes: dict[int, ClusterNode] = {}
        self._cut: set[tuple[int, int]] = set()
        self._delays_ms: dict[tuple[int, int], int] = {}

    def is_cut(self, one: int, other: int) -> bool:
        """True if anything between these two is lost, in either direction."""
        return not self._cut.isdisjoint(((one, other), (other, one)))

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        """Cut these ways too."""
        self._change(self._cut | {*ways})

    def slow(self, ways: Iterable[tuple[int, int]], delay_ms: int) -> None:
        """Delay what is sent on these ways by `delay_ms`."""
        self._change(self._cut, self._delays_ms | dict.fromkeys(ways, delay_ms))

    def mend(self, ways: Iterable[tuple[int, int]]) -> None:
        """Mend these ways."""
        whole = {*ways}
        slow = {way: delay_ms for way, delay_ms in self._delays_ms.items() if way not in whole}
        self._change(self._cut - whole, slow)

    def question_for(self, node_id: int) -> Mapping[str, object]:
        """Return the question that tells a node what to cut at its end: in the connections that it has made."""
        cuts = []
        for other in self.nodes.values():
            incoming, outgoing = (other.node_id, node_id) in self._cut, (node_id, other.node_id) in self._cut
            delay_ms = self._delays_ms.get((node_id, other.node_id), 0)
            if incoming or outgoing or delay_ms:
                host, port = other.address
                ways = {"incoming": incoming, "outgoing": outgoing, "delay_ms": delay_ms}
                cuts.append({"host": host, "port": port, **ways})
        return {"ask": "cut", "cuts": cuts}

    def _change(self, cut: set[tuple[int, int]], delays_ms: dict[tuple[int, int], int] | None = None) -> None:
        delays_ms = self._delays_ms if delays_ms is None else delays_ms
        slower = {way for way, _ in delays_ms.items() ^ self._delays_ms.items()}
        changed = {node_id for way in (cut ^ self._cut) | slower for node_id in way}
        self._cut, self._delays_ms = cut, delays_ms
        for node_id in sorted(changed):
            self.nodes[node_id].obey(self.question_for(node_id))


class ClusterNode(Broker):
    """One node of a `Cluster`. It has everything that a `Broker` has, and a network that can be cut.

    Its folder and its ports stay over stops and kills, until the cluster's end. After a kill, `start()` takes until the
    session of the killed one is over: `broker.session.timeout.ms`.
    """

    def __init__(
        self,
        node_id: int,
        address: tuple[str, int],
        network: Network,
        *,
        folder: Path,
        temporary_root: Path | None,
        cluster_id: str,
        config: Mapping[str, object],
        kafka_version: str | None,
        log_level: str | None,
        startup_timeout_s: float,
        security: Security | None,
    ) -> None:
        """`address` is where other nodes connect to it. Its output goes to a file beside its folder. In a temporary
        cluster `temporary_root` holds the folders of all nodes, and is removed with the last of them."""
        self.node_id = node_id
        self.address = address
        self._network = network
        self._temporary_root = temporary_root
        self._cluster_id = cluster_id
        self._log_file = folder.with_name(f"{folder.name}.log")
        super().__init__(
            data=folder,
            config=config,
            kafka_version=kafka_version,
            log_level=log_level,
            startup_timeout_s=startup_timeout_s,
        )
        self._security = security
        network.nodes[node_id] = self

    # --- starting and stopping several at once ----------------------------------------------------------------

    def stop(self) -> None:
        """Stop it cleanly. If it reaches the controller, others lead its partitions first. Raises BrokerError."""
        self.begin_to_stop(leave=self.reaches_controller())
        self.wait_until_stopped()

    def begin_to_stop(self, *, leave: bool) -> None:
        """Ask it to stop; `wait_until_stopped` waits, so that several nodes can stop at once."""
        self._child.begin_to_stop(leave=leave)

    def wait_until_stopped(self) -> None:
        """Wait for its end. Raises BrokerError if it doesn't end well."""
        self._child.wait_until_ended()

    def close(self) -> None:
        """The same as `stop()`: its folder and ports belong to its cluster."""
        self.stop()

    # --- cut off --------------------------------------------------------------------------------------------

    def isolate(
        self,
        from_: Iterable[int | ClusterNode] | None = None,
        *,
        incoming: bool = True,
        outgoing: bool = True,
    ) -> None:
        """Cut it off from the nodes in `from_` (ids or nodes, also the controller), or from all others.

        `incoming`: what they send to it is lost. `outgoing`: what it sends to them is lost. Requests and answers of a
        connection go in opposite directions, and each is lost by its own. The cut is silent: no connection ends. A new
        connection comes to nothing if either direction is cut, as if the address didn't answer. Clients still reach
        every node. A cut adds to earlier ones, and stays over stops and starts.

        All traffic between nodes is cut, at the listener between brokers and at the controller's: replication, the
        metadata log, heartbeats, markers, and what clients ask of the controller. If a process dies, others notice it
        only if the network to it is whole. A paused node applies the cut when it is resumed.
        """
        others = self._others(from_)
        self._network.cut(
            [(other, self.node_id) for other in others if incoming]
            + [(self.node_id, other) for other in others if outgoing]
        )

    def slow_down(self, seconds: float, from_: Iterable[int | ClusterNode] | None = None) -> None:
        """Delay all requests between it and the nodes in `from_` (ids or nodes, also the controller), or all others.
        Answers take no longer, so each round trip takes `seconds` longer. A second call replaces the delay, and
        `heal()` ends it."""
        others = self._others(from_)
        ways = [way for other in others for way in ((other, self.node_id), (self.node_id, other))]
        self._network.slow(ways, round(seconds * 1000))

    def heal(self, from_: Iterable[int | ClusterNode] | None = None) -> None:
        """Mend the network between it and the nodes in `from_`, or all others, in both directions. What was lost in a
        connection that is still open now arrives, as if TCP had sent it again."""
        others = self._others(from_)
        self._network.mend(
            [way for other in others for way in ((other, self.node_id), (self.node_id, other))]
        )

    def _others(self, from_: Iterable[int | ClusterNode] | None) -> list[int]:
        known = self._network.nodes
        if from_ is None:
            return [node_id for node_id in known if node_id != self.node_id]
        others = [each.node_id if isinstance(each, ClusterNode) else each for each in from_]
        for other in others:
            if other not in known or other == self.node_id:
                raise ValueError(f"{other} is no other node of the cluster: there are {sorted(known)}")
        return others

    # --- for its cluster ------------------------------------------------------------------------------------

    @property
    def child(self) -> Child:
        """Its process."""
        return self._child

    def begin_to_start(self) -> None:
        """Start it; `wait_until_started` waits, so that several nodes can start at once."""
        self._begin_to_start()

    def wait_until_started(self) -> None:
        """Wait until it answers. Raises BrokerError if it doesn't start."""
        self._wait_until_started()

    # --- asking it ------------------------------------------------------------------------------------------

    @property
    def answers(self) -> bool:
        """True if it can be asked now."""
        return self.running and not self.paused

    @property
    def absence(self) -> str:
        """Why it can't be asked, as the end of a sentence."""
        return "is paused" if self.running else "doesn't run"

    def ask(self, question: Mapping[str, object]) -> Any:
        """Ask over the control socket (`broker/process/control.py`). Raises QuestionRefusedError, BrokerError."""
        try:
            return self._child.ask(question)
        except BrokerError as failure:
            failure.add_note(f"that was {self}")
            raise

    def has_crashed(self, pid: int) -> bool:
        """True if a fault has crashed its process with this id."""
        return self._child.has_crashed(pid)

    def obey(self, question: Mapping[str, object]) -> None:
        """Like `ask`, for a command that may wait until a paused node is resumed, and that each start repeats."""
        if self.paused:
            self._child.begin_to_ask(question)
        elif self.running and self.connects:
            self._child.ask(question)

    @property
    def connects(self) -> bool:
        """True if it makes connections to other nodes. The controller makes none."""
        return self._config.get("process.roles") == "broker"

    def reaches_controller(self) -> bool:
        """True if a controller can be asked and nothing is lost on the way there."""
        controllers = [node for node in self._network.nodes.values() if not node.connects]
        return any(
            node.answers and not self._network.is_cut(node.node_id, self.node_id) for node in controllers
        )

    # --- security, which its cluster decides ------------------------------------------------------------------

    _is_secured = False  # its settings describe its listeners

    def _secure(self) -> None:
        """Nothing: the cluster does this once all nodes have started."""

    def _let_go_of_tokens(self) -> None:
        """Nothing: tokens belong to the whole cluster."""

    def _secret_settings(self) -> Mapping[str, str] | None:
        if self._security is None:
            return None
        own = self._security.settings(self.data) if self.connects else {}
        return {**own, **self._security.settings_between_nodes(*BETWEEN_NODES)}

    def _decider(self) -> Asked:
        return next(node for node in self._network.nodes.values() if not node.connects)

    def _followers(self) -> Sequence[Asked]:
        """The same brokers as the cluster's."""
        return [
            node
            for node in self._network.nodes.values()
            if node.connects and node.answers and node.reaches_controller()
        ]

    # --- how it is started ----------------------------------------------------------------------------------

    def _first_question(self) -> Mapping[str, object] | None:
        return self._network.question_for(self.node_id) if self.connects else None

    def _new_child(self) -> Child:
        return Child(self._log_file, is_temporary=self._temporary_root is not None)

    def _command(self, control_fd: int) -> list[str]:
        command = [*super()._command(control_fd), f"--cluster-id={self._cluster_id}"]
        if self._temporary_root is not None:
            command += ["--temporary", "--temporary-root", str(self._temporary_root)]
        return command

    def __str__(self) -> str:
        return f"{'broker' if self.connects else 'controller'} {self.node_id}"

    def __repr__(self) -> str:
        state = "paused" if self.paused else self._bootstrap if self.running else "not running"
        return f"<barnabas.Cluster {self}, {state}>"
