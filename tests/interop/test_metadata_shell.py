"""Kafka's metadata shell shows the same for the metadata log of our folder and for each of its snapshots."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import barnabas
from protocol.errors import Error
from protocol.messages.broker_to_controller import (
    AdvertisedListener,
    ControllerRegistrationRequest,
    SupportedFeature,
)
from protocol.messages.cluster_admin import UnregisterControllerRequest
from protocol.messages.security import (
    AclCreation,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    ScramCredentialUpsertion,
)
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.support.ports import free_ports
from tests.support.wire import Client

PROGRAM = Path(__file__).parent / "java" / "MetadataTree.java"
TOPIC, READ, ALLOW, LITERAL = 2, 3, 3, 3
SCRAM_SHA_256 = 1
GONE = 3000
EVERYTHING = 2**62


def settings(port: int, controller_port: int) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "metadata.log.max.record.bytes.between.snapshots": 1500,
    }


def fill(bootstrap: str, controller_port: int) -> None:
    """Records of the kinds that 4.4 has anew, and of a few more: enough for some snapshots."""
    with Client.connect(controller_port) as client:
        come = ControllerRegistrationRequest(
            controller_id=GONE,
            incarnation_id=bytes(range(16)),
            listeners=[AdvertisedListener(name="CONTROLLER", host="localhost", port=9, security_protocol=0)],
            features=[
                SupportedFeature(name="metadata.version", min_supported_version=7, max_supported_version=33)
            ],
        )
        assert client.ask(come, 0).error_code == Error.NONE
    with Client.of(bootstrap) as client:
        acl = AclCreation(
            resource_type=TOPIC,
            resource_name="t0",
            resource_pattern_type=LITERAL,
            principal="User:alice",
            host="10.0.0.0/8",
            operation=READ,
            permission_type=ALLOW,
        )
        assert client.ask(CreateAclsRequest(creations=[acl]), 3).results[0].error_code == Error.NONE
        alice = ScramCredentialUpsertion(
            name="alice",
            mechanism=SCRAM_SHA_256,
            iterations=4096,
            salt=bytes(20),
            salted_password=bytes(32),
        )
        told = client.ask(AlterUserScramCredentialsRequest(upsertions=[alice]), 0)
        assert told.results[0].error_code == Error.NONE
        for number in range(20):
            retention = CreatableTopicConfig(name="retention.ms", value="60000")
            wanted = CreatableTopic(
                name=f"t{number}", num_partitions=2, replication_factor=1, configs=[retention]
            )
            made = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 7)
            assert made.topics[0].error_code == Error.NONE
            if number == 10:
                gone = client.ask(UnregisterControllerRequest(controller_id=GONE), 0)
                assert gone.error_code == Error.NONE


def test_the_shell_shows_the_same_for_the_log_and_its_snapshots(
    needs_kafka: Callable[..., str], tmp_path: Path
) -> None:
    port, controller_port = free_ports(2)
    with barnabas.Broker(data=tmp_path / "data", config=settings(port, controller_port)) as broker:
        fill(broker.bootstrap, controller_port)

    def tree(path: Path, end: int = EVERYTHING) -> str:
        """But for the offset that it is of, which a snapshot says by its name alone."""
        shown = needs_kafka("class", PROGRAM, path, str(end))
        return re.sub(r"provenance\([^)]*\)", "", shown)

    folder = tmp_path / "data" / "__cluster_metadata-0"
    log = folder / "00000000000000000000.log"
    shown = tree(log)
    for expected in (
        "metadataVersion(Optional[4.4-IV2])",
        "finalized_share.version(2)",
        "principal=User:alice, host=10.0.0.0/8, operation=READ, permissionType=ALLOW",
        "SCRAM-SHA-256(alice(",
        "TOPIC:t19(retention.ms(",
    ):
        assert expected in shown
    assert f"ControllerRegistration(id={GONE}" not in shown
    first, *snapshots = sorted(folder.glob("*.checkpoint"))
    assert first.name == "00000000000000000000-0000000000.checkpoint"
    assert "metadataVersion(Optional[4.4-IV2])" in tree(first)
    assert len(snapshots) >= 3
    there = []
    for snapshot in (snapshots[0], snapshots[-1]):
        of_snapshot = tree(snapshot)
        assert of_snapshot == tree(log, int(snapshot.name.partition("-")[0]))
        there.append(f"ControllerRegistration(id={GONE}" in of_snapshot)
    assert there == [True, False]
