"""Everything that can be asked of a cluster, as plain data. A restart must not change it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from protocol.errors import Error
from protocol.messages.cluster_admin import DescribeLogDirsRequest, ListPartitionReassignmentsRequest
from protocol.messages.configs import (
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.security import DescribeUserScramCredentialsRequest
from protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from protocol.records.batch import walk_batches
from tests.simulation.restarts.nodes import INTERNAL, NOT_YET, SHARE, TRANSACTION, TRIES, Nodes
from tests.simulation.restarts.pictured_groups import Groups
from tests.simulation.restarts.plain import plain

Picture = dict[str, Any]
"""Keys are texts with names of topics, groups and so on as words."""

LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
TOPIC, BROKER, CLIENT_METRICS, GROUP_CONFIG = 2, 4, 16, 32
MUCH = 1 << 28
OF_BROKERS = [
    "log.retention.ms",
    "message.max.bytes",
    "log.flush.interval.messages",
    "follower.replication.throttled.rate",
    "max.connections.per.ip.overrides",
    "cordoned.log.dirs",
    "log.cleaner.threads",
    "node.id",
]
"""Of the hundreds of settings of each resource, those that are altered, and some more."""


async def take(nodes: Nodes) -> Picture:
    """Take a picture once nothing in it is passing. Several nodes learn of a change one after the other, so two
    pictures must agree. Raises AssertionError if something never settles."""
    waits: list[str] = []
    last: Picture | None = None
    for _ in range(TRIES):
        found = await _take(nodes)
        waits = _passing(found)
        if not waits and (len(nodes.broker_ids) == 1 or found == last):
            return found
        last = found
        await nodes.pause(0.3)
    raise AssertionError(f"it never settles: {waits[:3]}")


def differences(before: Picture, after: Picture) -> list[str]:
    found = []
    for key in sorted(before.keys() | after.keys()):
        one, other = before.get(key), after.get(key)
        if one != other:
            found.append(f"{key}: {' | '.join(_differing(one, other)) or f'{one} then {other}'}")
    return found


def _differing(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from _differing(one.get(name), other.get(name), f"{path} {name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from _differing(mine, theirs, f"{path} {number}")
    elif one != other:
        yield f"{path}: {one} then {other}"


def _passing(picture: Picture) -> list[str]:
    """Return what isn't at rest yet: passing errors, moves in progress, replicas that aren't in sync."""

    def errors(value: Any) -> Iterable[int]:
        if isinstance(value, dict):
            for name, each in value.items():
                if name == "error_code":
                    yield each
                else:
                    yield from errors(each)
        elif isinstance(value, list):
            for each in value:
                yield from errors(each)

    found = [
        key
        for key, value in picture.items()
        if not key.startswith("configs ") and any(Error(code) in NOT_YET for code in errors(value))
    ]
    for key, value in picture.items():
        if (
            (key.startswith("reassignments") and value["topics"])
            or (key.startswith("size of ") and " future " in key)
            or (key.startswith("partition ") and value["isr_nodes"] != value["replica_nodes"])
            or (key.startswith("transaction ") and value["transaction_state"].startswith("Prepare"))
        ):
            found.append(key)
    return found


async def _take(nodes: Nodes) -> Picture:
    found: Picture = {}
    known = await nodes.topics()
    found["cluster"] = plain(await nodes.ask(DescribeClusterRequest(), 1))
    found["features"] = plain((await nodes.ask(ApiVersionsRequest(), 3)).finalized_features)
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for name, topic in known.items():
        found[f"topic {name}"] = {"id": topic.topic_id.hex(), "internal": topic.is_internal}
        for partition in topic.partitions:
            index = partition.partition_index
            found[f"partition {name} {index}"] = plain(partition)
            if name not in INTERNAL.values():
                by_leader.setdefault(partition.leader_id, []).append((name, index))
    await _eligible(nodes, [*known], found)
    await _configs(nodes, [*known], found)
    for leader, places in by_leader.items():
        if leader >= 0:
            await _logs(nodes, leader, places, found)
    if INTERNAL[TRANSACTION] in known:
        await _transactions(nodes, found)
    groups = Groups(nodes, {name: len(topic.partitions) for name, topic in known.items()}, found)
    await groups.take(has_shares=INTERNAL[SHARE] in known)
    quotas = plain((await nodes.ask(DescribeClientQuotasRequest(), 1)).entries)
    for entry in quotas:
        entity = sorted((each["entity_type"], each["entity_name"]) for each in entry["entity"])
        found[f"quotas of {entity}"] = {each["key"]: each["value"] for each in entry["values"]}
    for user in (await nodes.ask(DescribeUserScramCredentialsRequest(users=None), 0)).results:
        infos = sorted((each.mechanism, each.iterations) for each in user.credential_infos)
        found[f"credentials of {user.user}"] = infos
    found["reassignments"] = plain(await nodes.ask(ListPartitionReassignmentsRequest(), 0))
    for node_id in nodes.broker_ids:
        for folder in (await nodes.ask(DescribeLogDirsRequest(topics=None), 4, node_id)).results:
            for topic in folder.topics:
                for each in topic.partitions:
                    if topic.name not in INTERNAL.values():
                        place = f"{topic.name} {each.partition_index}{' future' * each.is_future_key}"
                        found[f"size of {place} in {folder.log_dir} of {node_id}"] = each.partition_size
    return found


async def _eligible(nodes: Nodes, names: list[str], found: Picture) -> None:
    if not names:
        return
    asked = [DescribeTopicPartitionsTopic(name=name) for name in sorted(names)]
    for topic in (await nodes.ask(DescribeTopicPartitionsRequest(topics=asked), 0)).topics:
        for partition in topic.partitions:
            found[f"eligible {topic.name} {partition.partition_index}"] = plain(partition)


async def _configs(nodes: Nodes, topics: list[str], found: Picture) -> None:
    asked = [(TOPIC, name) for name in topics]
    listed = await nodes.ask(ListConfigResourcesRequest(), 1)
    resources = sorted((each.resource_type, each.resource_name) for each in listed.config_resources)
    for kind, name in resources:
        found[f"resource {kind} {name}"] = True
    asked += [each for each in resources if each[0] in (CLIENT_METRICS, GROUP_CONFIG)]
    wanted = [
        (nodes.broker_ids[0], DescribeConfigsResource(resource_type=kind, resource_name=name))
        for kind, name in asked
    ]
    for node_id in nodes.broker_ids:
        broker = DescribeConfigsResource(resource_type=BROKER, resource_name=str(node_id))
        broker.configuration_keys = OF_BROKERS
        wanted.append((node_id, broker))
    wanted.append((nodes.broker_ids[0], DescribeConfigsResource(resource_type=BROKER, resource_name="")))
    by_node: dict[int, list[DescribeConfigsResource]] = {}
    for node_id, resource in wanted:
        resource.configuration_keys = resource.configuration_keys or None
        by_node.setdefault(node_id, []).append(resource)
    for node_id, resources_there in by_node.items():
        request = DescribeConfigsRequest(resources=resources_there, include_synonyms=True)
        for result in (await nodes.ask(request, 4, node_id)).results:
            key = f"configs of {result.resource_type} {result.resource_name}"
            said = {
                each.name: (each.value, each.config_source, [(of.value, of.source) for of in each.synonyms])
                for each in result.configs
            }
            found[key] = {"error": result.error_code, **said}


# --- logs -------------------------------------------------------------------------------------------------------


async def _logs(nodes: Nodes, leader: int, places: list[tuple[str, int]], found: Picture) -> None:
    for what, timestamp, isolation in (
        ("high watermark", LATEST, 0),
        ("last stable offset", LATEST, 1),
        ("log start", EARLIEST, 0),
        ("local log start", EARLIEST_LOCAL, 0),
        ("largest timestamp", LARGEST_TIMESTAMP, 0),
        ("first of now", nodes.now_ms() // 3_600_000 * 3_600_000, 0),
    ):
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for of, index in places
                    if of == name
                ],
            )
            for name in dict.fromkeys(name for name, _ in places)
        ]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        for topic in (await nodes.ask(request, 9, leader)).topics:
            for partition in topic.partitions:
                found[f"{what} of {topic.name} {partition.partition_index}"] = plain(partition)
    await _producers(nodes, leader, places, found)
    for name, index in places:
        start = found[f"log start of {name} {index}"]["offset"]
        for isolation in (0, 1):
            await _records(nodes, leader, (name, index), (start, isolation), found)


async def _producers(nodes: Nodes, leader: int, places: list[tuple[str, int]], found: Picture) -> None:
    topics = [DescribeProducersTopic(name=name, partition_indexes=[index]) for name, index in places]
    for topic in (await nodes.ask(DescribeProducersRequest(topics=topics), 0, leader)).topics:
        for partition in topic.partitions:
            producers = sorted((plain(each) for each in partition.active_producers), key=str)
            found[f"producers of {topic.name} {partition.partition_index}"] = {
                "error_code": partition.error_code,
                "active": producers,
            }


async def _records(
    nodes: Nodes, leader: int, place: tuple[str, int], of: tuple[int, int], found: Picture
) -> None:
    """`of`: the first offset, and the isolation level."""
    start, isolation = of
    asked = FetchPartition(partition=place[1], fetch_offset=start, partition_max_bytes=MUCH)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=MUCH,
        isolation_level=isolation,
        topics=[FetchTopic(topic=place[0], partitions=[asked])],
    )
    answer = await nodes.ask(request, 12, leader)
    for topic in answer.responses:
        for partition in topic.partitions:
            data = bytes(partition.records or b"")
            batches = [
                f"{header.base_offset}-{header.last_offset} of {header.producer_id}/{header.producer_epoch} "
                f"{plain(data[at : at + header.size_bytes])}"
                for at, header in walk_batches(memoryview(data))
            ]
            partition.records = None
            found[f"records of {place[0]} {place[1]}, isolation {isolation}"] = plain(partition) | {
                "batches": batches
            }


async def _transactions(nodes: Nodes, found: Picture) -> None:
    for node_id in nodes.broker_ids:
        listed = await nodes.ask(ListTransactionsRequest(), 1, node_id)
        if Error(listed.error_code) in NOT_YET:
            found[f"transactions at {node_id}"] = plain(listed)  # asked again
        for each in listed.transaction_states:
            request = DescribeTransactionsRequest(transactional_ids=[each.transactional_id])
            [described] = (await nodes.ask(request, 0, node_id)).transaction_states
            described.topics.sort(key=lambda topic: topic.topic)
            found[f"transaction {each.transactional_id}"] = plain(described) | {"listed": plain(each)}
