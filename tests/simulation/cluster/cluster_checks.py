"""What must be true of the replicas once all faults are mended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.metadata_log import image_records
from broker.replicas.leader import Leader
from tests.simulation import log_contents, node_states
from tests.simulation.machine import Machine

if TYPE_CHECKING:
    from broker.replicas.partition import Partition
    from tests.simulation.cluster.cluster_simulation import ClusterSimulation

MENDED_WITHIN_S = 60.0


class Copy(NamedTuple):
    """A replica on its machine."""

    machine: Machine
    partition: Partition

    @property
    def name(self) -> str:
        log = self.partition.log
        return f"{log.topic}-{log.partition} on {self.machine.name}"

    @property
    def data(self) -> bytes:
        """The log's bytes. Its folder may be created with its first record."""
        if self.machine.disk.find(self.partition.log.directory) is None:
            return b""
        return node_states.log_bytes(self.machine, self.partition.log.directory)


class Copies(NamedTuple):
    leader: Copy
    followers: list[Copy]


async def until_full(simulation: ClusterSimulation) -> None:
    """Wait until all replicas are in sync. Complain if it takes too long."""
    await _until(simulation, simulation.nodes.is_full, lambda: _not_full(simulation))


async def until_equal(simulation: ClusterSimulation) -> None:
    """Wait until the followers have everything and know that it is committed, and all know what the controller
    knows."""
    await _until(simulation, lambda: not _behind(simulation), lambda: f"behind: {_behind(simulation)}")


async def _until(simulation: ClusterSimulation, is_so: Callable[[], bool], state: Callable[[], str]) -> None:
    deadline_s = simulation.loop.time() + MENDED_WITHIN_S
    while not is_so():
        if simulation.loop.time() > deadline_s:
            simulation.work.complain(state())
            return
        await asyncio.sleep(0.05)


def _not_full(simulation: ClusterSimulation) -> str:
    image = simulation.nodes.image
    assert image is not None
    return "not in sync: " + ", ".join(
        f"{name}-{index} led by {each.leader} with {each.isr} of {each.replicas}"
        for name, topic in image.topics.items()
        for index, each in topic.partitions.items()
        if each.leader < 0 or {*each.isr} != {*each.replicas}
    )


def _of_partitions(simulation: ClusterSimulation) -> Iterator[Copies]:
    """Raises KeyError or ValueError if the nodes disagree about a leader."""
    nodes, image = simulation.nodes, simulation.nodes.image
    assert image is not None
    for name, topic in image.topics.items():
        for index, known in topic.partitions.items():
            copies = []
            for node_id in known.replicas:
                machine = nodes.by_id(node_id)
                assert machine is not None
                partition = nodes.partition(machine.name, name, index)
                assert partition is not None, f"{machine.name} has no {name}-{index}"
                copies.append(Copy(machine, partition))
            [leader] = [each for each in copies if isinstance(each.partition.role, Leader)]
            yield Copies(leader, [each for each in copies if each is not leader])


def _behind(simulation: ClusterSimulation) -> list[str]:
    found = []
    for machine in simulation.nodes.brokers.values():
        assert machine.server is not None
        assert simulation.nodes.controller.node is not None
        known, end = (
            node.metadata.last_applied_offset for node in (machine.server, simulation.nodes.controller.node)
        )
        if known != end:
            found.append(f"{machine.name} knows the metadata up to {known} of {end}")
    if found:  # they may not know the leader yet
        return found
    for leader, followers in _of_partitions(simulation):
        end = leader.partition.log.log_end_offset
        for copy in (leader, *followers):
            log = copy.partition.log
            if copy.partition.move is not None:
                found.append(f"{copy.name} is on its way to another directory")
            if (log.log_end_offset, log.high_watermark) != (end, end):
                found.append(f"{copy.name}: {log.high_watermark} of {log.log_end_offset}, where {end} is")
    return found


def _first_difference(copy: Copy, leader: Copy) -> str:
    """Return the first difference between their batches."""
    both = [
        [
            f"{header.base_offset} to {header.last_offset} of epoch {header.partition_leader_epoch}, CRC {header.crc:x}"
            for header in node_states.batches(each.machine, each.partition.log.directory)
        ]
        for each in (copy, leader)
    ]
    different = [pair for pair in zip_longest(*both) if pair[0] != pair[1]]
    epochs = copy.partition.log.leader_epochs.entries, leader.partition.log.leader_epochs.entries
    return f"{different[0] if different else both}; epochs {epochs}"


def _are_equal(copy: Copy, leader: Copy) -> bool:
    """Compare what both have: each deletes at its own time."""
    logs = copy.partition.log, leader.partition.log
    if logs[0].topic in node_states.DELETED_FROM:
        begin = max(log.log_start_offset for log in logs)
        own, its = (each.data[len(log_contents.below(each.data, begin)) :] for each in (copy, leader))
        return own == its
    return copy.data == leader.data


def check_replicas(simulation: ClusterSimulation) -> None:
    """Check that every copy equals its leader's, byte for byte, and follows to the same state; and that epochs and
    coordinators make sense."""
    complain, image = simulation.work.complain, simulation.nodes.image
    assert image is not None
    states = {name: node_states.of_logs(machine) for name, machine in simulation.nodes.brokers.items()}

    def difference(copy: Copy, leader: Copy) -> str:
        known = [states[each.machine.name].get(each.partition.log.directory) for each in (copy, leader)]
        if leader.partition.log.topic in node_states.DELETED_FROM and None not in known:
            # each records by itself where its log begins, and one that dies before is behind
            known = [*node_states.of_what_both_have(*known)]  # type: ignore[arg-type]
        return "" if known[0] == known[1] else f"{copy.name} knows {known[0]}, and {leader.name} {known[1]}"

    for leader, followers in _of_partitions(simulation):
        log = leader.partition.log
        known = image.topics[log.topic].partitions[log.partition]
        if leader.partition.leader_epoch != known.leader_epoch:
            complain(f"{leader.name} leads in {leader.partition.leader_epoch} of {known.leader_epoch}")
        data = leader.data
        for copy in followers:
            if copy.partition.leader_epoch != known.leader_epoch:
                complain(f"{copy.name} follows in {copy.partition.leader_epoch} of {known.leader_epoch}")
            if not _are_equal(copy, leader):
                complain(f"{copy.name} is not as {leader.name}: {_first_difference(copy, leader)}")
            elif data and (different := difference(copy, leader)):
                complain(different)
    known_by_controller = {repr(record) for record in image_records(image)}
    for machine in simulation.nodes.brokers.values():
        assert machine.server is not None
        known_here = {repr(record) for record in image_records(machine.server.metadata.image)}
        hosted = machine.server.partitions.by_name.items()
        here = {name: {*topic.partitions} for name, topic in hosted if topic.partitions}
        node_id = machine.server.config.node_id
        assigned = {
            name: {index for index, each in topic.partitions.items() if node_id in each.replicas}
            for name, topic in image.topics.items()
        }
        if here != {name: indexes for name, indexes in assigned.items() if indexes}:
            complain(f"{machine.name} has {here}")
        unknown = sorted(known_here ^ known_by_controller)
        if unknown:
            complain(f"{machine.name} and the controller don't both know {unknown[0]}")
        simulation.work.anomalies += node_states.of_batch_epochs(machine)
        simulation.work.anomalies += node_states.open_transactions(machine)
