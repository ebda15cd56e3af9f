"""Brokers' other requests to their controller: producer ids, directories, forwarded requests of clients, and the
metadata log itself.

Vote, BeginQuorumEpoch and EndQuorumEpoch are left out: barnabas doesn't serve them (GAPS.md), and Kafka's controller
would vote.
"""

from __future__ import annotations

from typing import Any

from protocol.messages.broker_to_controller import DefaultPrincipalData
from protocol.wire.codec import encode
from tests.support.wire import header

from ..cluster_properties import CLUSTER
from ..frames import API_KEYS, body
from ..play import Play, script, versions
from ..played_broker import DIRECTORY, ID, PlayedBroker
from ..quorum_requests import METADATA, snapshot
from ..requests import UNKNOWN_ID, create_topics, fetch

CONTROLLER = "controller"


@script(properties=CLUSTER)
def producer_ids_and_directories(play: Play) -> None:
    broker = PlayedBroker(play).begin()
    topic_id = broker.lead("a", 1)
    for case, fields in {
        "its own": {},
        "once more": {},
        "an epoch before": {"broker_epoch": broker.epoch - 1},
        "an epoch to come": {"broker_epoch": broker.epoch + 1},
        "no epoch": {"broker_epoch": -1},
        "no broker": {"broker_id": 77},
        "one that runs": {"broker_id": 1},
        "the controller": {"broker_id": 100},
    }.items():
        who = {"broker_id": ID, "broker_epoch": broker.epoch} | fields
        play.ask(f"producer ids: {case}", "AllocateProducerIds", 0, who, on=CONTROLLER)
        there = {"id": DIRECTORY, "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]}
        play.ask(
            f"a directory: {case}", "AssignReplicasToDirs", 0, who | {"directories": [there]}, on=CONTROLLER
        )
        broker.beat()
    for case, (directory, topic, partition) in {
        "unknown": (b"?" * 16, topic_id, 0),
        "lost": (bytes(15) + b"\x02", topic_id, 0),
        "unassigned": (bytes(15) + b"\x01", topic_id, 0),
        "migrating": (bytes(16), topic_id, 0),
        "of an unknown topic": (DIRECTORY, UNKNOWN_ID, 0),
        "of an unknown partition": (DIRECTORY, topic_id, 7),
    }.items():
        there = {
            "id": directory,
            "topics": [{"topic_id": topic, "partitions": [{"partition_index": partition}]}],
        }
        asked = {"broker_id": ID, "broker_epoch": broker.epoch, "directories": [there]}
        play.ask(f"a directory that is {case}", "AssignReplicasToDirs", 0, asked, on=CONTROLLER)
        broker.beat()
    other = play.topic("b", replicas=(1, 2))
    there = {
        "id": DIRECTORY,
        "topics": [{"topic_id": other.topic_id, "partitions": [{"partition_index": 0}]}],
    }
    asked = {"broker_id": ID, "broker_epoch": broker.epoch, "directories": [there]}
    play.ask("a directory of what it hasn't", "AssignReplicasToDirs", 0, asked, on=CONTROLLER)
    play.ask("no directories", "AssignReplicasToDirs", 0, asked | {"directories": []}, on=CONTROLLER)
    broker.end("a")


def _principal(kind: str = "User", name: str = "ANONYMOUS") -> bytes:
    return b"\0\0" + bytes(encode(DefaultPrincipalData(type=kind, name=name), 0))


def _envelope(api: str, version: int, fields: dict[str, Any], **lies: Any) -> dict[str, Any]:
    data = header(API_KEYS[api], version, 77, client_id="theirs") + body(api, version, fields)
    return {
        "request_data": data,
        "request_principal": _principal(),
        "client_host_address": bytes((127, 0, 0, 1)),
    } | lies


@script(properties=CLUSTER)
def envelopes(play: Play) -> None:
    made = create_topics({"name": play.name("a"), "replication_factor": 9})
    good = _envelope("CreateTopics", 7, made)
    data = good["request_data"]
    for on in (CONTROLLER, "broker 1", "broker 2 inter-broker"):
        for case, lies in {
            "good": {},
            "no principal": {"request_principal": None},
            "an empty principal": {"request_principal": b""},
            "a principal of version 1": {"request_principal": b"\0\1" + _principal()[2:]},
            "a principal cut short": {"request_principal": _principal()[:-3]},
            "another kind of principal": {"request_principal": _principal("Group", "x")},
            "no address": {"client_host_address": b""},
            "an address of three bytes": {"client_host_address": b"abc"},
            "an address of sixteen": {"client_host_address": bytes(15) + b"\1"},
            "nothing in it": {"request_data": b""},
            "a byte": {"request_data": b"\0"},
            "a header alone": {"request_data": data[:18]},
            "cut short": {"request_data": data[:-3]},
            "too long": {"request_data": data + b"xx"},
            "an unknown version": {"request_data": data[:2] + b"\0\x63" + data[4:]},
            "an unknown API": {"request_data": b"\3\xe7" + data[2:]},
            "an envelope": {"request_data": _envelope("Envelope", 0, good)["request_data"]},
        }.items():
            play.ask(f"{case}, of {on}", "Envelope", 0, good | lies, on=f"{on}: {case}")
    for api, version in (
        ("Metadata", 12),
        ("Produce", 9),
        ("Fetch", 12),
        ("DescribeConfigs", 4),
        ("ApiVersions", 3),
        ("FindCoordinator", 4),
        ("DescribeCluster", 0),
        ("BrokerHeartbeat", 1),
        ("ListPartitionReassignments", 0),
        ("DescribeQuorum", 1),
        ("AllocateProducerIds", 0),
        ("DescribeAcls", 3),
    ):
        play.ask(f"{api} in it", "Envelope", 0, _envelope(api, version, {}), on=f"{CONTROLLER}: {api}")


@script(properties=CLUSTER)
def tokens_in_envelopes(play: Play) -> None:
    """A broker forwards requests about tokens for the clients that it has authenticated."""
    renewers = [{"principal_type": "User", "principal_name": "b"}]
    owners = {
        "nobody named": (None, None),
        "itself": ("User", "ANONYMOUS"),
        "another one": ("User", "c"),
        "no name": ("User", ""),
        "no type": (None, "c"),
    }
    for version in versions("CreateDelegationToken"):
        for case, (kind, name) in owners.items():
            asked: dict[str, Any] = {"max_lifetime_ms": -1, "renewers": renewers}
            if version >= 3:
                asked |= {"owner_principal_type": kind, "owner_principal_name": name}
            elif kind is not None or name is not None:
                continue
            in_it = _envelope("CreateDelegationToken", version, asked)
            play.ask(f"created: {case} (v{version})", "Envelope", 0, in_it, on=f"{CONTROLLER}: tokens")
    for version in versions("RenewDelegationToken"):
        for api, period in (
            ("RenewDelegationToken", "renew_period_ms"),
            ("ExpireDelegationToken", "expiry_time_period_ms"),
        ):
            in_it = _envelope(api, version, {"hmac": b"h", period: 1})
            play.ask(f"{api} (v{version})", "Envelope", 0, in_it, on=f"{CONTROLLER}: tokens")


@script(properties=CLUSTER)
def metadata_log(play: Play) -> None:
    """The contents of the log differ between the brokers, so only the rest is compared."""
    end = 10**9
    for version in versions("Fetch"):
        for case, offset, fields in (
            ("behind the end", end, {}),
            ("negative", -2, {}),
            ("an epoch to come", 0, {"current_leader_epoch": 10**6}),
            ("an epoch before", 0, {"current_leader_epoch": 0}),
            ("a last epoch to come", 5, {"last_fetched_epoch": 10**6}),
        ):
            asked = fetch((METADATA, 0, offset, fields), replica_id=-1, partition_max_bytes=1)
            _noted(play, f"{case} (v{version})", version, asked)
    for case, asked in {
        "another cluster": fetch((METADATA, 0, 0), cluster_id="4L6g3nShT-eMCtK--X86sx"),
        "no cluster": fetch((METADATA, 0, 0), cluster_id=""),
        "another partition": fetch((METADATA, 1, 0)),
        "two partitions": fetch((METADATA, 0, 0), (METADATA, 1, 0)),
        "no topics": fetch(),
        "a negative wait": fetch((METADATA, 0, end), max_wait_ms=-1),
        "the controller itself": fetch(
            (METADATA, 0, 0), replica_state={"replica_id": 100, "replica_epoch": -1}
        ),
    }.items():
        _noted(play, case, 17, asked)
    for version in versions("FetchSnapshot"):
        for case, fields in {
            "unknown": {},
            "a negative offset": {"end_offset": -1},
            "an epoch to come": {"current_leader_epoch": 10**6},
            "an epoch before": {"current_leader_epoch": 0},
            "another partition": {"partition": 1},
            "another topic": {"name": "nowhere"},
            "a negative position": {"position": -1},
            "another cluster": {"cluster_id": "4L6g3nShT-eMCtK--X86sx"},
            "no bytes": {"max_bytes": 0},
        }.items():
            asked = snapshot(**fields)
            if "current_leader_epoch" not in fields:
                asked["topics"][0]["partitions"][0]["current_leader_epoch"] = _epoch(play)
            told = "refused" if case == "another cluster" else "none"
            play.ask(
                f"a snapshot, {told}: {case} (v{version})", "FetchSnapshot", version, asked, on=CONTROLLER
            )


def _epoch(play: Play) -> int:
    asked = {"topics": [{"topic_name": METADATA.name, "partitions": [{"partition_index": 0}]}]}
    answer = play.quietly("DescribeQuorum", 0, asked, on="controller: scene")
    return int(answer.topics[0].partitions[0].leader_epoch)


def _noted(play: Play, case: str, version: int, asked: dict[str, Any]) -> None:
    """Note only the errors: each broker's log has its own length and contents."""
    answer = play.quietly("Fetch", version, asked, on=f"controller: {case}")
    told = [
        {
            "partition": each.partition_index,
            "error": each.error_code,
            "records": bool(each.records),
            "diverging": each.diverging_epoch is not None and each.diverging_epoch.epoch >= 0,
            "leader": None if each.current_leader is None else each.current_leader.leader_id,
            "snapshot": each.snapshot_id is not None and each.snapshot_id.end_offset >= 0,
        }
        for topic in answer.responses
        for each in topic.partitions
    ]
    play.note(case, {"error": getattr(answer, "error_code", 0), "partitions": told})
