"""The first step of a decision: the topology beside the topics that are there, and whether the group is to be assigned
anew for that, or for what a member says of itself.

Source: `GroupMetadataManager.streamsGroupHeartbeat`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

from coordinator.group.parts import ShardParts
from coordinator.group.streams.configured_topology import ConfiguredTopology, configure
from coordinator.group.streams.decision import StreamsDecision
from coordinator.group.streams.records import group_epoch_record, streams_member_record, topology_record
from coordinator.group.streams.states import StatusCode
from coordinator.group.streams.topology import StreamsTopology, topology_value
from protocol.errors import Error, KafkaError
from protocol.messages import groups_streams
from protocol.messages.groups_streams import TaskIds

log = logging.getLogger("barnabas.groups")

NOT_VALIDATED = -1


class TopologyStep:
    """Records what is new of the member and of the topology, and gives the group its next epoch for it."""

    def __init__(self, parts: ShardParts) -> None:
        self._groups = parts.store.streams
        self._runtime = parts.runtime
        self._topics = parts.topics
        self._hashes = parts.hashes

    def take(self, decision: StreamsDecision, sent: groups_streams.Topology | None) -> None:
        """`sent`: what a member brings that joins. Raises KafkaError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY, and
        UNKNOWN_SERVER_ERROR for a topology with numbers that make no sense."""
        group = decision.group
        bump = decision.new != decision.old
        if bump:
            decision.records.append(streams_member_record(group.group_id, decision.new))
        topology = self._topology(decision, sent)
        metadata_hash, decision.configured, is_other = self._configured(decision, topology)
        validated_epoch = NOT_VALIDATED
        if decision.configured.is_ready:
            validated_epoch = topology.epoch
            for owned in decision.owned:
                _check_tasks(decision.configured, owned or ())
        bump = bump or is_other or validated_epoch != group.validated_epoch
        if bump or decision.assignment_configs != group.assignment_configs:
            decision.epoch = group.epoch + 1
            decision.records.append(
                group_epoch_record(
                    group.group_id,
                    decision.epoch,
                    metadata_hash,
                    validated_epoch,
                    decision.assignment_configs,
                )
            )
            said = "group %s is at epoch %d, its topology at %d"
            decision.effects.append(partial(log.info, said, group.group_id, decision.epoch, validated_epoch))

    def _topology(self, decision: StreamsDecision, sent: groups_streams.Topology | None) -> StreamsTopology:
        """The group's, or the first one, which it keeps until it ends."""
        known = decision.group.topology
        if sent is None:
            if known is None:
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: an IllegalStateException
        else:
            value = topology_value(sent)
            new = StreamsTopology(value)
            if known is None:
                decision.records.append(topology_record(decision.group.group_id, value))
                return new
            if known.epoch <= new.epoch and not known.is_same(new):
                raise KafkaError(Error.INVALID_REQUEST, "Topology updates are not supported yet.")
        if decision.new.topology_epoch < known.epoch:
            decision.tell(
                StatusCode.STALE_TOPOLOGY,
                f"The member's topology epoch {decision.new.topology_epoch} is behind the group's topology "
                f"epoch {known.epoch}.",
            )
        return known

    def _configured(
        self, decision: StreamsDecision, topology: StreamsTopology
    ) -> tuple[int, ConfiguredTopology, bool]:
        """The hash of its topics' metadata, the topology beside them, and whether the hash is another one."""
        group = decision.group
        known = None if group.topology is None else group.configured
        if known is not None and not group.needs_refresh(self._runtime.now_ms()):
            return group.metadata_hash, known, False
        hashed = self._hashes.look(topology.required)
        decision.effects.append(partial(self._hashes.keep, hashed))
        is_other = hashed.value != group.metadata_hash
        if known is None or is_other:
            known = configure(topology, self._topics)
        if self._groups.get(group.group_id) is group:
            decision.once_written.append(partial(self._was_configured, decision, known))
        return hashed.value, known, is_other

    def _was_configured(self, decision: StreamsDecision, configured: ConfiguredTopology) -> None:
        """A group that wasn't there yet looks once more at its next heartbeat, as in Kafka."""
        decision.group.configured = configured
        decision.group.was_refreshed(self._runtime.now_ms(), decision.epoch)


def _check_tasks(configured: ConfiguredTopology, owned: Sequence[TaskIds]) -> None:
    """Raises KafkaError (INVALID_REQUEST) for tasks that there are none of."""
    for each in owned:
        subtopology = configured.subtopologies.get(each.subtopology_id)
        if subtopology is None:
            raise KafkaError(
                Error.INVALID_REQUEST, f"Subtopology {each.subtopology_id} does not exist in the topology."
            )
        for partition in each.partitions:
            if not 0 <= partition < subtopology.task_count:
                raise KafkaError(
                    Error.INVALID_REQUEST,
                    f"Task {partition} for subtopology {each.subtopology_id} is invalid. "
                    f"Number of tasks for this subtopology: {subtopology.task_count}",
                )
