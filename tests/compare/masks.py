"""Where the answers of two healthy brokers may differ, and why. Everything else has to be equal.

A mask names fields by their path, `Api.field.field` (without indexes, `*` for anything), and says what to do with their
values. Most masks rename rather than hide. The first topic id of a script becomes `<topic id 1>` wherever it appears
again, so a broker that mixes up ids is still caught.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .mask_actions import (
    Action,
    Names,
    any_broker,
    any_number,
    any_text,
    control_record,
    healthy_first_in_any_order,
    in_any_order,
    in_order,
    known,
    member_id,
    members_in_any_order,
    moment,
    own_elections,
    own_groups,
    own_port,
    own_resources,
    own_topics,
    own_transactions,
    recompressed,
    refusal_as_it_is,
    renamed,
    roughly,
    then,
)

COMPARED_API_KEYS = frozenset(
    {*range(4), *range(8, 52), 55, 57, 60, 61, *range(64, 67), 68, 69, 74, 75, *range(76, 82), *range(83, 93)}
)
"""The APIs that barnabas must list. Add a key here together with its scripts."""


@dataclass(frozen=True, slots=True)
class Mask:
    where: str
    action: Action
    reason: str
    scripts: str = "*"


def compared_apis(value: Any, names: Names) -> Any:
    return [entry for entry in value if entry["api_key"] in COMPARED_API_KEYS]


_ZERO_UUID = bytes(16).hex()

MASKS = (
    Mask(
        "DescribeTopicPartitions.topics",
        in_any_order,
        "those that may not be described are in the order of a hash set",
        "rights*",
    ),
    Mask("CreateTopics.topics", in_any_order, "Kafka's order is that of a hash map", "rights*"),
    Mask(
        "ConsumerGroup*assignment.topic_partitions",
        in_any_order,
        "Kafka's order is that of random topic ids",
        "rights*",
    ),
    Mask("*error_message", refusal_as_it_is, "a refusal's words are fixed", "rights*"),
    Mask("*.topic_id", renamed("topic id", but=(_ZERO_UUID,)), "topic ids are random"),
    Mask("*.cluster_id", renamed("cluster id", but=(None, "")), "a cluster's id is random"),
    Mask("*.session_id", renamed("session", but=(0,)), "fetch session ids are random"),
    Mask(
        "InitProducerId.producer_id",
        renamed("producer id", but=(-1,)),
        "producer ids are handed out in blocks",
    ),
    Mask("EndTxn.producer_id", renamed("producer id", but=(-1,)), "as for InitProducerId"),
    Mask(
        "DescribeTransactions.transaction_states.producer_id",
        renamed("producer id", but=(-1, 0)),
        "as for InitProducerId; 0 is that of an unknown one",
    ),
    Mask("*.producer_id", known("producer id"), "as for InitProducerId"),
    Mask("*.records.records", control_record, "a marker is shown as what it says"),
    *(
        Mask("*.coordinator_epoch", any_number, "how often the broker was started", f"{family}/*")
        for family in (
            "compaction",
            "share_fetch",
            "transactions_histories",
            "transactions_levels",
            "transactions_loaded",
            "transactions_restarts",
            "transactions_stored",
            "transactions_timeouts",
        )
    ),
    Mask(
        "ListTransactions.transaction_states", then(own_transactions, in_any_order), "scripts share a broker"
    ),
    Mask(
        "DescribeTransactions.transaction_states.topics", in_any_order, "Kafka's order is that of a hash set"
    ),
    Mask("DescribeTransactions.*.partitions", in_order, "Kafka's order is that of a hash set"),
    Mask("*.transaction_start_time_ms", moment, "the time of the request"),
    Mask("*.last_timestamp", moment, "the time of the request, or of its records"),
    Mask("AddPartitionsToTxn.*topic_results", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "AddPartitionsToTxn.results_by_topic_v3_and_below",
        in_any_order,
        "Kafka's order is that of a hash map",
    ),
    Mask("AddPartitionsToTxn.*results_by_partition", in_any_order, "Kafka's order is that of a hash map"),
    Mask("WriteTxnMarkers.markers", in_any_order, "Kafka's order is that of a hash map"),
    Mask("WriteTxnMarkers.markers.topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("WriteTxnMarkers.markers.topics.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "*.records.compressed",
        recompressed,
        "two compressors make different bytes; what is in them is compared",
    ),
    Mask(
        "Replicas.*.compressed",
        lambda value, names: "<recompressed>",
        "our compressor is that of the script, and may make the same of it",
        "produce_stored/what_recompression_makes_of_a_batch",
    ),
    Mask("*.controller_id", any_broker, "a broker names one at random"),
    Mask("*.port", own_port, "the two brokers listen on ports of their own"),
    Mask("*.throttle_time_ms", roughly, "a moment more or less passes between the requests"),
    Mask("*.error_message", any_text, "we say it in our own words; whether a text comes is compared"),
    Mask("*.batch_index_error_message", any_text, "as for error_message"),
    Mask("*.log_append_time_ms", moment, "the time of the request, where it is that"),
    Mask("*.timestamp", moment, "as for log_append_time_ms"),
    Mask("*.base_timestamp", moment, "as for log_append_time_ms"),
    Mask("*.max_timestamp", moment, "as for log_append_time_ms"),
    Mask("ApiVersions.finalized_features_epoch", any_number, "the offset that the metadata log has reached"),
    Mask("ApiVersions.api_keys", compared_apis, "an API is listed only once it works; these have to"),
    Mask("ApiVersions.finalized_features", in_any_order, "Kafka's order is that of a hash map"),
    Mask("ApiVersions.supported_features", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "Metadata.topics",
        then(own_topics, healthy_first_in_any_order),
        "scripts share a broker; Kafka's order among known topics, and among unknown ones, is that of a hash set",
    ),
    Mask("DescribeTopicPartitions.topics", own_topics, "scripts share a broker"),
    Mask("*.log_dir", renamed("log dir"), "the two brokers have folders of their own"),
    Mask("DescribeLogDirs.results.topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeLogDirs.results.topics.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeLogDirs.results.total_bytes", any_number, "what the machine has"),
    Mask("DescribeLogDirs.results.usable_bytes", any_number, "what the machine has"),
    Mask("AlterReplicaLogDirs.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask("AlterReplicaLogDirs.results.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DeleteRecords.topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DeleteRecords.topics.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "DescribeProducers.topics.partitions.active_producers",
        in_any_order,
        "Kafka's order is that of a hash map",
    ),
    Mask("ElectLeaders.replica_election_results", own_elections, "scripts share a broker"),
    Mask("DescribeQuorum.*.last_fetch_timestamp", moment, "the time of the request"),
    Mask("DescribeQuorum.*.last_caught_up_timestamp", moment, "the time of the request"),
    Mask(
        "DescribeQuorum.topics.partitions.leader_epoch",
        any_number,
        "how often the controller was elected: Kafka needs several tries where it starts slowly",
    ),
    Mask(
        "DescribeQuorum.*.replica_directory_id",
        renamed("directory id", but=(_ZERO_UUID,)),
        "directory ids are random",
    ),
    Mask("DescribeQuorum.topics.partitions.observers", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeQuorum.*.log_end_offset", any_number, "how far the metadata log has come"),
    Mask("DescribeQuorum.*.high_watermark", any_number, "how far the metadata log has come"),
    Mask("DescribeQuorum.nodes.listeners.port", any_number, "the two brokers have ports of their own"),
    Mask("DescribeUserScramCredentials.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "DescribeUserScramCredentials.results.credential_infos",
        in_any_order,
        "Kafka's order is that of a hash map",
    ),
    Mask("AlterUserScramCredentials.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeClientQuotas.entries", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeClientQuotas.entries.entity", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeClientQuotas.entries.values", in_any_order, "Kafka's order is that of a hash map"),
    Mask("AlterClientQuotas.entries", in_any_order, "Kafka's order is that of a hash map"),
    Mask("AlterClientQuotas.entries.entity", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DescribeConfigs.results.configs", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "ListConfigResources.config_resources",
        then(own_resources, in_any_order),
        "scripts share a broker; Kafka's order is that of hash maps",
    ),
    Mask("CreatePartitions.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask("DeleteTopics.responses", in_any_order, "Kafka shuffles them"),
    Mask("ListOffsets.topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("ListOffsets.topics.partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "JoinGroup.members",
        members_in_any_order,
        "Kafka's order is that of a hash map over random member ids",
    ),
    Mask("DescribeGroups.groups.members", members_in_any_order, "as for JoinGroup.members"),
    Mask("ConsumerGroupDescribe.groups", in_any_order, "Kafka answers by partition of __consumer_offsets"),
    Mask("StreamsGroupDescribe.groups", in_any_order, "as for ConsumerGroupDescribe"),
    Mask(
        "ConsumerGroupDescribe.groups.members",
        members_in_any_order,
        "Kafka's order is that of a hash map over random member ids",
        "consumer_groups_migration/*",
    ),
    *(
        Mask(f"{api}.results", in_any_order, "Kafka's order is that of a hash map over random topic ids")
        for api in (
            "InitializeShareGroupState",
            "ReadShareGroupState",
            "WriteShareGroupState",
            "DeleteShareGroupState",
            "ReadShareGroupStateSummary",
        )
    ),
    Mask("ShareGroupDescribe.groups", in_any_order, "Kafka answers by partition of __consumer_offsets"),
    *(
        Mask(f"{api}.topics", in_any_order, "Kafka's order is that of a hash map over random topic ids")
        for api in ("DescribeShareGroupOffsets.groups", "ShareGroupHeartbeat.assignment")
    ),
    *(
        Mask(f"{api}.responses", in_any_order, "as for DescribeShareGroupOffsets.groups.topics")
        for api in ("AlterShareGroupOffsets", "DeleteShareGroupOffsets")
    ),
    *(
        Mask(f"{api}.{field}", in_any_order, "as for DescribeShareGroupOffsets.groups.topics")
        for api in ("ShareFetch", "ShareAcknowledge")
        for field in ("responses", "responses.partitions")
    ),
    Mask("*.member_id", member_id, "member ids are random"),
    Mask("JoinGroup.leader", member_id, "member ids are random"),
    Mask("DescribeGroups.groups", in_any_order, "Kafka's order is that of a hash map"),
    Mask(
        "ListGroups.groups",
        then(own_groups, in_any_order),
        "scripts share a broker; the order is a hash map's",
    ),
    Mask("DeleteGroups.results", in_any_order, "Kafka's order is that of a hash map"),
    Mask("OffsetFetch.*topics", in_any_order, "Kafka's order is that of a hash map"),
    Mask("OffsetFetch.*partitions", in_any_order, "Kafka's order is that of a hash map"),
    Mask("Produce.responses", in_any_order, "Kafka's order is that of a hash map over random topic ids"),
    Mask("Produce.responses.partition_responses", in_any_order, "as for Produce.responses"),
)
