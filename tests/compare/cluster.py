"""A cluster for scripts: its nodes, what happens to them, and waiting until brokers know."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from barnabas.child import GUARD

from .cluster_properties import Ports
from .cluster_state import ClusterState
from .waiting import until


class Node(Protocol):
    """One process of a cluster."""

    @property
    def data(self) -> Path: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> object: ...

    def stop(self) -> object: ...

    def kill(self) -> object: ...


class Cluster:
    """Running nodes, and what happens to them. As a `Broker` of `scene.py` it is its broker 1."""

    def __init__(self, nodes: Mapping[int, Node], ports: Ports) -> None:
        self.nodes = nodes
        self.ports = ports.named()
        self.state = ClusterState(ports.clients)
        self._guards: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: set[int] = set()

    @property
    def port(self) -> int:
        return self.ports["broker 1"]

    @property
    def data(self) -> Path:
        return self.nodes[1].data

    def restart(self, *, kill: bool) -> None:
        """Restart only broker 1. It then leads again what it led."""
        (self.kill if kill else self.stop)(1)
        until("broker 1 has gone", lambda: all(1 not in each.brokers for each in self.state.seen()))
        self.start(1)
        self.settle()

    def kill(self, node_id: int) -> None:
        self.nodes[node_id].kill()
        self._has_ended(node_id)

    def stop(self, node_id: int) -> None:
        """Send SIGTERM, and return when it has ended."""
        self.nodes[node_id].stop()
        self._has_ended(node_id)

    def start(self, node_id: int) -> None:
        """Start a node that was killed or stopped. Returns when it answers."""
        self.nodes[node_id].start()
        self._ended.discard(node_id)
        self.state.asked.add(node_id)

    def pause(self, node_id: int) -> None:
        """Send SIGSTOP. It lasts until `resume`, or the end of this process."""
        pid = self.nodes[node_id].pid
        self._guards[node_id] = subprocess.Popen(
            [*GUARD, str(pid)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.kill(pid, signal.SIGSTOP)
        self.state.asked.discard(node_id)

    def resume(self, node_id: int) -> None:
        self._guards.pop(node_id).communicate()
        self.state.asked.add(node_id)

    def until_led(
        self,
        topic: str,
        *,
        by: int | None = None,
        isr: Collection[int] | None = None,
        partition: int = 0,
    ) -> None:
        """Wait until all asked brokers know that this one leads, with this ISR if one is given, and until it does. -1
        means nobody; without `by`, anyone will do."""

        def led() -> bool:
            leaders = set()
            for found in self.state.partitions_of(topic):
                known = {each.partition_index: each for each in found}.get(partition)
                if known is None or (isr is not None and {*known.isr_nodes} != {*isr}):
                    return False
                leaders.add(known.leader_id)
            if leaders == {-1}:
                return by == -1
            if len(leaders) > 1 or (by is not None and leaders != {by}):
                return False
            return self.state.leads(*leaders, topic, partition)

        until(f"{topic}-{partition} is led by {'anyone' if by is None else by}, its ISR being {isr}", led)

    def until_committed(self, topic: str, offset: int, *, on: int, partition: int = 0) -> None:
        """Wait until that broker knows that the records before the offset are committed: it learns that with its next
        fetch."""
        until(
            f"broker {on} knows that {topic}-{partition} is committed to {offset}",
            lambda: self.state.is_committed(on, topic, partition, offset),
        )

    def settle(self) -> None:
        """Wait until all nodes run, all replicas are in sync, and the first replica of each partition leads it."""
        for node_id in list(self._guards):
            self.resume(node_id)
        for node_id in sorted(self._ended, reverse=True):  # the controller first
            self.start(node_id)
        self.state.settle()

    def let_go(self) -> None:
        """Close the connections to it, and let go of paused nodes."""
        self.state.close()
        for node_id in list(self._guards):
            self._guards.pop(node_id).communicate()

    def _has_ended(self, node_id: int) -> None:
        if node_id in self._guards:
            self._guards.pop(node_id).communicate()
        self._ended.add(node_id)
        self.state.forget(node_id)
