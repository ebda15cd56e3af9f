"""Where the answers of two clusters may differ, beside the differences in `masks.py`."""

from __future__ import annotations

from typing import Any

from .mask_actions import Names, any_number, in_any_order
from .masks import Mask


def own_and_internal(value: Any, names: Names) -> Any:
    """Keep the topics of this script, those that brokers create, and those that don't exist."""
    return [
        each
        for each in value
        if not each["topic"].startswith("replication-") or each["topic"].startswith(names.topic_prefix)
    ]


def by_resource(value: Any, names: Names) -> Any:
    """Sort by name: errors differ."""
    return sorted(value, key=lambda each: (each["resource_type"], each["resource_name"]))


CLUSTER_MASKS = (
    Mask(
        "AddPartitionsToTxn.results_by_transaction",
        in_any_order,
        "on a cluster Kafka's order is that in which replicas have the records of each",
        "transactions_adding/several_transactions_at_once",
    ),
    Mask(
        "*.coordinator_epoch",
        any_number,
        "how often the leader of the id's partition changed before",
        "replication_transactions/*",
    ),
    Mask(
        "ElectLeaders.replica_election_results",
        own_and_internal,
        "scripts share a cluster, and where all are asked for, topics of others may be led by another than their first",
        "replication_elections/*",
    ),
    Mask(
        "ElectLeaders.replica_election_results.partition_result",
        in_any_order,
        "Kafka's order is that of a hash set, where all are asked for",
        "replication_elections/*",
    ),
    Mask("BrokerRegistration.broker_epoch", any_number, "how far the metadata log has come"),
    Mask("AllocateProducerIds.producer_id_start", any_number, "how many were handed out before"),
    Mask(
        "IncrementalAlterConfigs.responses",
        by_resource,
        "a controller's order, and a broker's of what it hands on, is that of a hash map",
        "replication_brokers/*",
    ),
)
